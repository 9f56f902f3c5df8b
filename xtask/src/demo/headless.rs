//! `cargo xtask demo --headless`: gets from an empty consumer and one Secret to a synced object by `kubectl apply`
//! alone, without the command line tool and without a user.
//!
//! Both sides are applied as GitOps tools do it: all at once, again and again until the API servers have taken all of it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use bindery_e2e::{
    ControlPlane, Kubelet, Provider,
    charts::Helm,
    eventually, process,
    wildwest::{self, SOON},
};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{COWBOY, NAMESPACE, Steps, show};
use crate::cargo::root;

/// The requester's namespace on the provider.
const ORDERS: &str = "orders";
const REQUEST: &str = "bindableresourcesrequest/cowboys";
/// Names two things: the consumer cluster, in the request (`clusterIdentity`), and the Secrets that hold its
/// kubeconfig.
const WEST: &str = "west";
/// The APIServiceBindingBundle on the consumer, which keeps a binding for each export that the kubeconfig gives access
/// to.
const BUNDLE: &str = "wildwest";
/// The longest wait for each step.
const LIMIT: Duration = Duration::from_mins(2);
/// Pause between two attempts to apply.
const RETRY: Duration = Duration::from_millis(500);

/// Folders and files of `deploy/` that are applied to the consumer in one `kubectl apply`: the konnector (the agent
/// that syncs), its rights on the APIs that bundles bind, a bundle, and a Cowboy to sync.
const CONSUMER: [&str; 4] = [
    "konnector",
    "konnector/optional/bundles.yaml",
    "examples/bundle/consumer",
    "examples/cowboys/consumer",
];

/// What the demo works with.
struct Demo<'a> {
    provider: &'a Provider,
    consumer: &'a ControlPlane,
    steps: Steps,
}

pub(super) async fn run(keep: bool) -> Result<()> {
    let mut steps = Steps::default();
    let start = Instant::now();
    let (provider, consumer) = tokio::try_join!(
        Provider::start_empty("provider"),
        ControlPlane::start_for_pods("consumer")
    )?;
    steps.record("two clusters run", start)?;
    let kubelets = (
        provider.kubelet()?,
        Kubelet::new(&consumer).reaching(provider.reachable()),
    );
    let demo = Demo {
        provider: &provider,
        consumer: &consumer,
        steps,
    };
    kubelets.0.during(kubelets.1.during(demo.play(keep))).await
}

impl Demo<'_> {
    async fn play(mut self, keep: bool) -> Result<()> {
        let start = Instant::now();
        self.provider.install_release(&Helm::get().await?).await?;
        self.steps.record("provider: the server is installed by Helm", start)?;
        let secret = self.ask().await?;
        let took = self.apply(secret).await?;
        self.report().await?;
        self.steps.table()?;
        show(&format!(
            "\nFrom `kubectl apply` on the empty consumer to the first synced object: {:.3} s\n",
            took.as_secs_f64()
        ))?;
        if keep { self.keep().await } else { Ok(()) }
    }

    /// Applies a BindableResourcesRequest on the provider, by an account that has no rights but those it
    /// needs for that. Returns the file with the Secret for the consumer.
    async fn ask(&mut self) -> Result<PathBuf> {
        let start = Instant::now();
        let plane = &self.provider.plane;
        let admin = plane.kubeconfig_path();
        apply(plane, admin, &[deploy("examples/bundle/provider/requester.yaml")]).await?;
        self.steps.record("provider: who may ask is applied", start)?;

        let start = Instant::now();
        let pipeline = plane.service_account_kubeconfig(ORDERS, "pipeline").await?;
        apply(plane, &pipeline, &[deploy("examples/bundle/provider/request.yaml")]).await?;
        let succeeded = ["wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=2m"];
        kubectl(plane, &pipeline, &[&succeeded[..], &[REQUEST, "-n", ORDERS]].concat()).await?;
        self.steps.record("provider: the request has succeeded", start)?;

        let response = ["get", "secret", WEST, "-n", ORDERS, "-o", "json"];
        let response: Value = serde_json::from_str(&kubectl(plane, &pipeline, &response).await?)?;
        self.carry(&response)
    }

    /// Writes the Secret for the consumer to a file: it holds the kubeconfig of the response, unchanged.
    fn carry(&self, response: &Value) -> Result<PathBuf> {
        let kubeconfig = response["data"]["kubeconfig"]
            .as_str()
            .context("a kubeconfig in the response")?;
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": WEST, "namespace": bindery_e2e::NAMESPACE},
            "data": {"kubeconfig": kubeconfig},
        });
        self.consumer.workdir().write("secret.json", secret.to_string())
    }

    /// Applies everything on the consumer. Returns the time from the first apply to the first synced object.
    async fn apply(&mut self, secret: PathBuf) -> Result<Duration> {
        let start = Instant::now();
        let (applied, ready, (copy, took)) =
            tokio::try_join!(self.applied(secret, start), self.ready(start), self.copied(start))?;
        let (times, applied) = applied;
        self.steps.took("since apply: the bundle is Ready", ready)?;
        self.steps.took("since apply: all manifests are taken", applied)?;
        self.steps
            .took("since apply: the first object is on the provider", took)?;
        show(&format!(
            "  {} after {times} times `kubectl apply`\n",
            copy.data["spec"]
        ))?;
        Ok(took)
    }

    /// Applies all manifests. Returns how many times `kubectl apply` ran, and the time since `start`.
    async fn applied(&self, secret: PathBuf, start: Instant) -> Result<(usize, Duration)> {
        let files: Vec<_> = CONSUMER.into_iter().map(deploy).chain([secret]).collect();
        let times = apply(self.consumer, self.consumer.kubeconfig_path(), &files).await?;
        Ok((times, start.elapsed()))
    }

    /// Waits until the bundle is Ready. `kubectl wait` fails, and is tried again, while the bundle does not exist.
    async fn ready(&self, start: Instant) -> Result<Duration> {
        let bundle = format!("apiservicebindingbundle/{BUNDLE}");
        let wait = ["wait", "--for=condition=Ready", "--timeout=2m", &bundle];
        let admin = self.consumer.kubeconfig_path();
        eventually("the bundle to be there and Ready", LIMIT, async || {
            kubectl(self.consumer, admin, &wait).await.map(Some)
        })
        .await?;
        Ok(start.elapsed())
    }

    /// Waits until the provider has the copy of the Cowboy.
    async fn copied(&self, start: Instant) -> Result<(DynamicObject, Duration)> {
        let copies = self.copies();
        let what = "the Cowboy on the provider";
        let copy = eventually(what, LIMIT, async || Ok(copies.get_opt(COWBOY).await?)).await?;
        Ok((copy, start.elapsed()))
    }

    /// Writes a status to the provider's copy, as the provider's operator would, and waits until the consumer has it.
    async fn report(&mut self) -> Result<()> {
        let start = Instant::now();
        let patch = Patch::Merge(json!({"status": {"result": "the ranch is safe"}}));
        self.copies()
            .patch_status(COWBOY, &PatchParams::default(), &patch)
            .await?;
        let ours = Api::namespaced_with(self.consumer.client(), NAMESPACE, &wildwest::resource());
        let seen = wildwest::wait("the status on the consumer", &ours, COWBOY, |cowboy| {
            cowboy.data["status"]["result"] == "the ranch is safe"
        })
        .await?;
        self.steps.record("consumer: the status is there", start)?;
        show(&format!("  {NAMESPACE}/{COWBOY} {}\n", seen.data["status"]))
    }

    /// The Cowboys in the provider namespace that mirrors the consumer's namespace. The contract is the relation of
    /// this consumer to the provider.
    fn copies(&self) -> Api<DynamicObject> {
        let namespace = bindery_api::names::provider_namespace(&Provider::contract(WEST), NAMESPACE);
        Api::namespaced_with(self.provider.plane.client(), &namespace, &wildwest::resource())
    }

    async fn keep(&self) -> Result<()> {
        let alias = |name: &str, plane: &ControlPlane| {
            let (kubectl, kubeconfig) = (plane.kubectl_path().display(), plane.kubeconfig_path().display());
            format!("  alias {name}='{kubectl} --kubeconfig {kubeconfig}'\n")
        };
        show(&format!(
            "\nEverything runs on until Ctrl-C. Try:\n\n{}{}\n  \
             consumer get apiservicebindingbundles,apiservicebindings\n  \
             consumer edit cowboy -n {NAMESPACE} {COWBOY}\n  provider get cowboys -A\n  \
             provider delete -f {}\n  consumer delete apiservicebindingbundle {BUNDLE}\n",
            alias("consumer", self.consumer),
            alias("provider", &self.provider.plane),
            deploy("examples/bundle/provider/request.yaml").display(),
        ))?;
        tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
    }
}

/// Runs `kubectl apply` until it succeeds: objects are refused until the CRDs applied with them are served. Returns the
/// number of attempts.
async fn apply(plane: &ControlPlane, kubeconfig: &Path, files: &[PathBuf]) -> Result<usize> {
    let start = Instant::now();
    let mut args = vec!["apply".to_owned()];
    args.extend(files.iter().map(|file| format!("--filename={}", file.display())));
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    for times in 1.. {
        match kubectl(plane, kubeconfig, &args).await {
            Ok(_) => return Ok(times),
            Err(error) if start.elapsed() > LIMIT => return Err(error),
            Err(_) => sleep(RETRY).await,
        }
    }
    bail!("never applied")
}

/// Runs kubectl and returns its standard output. Fails if the exit code is not 0.
async fn kubectl(plane: &ControlPlane, kubeconfig: &Path, args: &[&str]) -> Result<String> {
    let mut command: Command = plane.kubectl_command(kubeconfig);
    command.args(args);
    let output = process::run(command, LIMIT + SOON).await?;
    process::stdout(&output).with_context(|| format!("kubectl {}", args.join(" ")))
}

fn deploy(name: &str) -> PathBuf {
    root().join("deploy").join(name)
}
