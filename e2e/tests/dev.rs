//! `kubectl bind dev up` and `dev down` on two clusters: from nothing to an object in sync, and back to nothing.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Kubeconfig, Pair, Process, charts::SERVER, eventually, eventually_ok, process, remains::COLLECTED, run,
    wildwest::SOON,
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::json;

/// How long a command may take: both programs start, and namespaces end. By default it gives up before, after 5 minutes, and says
/// what it waits for.
const LIMIT: Duration = Duration::from_mins(6);
const NAMESPACE: &str = "kube-bind";
/// A port that a Service may open on nodes. Nobody listens there.
const NODE_PORT: u16 = 30443;
/// Kinds of which Kubernetes makes and deletes objects by itself.
const VOLATILE: [&str; 4] = [
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "componentstatuses",
];
/// How often the clusters are listed before they count as settled.
const SAME_LISTS: usize = 3;

/// Two clusters without anything, and a kubeconfig with the contexts `p` and `c`.
struct World {
    clusters: Pair,
    kubeconfig: PathBuf,
    /// The URL at which the server is reached.
    address: String,
}

/// How a command ended.
struct Ended {
    code: Option<i32>,
    text: String,
    stdout: String,
}

#[test]
fn two_empty_clusters_are_set_up_and_left_empty() -> Result<()> {
    run(async {
        let world = World::start().await?;
        world.clusters.during(SERVER, world.up_and_down()).await
    })
}

impl World {
    async fn start() -> Result<Self> {
        let clusters = Pair::start("dev").await?;
        let both = [
            ("p", clusters.provider.kubeconfig()),
            ("c", clusters.consumer.kubeconfig()),
        ];
        let both = Kubeconfig::joined(&both)?;
        Ok(Self {
            kubeconfig: clusters.provider.workdir().write("both.kubeconfig", both)?,
            address: format!("https://{}", clusters.endpoint()?),
            clusters,
        })
    }

    async fn up_and_down(&self) -> Result<()> {
        let before = self.settled().await?;
        self.refuses_before_it_writes().await?;
        ensure!(self.objects().await? == before, "something was written");
        self.comes_up_after_an_interruption().await?;
        self.is_in_sync().await?;
        self.again_changes_nothing().await?;
        self.keeps_what_others_bound().await?;
        self.goes_down(&before).await
    }

    async fn dev(&self, command: &str, args: &[&str]) -> Result<Ended> {
        let clusters = ["--provider", "p", "--consumer", "c"];
        self.run(&[&["dev", command][..], &clusters, args].concat()).await
    }

    async fn run(&self, args: &[&str]) -> Result<Ended> {
        let mut program = Process::cargo_bin("kubectl-bind")?;
        program.env("KUBECONFIG", &self.kubeconfig).args(args);
        let output = process::run(program, LIMIT).await?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Ended {
            code: output.status.code(),
            text: format!("{stdout}{}", String::from_utf8_lossy(&output.stderr)),
            stdout,
        })
    }

    async fn up(&self, more: &[&str]) -> Result<Ended> {
        self.up_at(&self.address, more).await
    }

    async fn up_at(&self, address: &str, more: &[&str]) -> Result<Ended> {
        let kubernetes = self.clusters.provider.server_url();
        let addresses = [
            "--external-address",
            address,
            "--kubernetes-address",
            kubernetes.as_str(),
        ];
        self.dev("up", &[&addresses[..], more].concat()).await
    }

    /// Every object of both clusters, by cluster, kind, namespace and name.
    async fn objects(&self) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for (cluster, plane) in [("p", &self.clusters.provider), ("c", &self.clusters.consumer)] {
            let kinds = plane
                .kubectl(&["api-resources", "--verbs=list", "--no-headers", "-o", "name"])
                .await?;
            let kinds: Vec<_> = kinds.lines().filter(|kind| !VOLATILE.contains(kind)).collect();
            let columns = "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name";
            let listed = plane
                .kubectl(&["get", &kinds.join(","), "-A", "--no-headers", "-o", columns])
                .await?;
            all.extend(listed.lines().map(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                format!("{cluster} {}", words.join(" "))
            }));
        }
        Ok(all)
    }

    /// The objects once the API servers of new clusters have made theirs. Their controllers have done so before.
    async fn settled(&self) -> Result<BTreeSet<String>> {
        let mut last = (0, BTreeSet::new());
        eventually("new clusters to settle", SOON, async || {
            let now = self.objects().await?;
            last = if last.1 == now { (last.0 + 1, now) } else { (1, now) };
            Ok((last.0 >= SAME_LISTS).then(|| last.1.clone()))
        })
        .await
    }

    async fn refuses_before_it_writes(&self) -> Result<()> {
        let unknown = self.dev("up", &[]).await?;
        unknown.says(2, &["no node of the provider has an address", "--external-address"])?;
        let unknown = self.dev("up", &["--external-address", &self.address]).await?;
        unknown.says(2, &["127.0.0.1", "--kubernetes-address"])?;
        let one = self.run(&["dev", "up", "--provider", "p", "--consumer", "p"]).await?;
        one.says(1, &["reach one cluster"])?;
        let foreign = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "wild-west"}});
        self.clusters.consumer.apply(&foreign.to_string()).await?;
        self.up(&[])
            .await?
            .says(1, &["context c has objects", "namespace/wild-west"])?;
        self.clusters
            .consumer
            .kubectl(&["delete", "namespace", "wild-west"])
            .await?;
        Ok(())
    }

    /// The first run is for a server behind a port of the nodes. It ends while it waits for one of the programs.
    async fn comes_up_after_an_interruption(&self) -> Result<()> {
        let behind_nodes = format!("https://127.0.0.1:{NODE_PORT}");
        self.up_at(&behind_nodes, &["--timeout", "1s"])
            .await?
            .says(5, &["Run this again", "created on the provider"])?;
        assert_eq!(self.service().await?, format!("NodePort {NODE_PORT}"));
        let up = self.up(&[]).await?;
        up.says(
            0,
            &[
                "apiservicebinding.kube-bind.io/cowboys created on the consumer",
                "is in sync",
                "next: kubectl",
            ],
        )?;
        assert_eq!(self.service().await?, "ClusterIP ");
        Ok(())
    }

    /// The type of the server's Service, and the port that it opens on nodes.
    async fn service(&self) -> Result<String> {
        let shown = "jsonpath={.spec.type} {.spec.ports[0].nodePort}";
        let service = ["get", "service", "bindery-server", "-n", NAMESPACE, "-o", shown];
        self.clusters.provider.kubectl(&service).await
    }

    /// A change of the consumer is on the provider, and the provider's status on the consumer.
    async fn is_in_sync(&self) -> Result<()> {
        let kind = GroupVersionKind::gvk("wildwest.dev", "v1alpha1", "Cowboy");
        let cowboys = ApiResource::from_gvk_with_plural(&kind, "cowboys");
        let ours: Api<DynamicObject> = Api::namespaced_with(self.clusters.consumer.client(), "wild-west", &cowboys);
        let object = ours.get("billy-the-kid").await?;
        let place = object.annotations().get("kube-bind.io/provider-namespace");
        let copies: Api<DynamicObject> = Api::namespaced_with(
            self.clusters.provider.client(),
            place.context("no provider namespace")?,
            &cowboys,
        );
        let params = PatchParams::default();
        let status = Patch::Merge(json!({"status": {"result": "safe"}}));
        copies.patch_status("billy-the-kid", &params, &status).await?;
        eventually_ok("the status to come down", SOON, async || {
            let object = ours.get("billy-the-kid").await?;
            ensure!(object.data["status"]["result"] == "safe", "{}", object.data);
            Ok(())
        })
        .await
    }

    async fn again_changes_nothing(&self) -> Result<()> {
        // What was given before is known from what is installed.
        let again = self.dev("up", &[]).await?;
        again.says(0, &["is in sync"])?;
        let changed = again.stdout.lines().find(|line| !line.contains(" unchanged on the "));
        ensure!(changed.is_none(), "{changed:?} in\n{}", again.text);
        Ok(())
    }

    async fn keeps_what_others_bound(&self) -> Result<()> {
        let other = json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "metadata": {"name": "mine"},
            "spec": {"kubeconfigSecretRef": {"name": "mine", "namespace": NAMESPACE, "key": "kubeconfig"}},
        });
        self.clusters.consumer.apply(&other.to_string()).await?;
        let before = self.objects().await?;
        self.dev("down", &[])
            .await?
            .says(1, &["APIServiceBinding mine", "nothing was removed"])?;
        ensure!(self.objects().await? == before, "something was removed");
        self.clusters
            .consumer
            .kubectl(&["delete", "apiservicebinding", "mine"])
            .await?;
        let other = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": "wild-west"},
        });
        self.clusters.consumer.apply(&other.to_string()).await?;
        let before = self.objects().await?;
        self.dev("down", &[])
            .await?
            .says(1, &["configmaps/mine in namespace wild-west", "nothing was removed"])?;
        ensure!(self.objects().await? == before, "something was removed");
        self.clusters
            .consumer
            .kubectl(&["delete", "configmap", "mine", "-n", "wild-west"])
            .await?;
        Ok(())
    }

    async fn goes_down(&self, before: &BTreeSet<String>) -> Result<()> {
        self.dev("down", &[])
            .await?
            .says(0, &["deployment.apps/bindery-server deleted on the provider"])?;
        eventually_ok("both clusters to be as before", COLLECTED, async || {
            let after = self.objects().await?;
            let (left, lost): (Vec<_>, Vec<_>) =
                (after.difference(before).collect(), before.difference(&after).collect());
            ensure!(left.is_empty() && lost.is_empty(), "left: {left:#?}; lost: {lost:#?}");
            Ok(())
        })
        .await?;
        let nothing = self.dev("down", &[]).await?;
        nothing.says(0, &[])?;
        ensure!(nothing.stdout.is_empty(), "{}", nothing.text);
        Ok(())
    }
}

impl Ended {
    fn says(&self, code: i32, parts: &[&str]) -> Result<()> {
        ensure!(
            self.code == Some(code),
            "exit code {:?} instead of {code}:\n{}",
            self.code,
            self.text
        );
        for part in parts {
            ensure!(self.text.contains(part), "{part:?} is missing in:\n{}", self.text);
        }
        Ok(())
    }
}
