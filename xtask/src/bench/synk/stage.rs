//! The cluster on which the contestants run, one after the other.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{ControlPlane, eventually, process};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::{
    Args, Step,
    contestant::Contestant,
    input::{self, LABEL, Owner},
};

/// Namespace of the contestants' ServiceAccounts.
pub(super) const NAMESPACE: &str = "bench";

/// Timeout of steps that are not measured.
const LIMIT: Duration = Duration::from_mins(2);

/// A control plane with the accounts, rights and CRD that the contestants need.
pub(super) struct Stage {
    pub(super) plane: ControlPlane,
    pub(super) args: Args,
    /// The folder with the programs.
    folder: PathBuf,
    kubeconfigs: BTreeMap<&'static str, PathBuf>,
}

/// One step by one contestant in one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) round: u32,
    pub(super) step: Step,
    pub(super) contestant: Contestant,
}

impl Stage {
    pub(super) async fn prepare(folder: PathBuf, args: Args) -> Result<Self> {
        let plane = ControlPlane::start_audited("bench").await?;
        plane.kubectl(&["create", "namespace", NAMESPACE]).await?;
        let group = format!("--group=system:serviceaccounts:{NAMESPACE}");
        let binding = [
            "create",
            "clusterrolebinding",
            "bench",
            "--clusterrole=cluster-admin",
            &group,
        ];
        plane.kubectl(&binding).await?;
        let mut kubeconfigs = BTreeMap::new();
        for contestant in Contestant::ALL {
            let account = contestant.account();
            plane
                .kubectl(&["create", "serviceaccount", account, "-n", NAMESPACE])
                .await?;
            kubeconfigs.insert(account, plane.service_account_kubeconfig(NAMESPACE, account).await?);
        }
        let mut init = Command::new(folder.join("synk"));
        init.arg("init").env("KUBECONFIG", plane.kubeconfig_path());
        process::stdout(&process::run(init, LIMIT).await?).context("synk init")?;
        // So that the garbage collector knows the new kind before anything is measured.
        plane.restart_controller_manager()?;
        Ok(Self {
            plane,
            args,
            folder,
            kubeconfigs,
        })
    }

    /// Creates an empty namespace for a contestant, and waits until it is ready.
    pub(super) async fn open(&self, contestant: Contestant, round: u32) -> Result<()> {
        let namespace = contestant.namespace(round);
        self.plane.kubectl(&["create", "namespace", &namespace]).await?;
        let accounts = Api::<DynamicObject>::namespaced_with(self.client(), &namespace, &core("ServiceAccount"));
        // Kubernetes creates this ServiceAccount last in a new namespace.
        eventually("a new namespace to be ready", LIMIT, async || {
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        Ok(())
    }

    /// The commands that a contestant runs in its turn. This also writes their input files, so that the turn does not
    /// measure that.
    pub(super) async fn commands(&self, turn: Turn) -> Result<Vec<Command>> {
        let namespace = turn.contestant.namespace(turn.round);
        let account = turn.contestant.account();
        let kubeconfig = self.kubeconfigs.get(account).context("no kubeconfig")?;
        let concurrency = format!("--concurrency={}", self.args.concurrency);
        let input = self.input(turn).await?;
        let program = |name: &str| Command::new(self.folder.join(name));
        let mut command = match turn.contestant {
            Contestant::Synk => program("synk"),
            Contestant::Bare => program("examples/bare"),
            Contestant::Kubectl => return self.kubectl(turn, kubeconfig, &input),
        };
        command.arg("--kubeconfig").arg(kubeconfig);
        if turn.contestant == Contestant::Synk {
            command.args(["apply", &namespace, "-n", &namespace, "-f"]);
        }
        command.arg(input).arg(concurrency);
        Ok(vec![command])
    }

    /// The commands of kubectl. It knows no sets, so a second command deletes the objects that the step leaves out.
    fn kubectl(&self, turn: Turn, kubeconfig: &Path, input: &Path) -> Result<Vec<Command>> {
        let namespace = turn.contestant.namespace(turn.round);
        let command = |args: &[&str], input: &Path| {
            let mut command = self.plane.kubectl_command(kubeconfig);
            command.args(args).args(["-n", &namespace, "-f"]).arg(input);
            command
        };
        let mut commands = vec![command(&["apply", "--server-side"], input)];
        if turn.step == Step::HalfPruned {
            let gone = self
                .plane
                .workdir()
                .write("gone.yaml", input::gone(&self.args, turn.step))?;
            commands.push(command(&["delete", "--wait=false"], &gone));
        }
        Ok(commands)
    }

    async fn input(&self, turn: Turn) -> Result<PathBuf> {
        let (name, text) = match turn.contestant {
            Contestant::Bare => ("requests", self.requests(turn).await?),
            _ => ("manifests.yaml", input::manifests(&self.args, turn.step)),
        };
        self.plane.workdir().write(name, text)
    }

    /// The requests of the bare client. Creates the ResourceSet that owns its objects.
    async fn requests(&self, turn: Turn) -> Result<String> {
        let namespace = turn.contestant.namespace(turn.round);
        let mut owner = Owner {
            version: namespace.clone(),
            namespace,
            uid: String::new(),
        };
        if let Some(number) = Contestant::version(turn.step) {
            owner.version = format!("{}.v{number}", owner.namespace);
            let version = json!({
                "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet",
                "metadata": {"name": owner.version, "labels": {"name": owner.namespace}},
            });
            let made = self
                .sets()
                .create(&PostParams::default(), &serde_json::from_value(version)?)
                .await?;
            owner.uid = made.uid().context("no UID")?;
        }
        Ok(input::requests(&self.args, turn.step, &owner))
    }

    /// Ends a turn: deletes the bare client's former ResourceSet, as synk does by itself.
    pub(super) async fn end(&self, turn: Turn) -> Result<()> {
        let before = Contestant::version(turn.step).filter(|number| *number > 1);
        if let (Contestant::Bare, Some(number)) = (turn.contestant, before) {
            let name = format!("{}.v{}", turn.contestant.namespace(turn.round), number - 1);
            self.sets().delete(&name, &DeleteParams::background()).await?;
        }
        Ok(())
    }

    /// Checks that a contestant left the right number of objects: one that left out work would look fast.
    pub(super) async fn check_left(&self, turn: Turn) -> Result<()> {
        let left = self.objects(turn.contestant, turn.round).await?.len();
        let expect = turn.step.left(&self.args) as usize;
        ensure!(
            left == expect,
            "{} by {}: {left} objects instead of {expect}",
            turn.step.name(),
            turn.contestant.name()
        );
        Ok(())
    }

    /// Fails if synk and the bare client wrote different objects, since the bare client would be no floor then.
    pub(super) async fn same_writes(&self, round: u32) -> Result<()> {
        let all = [Contestant::Synk, Contestant::Bare].map(|contestant| async move {
            let objects = self.objects(contestant, round).await?;
            let first = objects.into_iter().next().context("no objects")?;
            written(&first, contestant.account())
        });
        let [synk, bare] = all;
        let (synk, bare) = (synk.await?, bare.await?);
        ensure!(synk == bare, "synk wrote\n{synk:#}\nand the bare client\n{bare:#}");
        Ok(())
    }

    /// Deletes the namespaces and ResourceSets of a round.
    pub(super) async fn clear(&self, round: u32) -> Result<()> {
        let namespaces = Contestant::ALL.map(|contestant| contestant.namespace(round));
        let [a, b, c] = &namespaces;
        self.plane
            .kubectl(&["delete", "namespace", a, b, c, "--wait=false"])
            .await?;
        let all = Api::<DynamicObject>::all_with(self.client(), &core("Namespace"));
        for namespace in &namespaces {
            let gone = async || Ok(all.get_opt(namespace).await?.is_none().then_some(()));
            eventually("a namespace to be gone", LIMIT, gone).await?;
        }
        self.sets()
            .delete_collection(&DeleteParams::background(), &ListParams::default())
            .await?;
        Ok(())
    }

    async fn objects(&self, contestant: Contestant, round: u32) -> Result<Vec<DynamicObject>> {
        let namespace = contestant.namespace(round);
        let all = Api::<DynamicObject>::namespaced_with(self.client(), &namespace, &core("ConfigMap"));
        let (key, value) = LABEL;
        let params = ListParams::default().labels(&format!("{key}={value}"));
        Ok(all.list(&params).await?.items)
    }

    fn sets(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("apps.cloudrobotics.com", "v1alpha1", "ResourceSet");
        Api::all_with(self.client(), &ApiResource::from_gvk(&kind))
    }

    fn client(&self) -> Client {
        self.plane.client()
    }
}

fn core(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
}

/// The content of an object, without its owner and the times of its writes.
fn written(object: &DynamicObject, account: &str) -> Result<Value> {
    let uids = object.owner_references().iter().map(|owner| owner.uid.clone());
    let mut value = serde_json::to_value(object)?;
    for server_made in ["uid", "resourceVersion", "creationTimestamp"] {
        value["metadata"][server_made] = Value::Null;
    }
    for fields in value["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        fields["time"] = Value::Null;
    }
    let mut text = value.to_string().replace(&format!("{account}-"), "");
    for uid in uids {
        text = text.replace(&uid, "");
    }
    let mut value: Value = serde_json::from_str(&text)?;
    // The order of the fields in a text is nobody's business.
    let annotations = value["metadata"]["annotations"].as_object_mut().into_iter().flatten();
    for (_, annotation) in annotations {
        let applied = annotation.as_str().map(serde_json::from_str::<Value>);
        *annotation = applied.and_then(Result::ok).unwrap_or_default();
    }
    Ok(value)
}
