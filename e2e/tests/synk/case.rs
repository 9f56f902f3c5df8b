//! A case: what it runs, and what it asked.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Asked, ControlPlane, Gate, Moment, Process, Proxy, process,
    synk::{Ran, Synk},
};
use serde_json::Value;

use crate::{list, look, world::ACCOUNTS};

/// How long what is to come may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// One test, with a set, a namespace and an account of its own, all of its name.
pub(crate) struct Case {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) name: &'static str,
    /// The command, as the case's account.
    pub(crate) synk: Synk,
    /// The bearer token of the case's account.
    pub(crate) token: String,
}

/// What a case asked since a moment, in the order in which it arrived.
#[derive(Debug)]
pub(crate) struct Asks {
    /// Reads of resources.
    pub(crate) reads: Vec<Asked>,
    /// What was to change something.
    pub(crate) writes: Vec<Asked>,
    /// What a write would do.
    pub(crate) dry_runs: Vec<Asked>,
    /// Requests about no resource: discovery.
    pub(crate) discovery: Vec<String>,
}

// === impl Case ===

impl Case {
    pub(crate) async fn begin(plane: &'static ControlPlane, name: &'static str) -> Result<Self> {
        let given = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": ACCOUNTS}},
        ]});
        plane.apply(&given.to_string()).await?;
        let token = plane.token_for(ACCOUNTS, name, &[], 24 * 60 * 60).await?;
        let mut case = Self {
            plane,
            name,
            synk: Synk::new(PathBuf::new()),
            token,
        };
        case.synk = case.through(&plane.server_url())?;
        Ok(case)
    }

    /// The command, with another way to the API server: a [`Gate`] or a [`Proxy`].
    pub(crate) fn through(&self, url: &str) -> Result<Synk> {
        let kubeconfig = self
            .plane
            .token_kubeconfig("default", self.token.as_str())
            .with_server(url);
        let port = url.rsplit(':').next().unwrap_or_default();
        let file = format!("{}-{port}.kubeconfig", self.name);
        Ok(Synk::new(self.plane.workdir().write(&file, kubeconfig.to_yaml()?)?))
    }

    /// A gate, and the command whose way leads through it: to be killed right after its n-th write.
    pub(crate) async fn gated(&self) -> Result<(Gate, Synk)> {
        let gate = Gate::start(self.plane).await?;
        let synk = self.through(gate.url())?;
        Ok((gate, synk))
    }

    /// A proxy, and the command whose way leads through it: an API server that goes away for this command alone.
    pub(crate) async fn proxied(&self) -> Result<(Proxy, Synk)> {
        let proxy = self.plane.proxy().await?;
        let synk = self.through(&format!("https://{}", proxy.address()))?;
        Ok((proxy, synk))
    }

    /// `synk apply NAME -n NAME -f -`.
    pub(crate) async fn apply(&self, manifests: &[Value]) -> Result<Ran> {
        self.apply_with(manifests, &[]).await
    }

    /// As [`Case::apply`], with more flags.
    pub(crate) async fn apply_with(&self, manifests: &[Value], flags: &[&str]) -> Result<Ran> {
        self.run_with("apply", manifests, flags).await
    }

    /// `synk plan NAME -n NAME -f -`, with more flags.
    pub(crate) async fn plan(&self, manifests: &[Value], flags: &[&str]) -> Result<Ran> {
        self.run_with("plan", manifests, flags).await
    }

    /// `synk delete NAME`.
    pub(crate) async fn delete(&self) -> Result<Ran> {
        self.run(&["delete", self.name, "-n", self.name]).await
    }

    /// `synk` with these arguments and no input.
    pub(crate) async fn run(&self, args: &[&str]) -> Result<Ran> {
        self.synk.run(args, "").await
    }

    /// `synk apply NAME -n NAME -f -` of a stream, with more flags.
    pub(crate) async fn apply_text(&self, stream: &str, flags: &[&str]) -> Result<Ran> {
        self.run_text("apply", stream, flags).await
    }

    async fn run_with(&self, verb: &str, manifests: &[Value], flags: &[&str]) -> Result<Ran> {
        self.run_text(verb, &list(manifests), flags).await
    }

    async fn run_text(&self, verb: &str, stream: &str, flags: &[&str]) -> Result<Ran> {
        let args = [&[verb, self.name, "-n", self.name, "-f", "-"], flags].concat();
        self.synk.run(&args, stream).await
    }

    /// Starts an apply of these manifests without waiting for it.
    pub(crate) fn start_apply(&self, synk: &Synk, manifests: &[Value], flags: &[&str]) -> Result<Process> {
        let file = self.file("input.json", &list(manifests))?;
        let file = file.to_str().context("a path in UTF-8")?;
        synk.start(&[&["apply", self.name, "-n", self.name, "-f", file], flags].concat())
    }

    /// Starts an apply that is in the middle of its work when this returns: so many writes of ConfigMaps have passed, and the
    /// next ones wait until the gate is opened.
    pub(crate) async fn start_paused(
        &self,
        manifests: &[Value],
        writes: usize,
        flags: &[&str],
    ) -> Result<(Gate, Process)> {
        let (gate, synk) = self.gated().await?;
        let run = self.pause(&gate, &synk, manifests, writes, flags).await?;
        Ok((gate, run))
    }

    /// As [`Case::start_paused`], with a command whose way leads through the gate.
    pub(crate) async fn pause(
        &self,
        gate: &Gate,
        synk: &Synk,
        manifests: &[Value],
        writes: usize,
        flags: &[&str],
    ) -> Result<Process> {
        gate.pause_after(writes, |write| write.contains("/configmaps"));
        let run = self.start_apply(synk, manifests, flags)?;
        let paused = tokio::time::timeout(SOON, gate.paused()).await;
        paused.with_context(|| format!("no write waits: {:#?}\n{}", gate.writes(), run.log()))?;
        Ok(run)
    }

    /// Writes a file of the case's own.
    pub(crate) fn file(&self, name: &str, content: &str) -> Result<PathBuf> {
        self.plane.workdir().write(&format!("{}-{name}", self.name), content)
    }

    /// kubectl as admin, with standard input. Client-side unless the arguments say otherwise.
    pub(crate) async fn kubectl(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = self.plane.kubectl_command(self.plane.kubeconfig_path());
        command.args(args);
        let output = process::run_with_input(command, input.as_bytes().to_vec(), SOON).await?;
        process::stdout(&output).with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// Takes away the Lease that an apply left which was killed: else the next waits until it is known that nobody renews
    /// it, which is a test of its own.
    pub(crate) async fn forget_lease(&self, namespace: &str) -> Result<()> {
        let lease = format!("synk-{}", self.name);
        let delete = ["delete", "lease", &lease, "-n", namespace, "--ignore-not-found"];
        self.kubectl(&delete, "").await.map(drop)
    }

    /// Now, as the audit log has it.
    pub(crate) fn now(&self) -> Result<Moment> {
        self.plane.audit()?.now()
    }

    /// What this case's account asked since then.
    pub(crate) fn asked(&self, since: Moment) -> Result<Asks> {
        let account = format!("system:serviceaccount:{ACCOUNTS}:{}", self.name);
        let audit = self.plane.audit()?;
        let own = audit.since(since)?.into_iter().filter(|asked| asked.by == account);
        let (writes, reads): (Vec<_>, Vec<_>) = own.partition(Asked::is_write);
        let (dry_runs, writes) = writes.into_iter().partition(|asked| asked.dry_run);
        Ok(Asks {
            reads,
            writes,
            dry_runs,
            discovery: audit.about_nothing_since(since, &account)?,
        })
    }

    /// Fails if this case wrote anything since then.
    pub(crate) fn wrote_nothing(&self, since: Moment) -> Result<()> {
        let writes = self.asked(since)?.writes;
        ensure!(writes.is_empty(), "written: {writes:#?}");
        Ok(())
    }
}

// === impl Asks ===

impl Asks {
    /// That an apply which changes nothing asked this: no write, and no more than one read for each kind and namespace
    /// of the set, one for its versions and two for discovery.
    pub(crate) fn are_few(&self, set: &Value) -> Result<()> {
        ensure!(self.writes.is_empty(), "written: {:#?}", self.writes);
        let objects = look::objects_in(&set["spec"]["resources"]);
        let places: BTreeSet<_> = objects
            .iter()
            .map(|object| ["group", "kind", "namespace"].map(|key| object[key].to_string()))
            .collect();
        ensure!(
            self.reads.len() <= places.len() + 1,
            "{} places: {:#?}",
            places.len(),
            self.reads
        );
        ensure!(self.discovery.len() <= 2, "discovery: {:?}", self.discovery);
        ensure!(
            self.dry_runs.len() <= places.len(),
            "asked what would happen: {:#?}",
            self.dry_runs
        );
        Ok(())
    }
}
