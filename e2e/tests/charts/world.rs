//! A provider and a consumer without any program of the project, and Helm to install these.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Conditions as _, v1alpha2 as api};
use bindery_e2e::{
    ControlPlane, Pair, Provider, TLS_SECRET,
    charts::{Helm, Release},
    eventually_ok,
    offer::Offer,
    process::{self, Programs},
    wildwest::SOON,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, ObjectMeta, Patch, PatchParams},
};
use serde_json::json;

pub(crate) const LIMIT: Duration = Duration::from_mins(2);
/// The namespace of the consumer's objects.
pub(crate) const NAMESPACE: &str = "west";

pub(crate) struct World {
    pub(crate) helm: Helm,
    pub(crate) clusters: Pair,
    /// The URL at which this machine reaches the server's Service.
    pub(crate) address: String,
}

/// What is in sync: the widgets of one binding and their copies.
pub(crate) struct Widgets {
    pub(crate) ours: Api<DynamicObject>,
    pub(crate) copies: Api<DynamicObject>,
    offer: Offer,
    /// The objects that nobody touches, as they were at first.
    kept: Vec<Version>,
}

/// Side, name, UID and version of an object.
type Version = [String; 4];

// === impl World ===

impl World {
    pub(crate) async fn start(name: &str) -> Result<Self> {
        let helm = Helm::get().await?;
        let clusters = Pair::start(name).await?;
        Ok(Self {
            helm,
            address: format!("https://{}", clusters.endpoint()?),
            clusters,
        })
    }

    /// Runs a test while both clusters run Pods. Those of the consumer reach the provider, and the Service of this release of the
    /// server.
    pub(crate) fn during(
        &self,
        server: Release<'_>,
        test: impl Future<Output = Result<()>>,
    ) -> impl Future<Output = Result<()>> {
        self.clusters.during(server, test)
    }

    /// Runs a command of Helm on a cluster and returns what it prints, or the error that it ends with.
    pub(crate) async fn helm(&self, plane: &ControlPlane, args: &[&str]) -> Result<String> {
        self.helm.run(plane, args).await
    }

    /// Runs `helm install` or `helm upgrade` of a release.
    pub(crate) async fn apply(
        &self,
        plane: &ControlPlane,
        command: &str,
        release: Release<'_>,
        args: &[&str],
    ) -> Result<String> {
        self.helm.apply(plane, command, release, args).await
    }

    /// Installs the server with default values but for its addresses, so that it makes its certificates.
    pub(crate) async fn install_server(&self, release: Release<'_>, args: &[&str]) -> Result<String> {
        let values = self.server_values();
        let own = ["--create-namespace", "--set", values.as_str()];
        self.apply(&self.clusters.provider, "install", release, &[&own[..], args].concat())
            .await
    }

    /// The values of the server in these tests: the addresses at which this machine reaches it and its cluster.
    pub(crate) fn server_values(&self) -> String {
        format!(
            "grpc.address={},kubernetes.address={}",
            self.address,
            self.clusters.provider.server_url()
        )
    }

    /// Makes the namespace of the server, and in it Secret `grpc` with a certificate of the provider's CA.
    pub(crate) async fn give_certificate(&self, namespace: &str) -> Result<()> {
        make_namespace(&self.clusters.provider, namespace).await?;
        let identity = self.clusters.provider.authority().server(&["127.0.0.1", "localhost"])?;
        let files = [
            ("tls.crt", identity.certificate),
            ("tls.key", identity.key),
            ("ca.crt", self.clusters.provider.ca_pem()),
        ];
        let secret = Secret {
            metadata: named("grpc"),
            string_data: Some(files.map(|(name, content)| (name.to_owned(), content)).into()),
            ..Secret::default()
        };
        let secrets = Api::<Secret>::namespaced(self.clusters.provider.client(), namespace);
        secrets
            .patch("grpc", &applied(), &Patch::Apply(typed(&secret, "v1", "Secret")?))
            .await?;
        Ok(())
    }

    /// Runs `kubectl bind` on the consumer and returns what it prints, or the error that it ends with.
    pub(crate) async fn kubectl_bind(&self, args: &[&str]) -> Result<String> {
        let mut command = Programs::default().command("kubectl-bind")?;
        command
            .env("KUBECONFIG", self.clusters.consumer.kubeconfig_path())
            .args(args);
        process::stdout(&process::run(command, LIMIT).await?)
    }

    /// Offers an API, and lets account `default/default` bind it. The server runs.
    pub(crate) async fn offer(&self, offer: Offer) -> Result<()> {
        let mut items = offer.manifests();
        items.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("bind-{}", offer.name)},
            "rules": [{
                "apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"],
                "resourceNames": [offer.name], "verbs": ["bind"],
            }],
        }));
        items.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("bind-{}", offer.name)},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("bind-{}", offer.name),
            },
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
        }));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        // An API server serves what a chart defines a moment after Helm has ended.
        eventually_ok(format!("offer {} to be applied", offer.name), SOON, async || {
            self.clusters.provider.apply(&list.to_string()).await
        })
        .await?;
        let templates: Api<api::APIServiceExportTemplate> = Api::all(self.clusters.provider.client());
        eventually_ok(format!("template {} to be ready", offer.name), SOON, async || {
            let template = templates.get(offer.name).await?;
            ensure!(template.is_condition_true("Ready"), "{:?}", template.conditions());
            Ok(())
        })
        .await
    }

    /// Binds a template with a program of the caller's choice, as `default/default`, whose rights are known a moment after they
    /// were given.
    pub(crate) async fn bind(&self, programs: &Programs, template: &str, args: &[&str]) -> Result<String> {
        let token = self.token().await?;
        let authorities = self.authorities().await?;
        eventually_ok(format!("{template} to be bound"), SOON, async || {
            let mut command = programs.command("kubectl-bind")?;
            command.env("KUBECONFIG", self.clusters.consumer.kubeconfig_path());
            command.args([template, "--server", &self.address]).args(args);
            command.arg("--certificate-authority").arg(&authorities);
            command.arg("--token-file").arg(&token);
            process::stdout(&process::run(command, LIMIT).await?)
        })
        .await
    }

    /// The CAs that may have signed the server's certificate: that of the test, and that of a server that made its own.
    async fn authorities(&self) -> Result<PathBuf> {
        let secrets = Api::<Secret>::all(self.clusters.provider.client());
        let made = ListParams::default().fields(&format!("metadata.name={TLS_SECRET}"));
        let mut all = self.clusters.provider.ca_pem();
        for secret in secrets.list(&made).await? {
            let ca = secret.data.and_then(|mut data| data.remove("ca.crt"));
            all.push_str(std::str::from_utf8(
                &ca.context("a Secret of the server without its CA")?.0,
            )?);
        }
        self.clusters.provider.workdir().write("authorities.crt", all)
    }

    async fn token(&self) -> Result<PathBuf> {
        let token = eventually_ok("a token of default/default", SOON, async || {
            self.clusters
                .provider
                .token_for("default", "default", &[&self.address], 3600)
                .await
        })
        .await?;
        self.clusters.provider.workdir().write("binder.token", token)
    }

    /// The widgets of an offer that is bound under an identity; by default that of the consumer.
    pub(crate) async fn widgets(&self, offer: Offer, identity: Option<&str>) -> Result<Widgets> {
        let own = Api::<Namespace>::all(self.clusters.consumer.client())
            .get("kube-system")
            .await?;
        let own = own.uid().context("a namespace has a UID")?;
        let contract = Provider::contract(identity.unwrap_or(&own));
        let namespace = bindery_api::names::provider_namespace(&contract, NAMESPACE);
        Ok(Widgets {
            ours: Api::namespaced_with(self.clusters.consumer.client(), NAMESPACE, &offer.resource()),
            copies: Api::namespaced_with(self.clusters.provider.client(), &namespace, &offer.resource()),
            offer,
            kept: Vec::new(),
        })
    }

    /// What is left of a release besides what the charts keep: names of objects that carry its mark, and of its Pods.
    pub(crate) async fn left(&self, plane: &ControlPlane, release: Release<'_>) -> Result<Vec<String>> {
        let kinds = "serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,deployments,replicasets,pods,services,\
                     configmaps,secrets,poddisruptionbudgets,networkpolicies,validatingadmissionpolicies,\
                     validatingadmissionpolicybindings";
        let all = plane.kubectl(&["get", kinds, "-A", "-o", "json"]).await?;
        let all: serde_json::Value = serde_json::from_str(&all)?;
        let items = all["items"].as_array().into_iter().flatten();
        let of_release = items.filter(|item| {
            let metadata = &item["metadata"];
            let annotations = &metadata["annotations"];
            let is_marked = annotations["meta.helm.sh/release-name"] == release.name
                && annotations["meta.helm.sh/release-namespace"] == release.namespace;
            let is_pod = item["kind"] == "Pod"
                && metadata["namespace"] == release.namespace
                && metadata["labels"]["app.kubernetes.io/name"] == release.name;
            is_marked || is_pod
        });
        let name = |item: &serde_json::Value| {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            format!("{} {}", text(&item["kind"]), text(&item["metadata"]["name"]))
        };
        let mut names: Vec<_> = of_release.map(name).collect();
        names.sort();
        Ok(names)
    }
}

// === impl Widgets ===

impl Widgets {
    /// Creates an object, and waits until it is in sync both ways.
    pub(crate) async fn create(&self, name: &str) -> Result<()> {
        self.ours
            .create(&kube::api::PostParams::default(), &self.offer.widget(name, "red"))
            .await?;
        self.is_copied(name, "red").await?;
        self.report(name, "done").await
    }

    /// Changes an object of the consumer.
    pub(crate) async fn set(&self, name: &str, color: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"color": color}}));
        self.ours.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Changes an object, and waits until the change is in sync both ways.
    pub(crate) async fn change(&self, name: &str, color: &str) -> Result<()> {
        self.set(name, color).await?;
        self.is_copied(name, color).await?;
        self.report(name, color).await
    }

    /// Waits until the copy of an object has a color.
    pub(crate) async fn is_copied(&self, name: &str, color: &str) -> Result<()> {
        eventually_ok(format!("the copy of {name} to be {color}"), SOON, async || {
            let copy = self.copies.get(name).await?;
            ensure!(copy.data["spec"]["color"] == color, "{}", copy.data);
            Ok(())
        })
        .await
    }

    /// Sets the status on the provider, and waits until the consumer has it.
    async fn report(&self, name: &str, color: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"status": {"color": color}}));
        self.copies.patch_status(name, &PatchParams::default(), &patch).await?;
        eventually_ok(format!("{name} to have the status {color}"), SOON, async || {
            let ours = self.ours.get(name).await?;
            ensure!(ours.data["status"]["color"] == color, "{}", ours.data);
            Ok(())
        })
        .await
    }

    /// Creates objects that nobody touches from then on, and remembers both sides of them.
    pub(crate) async fn keep(&mut self, names: &[&str]) -> Result<()> {
        for name in names {
            self.create(name).await?;
        }
        self.kept = self.versions(names).await?;
        Ok(())
    }

    /// Fails unless the kept objects are as they were at first: none lost, made anew or written, on either side.
    pub(crate) async fn are_as_before(&self, after: &str) -> Result<()> {
        ensure!(!self.kept.is_empty(), "no object is kept");
        let names: BTreeSet<_> = self.kept.iter().map(|[_, name, ..]| name.as_str()).collect();
        let now = self.versions(&Vec::from_iter(names)).await?;
        ensure!(
            self.kept == now,
            "after {after}; at first:\n{:?}\nnow:\n{now:?}",
            self.kept
        );
        Ok(())
    }

    /// As [`Self::are_as_before`], once a new object has come in sync. Both programs reconcile then: a program is ready before it
    /// leads.
    pub(crate) async fn are_kept(&self, step: &str) -> Result<()> {
        self.create(&format!("after-{step}")).await?;
        self.are_as_before(step).await
    }

    async fn versions(&self, names: &[&str]) -> Result<Vec<Version>> {
        let mut versions = Vec::new();
        for (side, api) in [("ours", &self.ours), ("copy", &self.copies)] {
            for name in names {
                let object = api.get(name).await?;
                let uid = object.uid().context("an object has a UID")?;
                let version = object.resource_version().context("an object has a version")?;
                versions.push([side.to_owned(), object.name_any(), uid, version]);
            }
        }
        Ok(versions)
    }
}

pub(crate) async fn make_namespace(plane: &ControlPlane, name: &str) -> Result<()> {
    let namespace = Namespace {
        metadata: named(name),
        ..Namespace::default()
    };
    let patch = Patch::Apply(typed(&namespace, "v1", "Namespace")?);
    Api::<Namespace>::all(plane.client())
        .patch(name, &applied(), &patch)
        .await?;
    Ok(())
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn applied() -> PatchParams {
    PatchParams::apply("charts-suite")
}

fn typed(object: &impl serde::Serialize, version: &str, kind: &str) -> Result<serde_json::Value> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = json!(version);
    value["kind"] = json!(kind);
    Ok(value)
}
