//! The contract of a side, its binding, and the namespaces of both clusters.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Condition, Conditions as _, labels, names,
    v1alpha2::{
        APIServiceBinding, APIServiceExportTemplate, APIServiceNamespace, BindableResourcesRequest,
        BindableResourcesRequestSpec, ClusterIdentity, NameRef, Phase,
    },
};
use bindery_e2e::{Consumer, NAMESPACE, eventually_ok, wildwest::SOON};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::Side;
use crate::world::OWNER;

impl Side {
    /// The provider asks in its owner's name for the contract, the export and the namespaces, before the consumer comes.
    pub(crate) async fn prepare(&self) -> Result<()> {
        self.offered().await?;
        let cluster_identity = ClusterIdentity {
            identity: self.identity.clone(),
            pretty_name: None,
        };
        let spec = BindableResourcesRequestSpec {
            template_ref: Some(NameRef {
                name: self.cell.name.to_owned(),
            }),
            cluster_identity,
            author: OWNER.to_owned(),
            ..BindableResourcesRequestSpec::default()
        };
        let request = BindableResourcesRequest::new(self.cell.name, spec);
        let requests: Api<BindableResourcesRequest> = Api::namespaced(self.provider.plane.client(), NAMESPACE);
        requests.create(&PostParams::default(), &request).await?;
        eventually_ok(format!("request {} to succeed", self.cell.name), SOON, async || {
            let status = requests.get(self.cell.name).await?.status.context("no status")?;
            ensure!(status.phase == Phase::Succeeded, "{status:?}");
            ensure!(status.namespace.as_ref() == Some(&self.contract), "{status:?}");
            Ok(())
        })
        .await
    }

    /// The kubeconfig that the provider was given with it.
    pub(crate) async fn response(&self) -> Result<ByteString> {
        let secrets: Api<Secret> = Api::namespaced(self.provider.plane.client(), NAMESPACE);
        let secret = secrets.get(&names::response_secret(self.cell.name)).await?;
        let kubeconfig = secret.data.unwrap_or_default().remove(names::KUBECONFIG_KEY);
        kubeconfig.context("no kubeconfig in the response")
    }

    /// Waits until the template can be bound.
    async fn offered(&self) -> Result<()> {
        let templates: Api<APIServiceExportTemplate> = Api::all(self.provider.plane.client());
        eventually_ok(format!("template {} to be ready", self.cell.name), SOON, async || {
            let template = templates.get(self.cell.name).await?;
            ensure!(template.is_condition_true("Ready"), "{:?}", template.conditions());
            Ok(())
        })
        .await
    }

    /// Binds, and waits until it is done.
    pub(crate) async fn bind(&self, consumer: &Consumer) -> Result<()> {
        self.offered().await?;
        let args = [self.cell.name, "--cluster-identity", &self.identity];
        consumer.bind(self.provider, &self.token, &args).await.map(drop)
    }

    /// Binds with an object in sync, whose namespace is there.
    pub(crate) async fn begin(&self, consumer: &Consumer) -> Result<()> {
        if self.cell.is_namespaced() {
            self.namespace(self.cell.name).await?;
        }
        self.bind(consumer).await?;
        self.made("warm", "warm").await.map(drop)
    }

    pub(crate) fn bindings(&self) -> Api<APIServiceBinding> {
        Api::all(self.client.clone())
    }

    /// Annotates the binding, or takes the annotation off it.
    pub(crate) async fn annotate_binding(&self, key: &str, value: Option<&str>) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        let bindings = self.bindings();
        let patched = bindings.patch(self.cell.name, &PatchParams::default(), &patch).await;
        patched.map(drop).context("cannot annotate the binding")
    }

    /// Waits until a condition of the binding is as wanted.
    pub(crate) async fn condition(&self, type_: &str, is_so: impl Fn(&Condition) -> bool) -> Result<Condition> {
        eventually_ok(format!("{type_} of {}", self.cell.name), SOON, async || {
            let binding = self.bindings().get(self.cell.name).await?;
            let condition = binding.condition(type_).cloned().context("there is none")?;
            ensure!(is_so(&condition), "{condition:?}");
            Ok(condition)
        })
        .await
    }

    /// Makes a namespace on the consumer, unless it is there.
    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        let apply = PatchParams::apply("adoption").force();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let namespaces = self.namespaces();
        namespaces.patch(name, &apply, &Patch::Apply(namespace)).await?;
        Ok(())
    }

    /// The consumer's namespaces.
    pub(crate) fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    /// The provider maps a namespace of the consumer, and says that it is to stay although the consumer does not have it.
    pub(crate) async fn mapped(&self, namespace: &str) -> Result<()> {
        let mut request = APIServiceNamespace::default();
        request.metadata.name = Some(namespace.to_owned());
        let by_provider = (labels::OWNER.to_owned(), "provider".to_owned());
        request.labels_mut().extend([by_provider]);
        let client = self.provider.plane.client();
        let requests = Api::namespaced(client, &self.contract);
        requests.create(&PostParams::default(), &request).await?;
        Ok(())
    }
}
