//! A provider and a consumer, of which nobody wants anything but this suite.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bindery_api::{annotations, names, v1alpha2::InformerScope};
use bindery_e2e::{
    Consumer, ControlPlane, Provider, eventually,
    wildwest::{self, Cowboys, SOON},
};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// The consumer's namespaces with objects.
pub(crate) const PLACES: [&str; 2] = ["east", "west"];
/// What the claims select by.
const LABEL: &str = "claimed";

/// A second between two renewals, and a Lease that a busy machine does not lose.
const LEASE: [&str; 6] = [
    "--lease-duration",
    "60",
    "--lease-renew-deadline",
    "40",
    "--lease-retry-period",
    "1",
];
/// Whatever the konnector does at intervals, it does every second; its heartbeat goes twice in its interval.
const INTERVALS: [&str; 2] = ["--heartbeat-interval=3s", "--provider-polling-interval=1s"];

/// Cowboys with what they need.
const TEMPLATE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: bindery-server-export-ranch
  labels: {rbac.kube-bind.io/aggregate-to-server: "true"}
rules:
  - {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
---
apiVersion: kube-bind.io/v1alpha2
kind: APIServiceExportTemplate
metadata: {name: ranch}
spec:
  scope: Namespaced
  resources: [{group: wildwest.dev, resource: cowboys, versions: [v1alpha1]}]
  permissionClaims:
    - {resource: secrets, selector: {labelSelector: {matchLabels: {claimed: "yes"}}}}
    - {resource: configmaps, selector: {labelSelector: {matchLabels: {claimed: "yes"}}}}
"#;

pub(crate) struct World {
    pub(crate) provider: Provider,
    pub(crate) consumer: Consumer,
    /// The contract namespace.
    pub(crate) contract: String,
    token: PathBuf,
}

/// What is claimed beside the cowboys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claimed {
    Secret,
    ConfigMap,
}

// === impl World ===

impl World {
    pub(crate) async fn start() -> Result<Self> {
        let provider = async {
            let plane = ControlPlane::start_audited("counts-p").await?;
            let provider = Provider::start_on(plane, &LEASE).await?;
            provider.plane.apply(TEMPLATE).await?;
            let token = provider.principal("team", &["ranch"]).await?;
            anyhow::Ok((provider, token))
        };
        let consumer = async {
            let plane = ControlPlane::start_audited("counts-c").await?;
            for place in PLACES {
                wildwest::namespace(plane.client(), place).await?;
            }
            Consumer::start_on(plane, &[&LEASE[..], &INTERVALS].concat()).await
        };
        let ((provider, token), consumer) = tokio::try_join!(provider, consumer)?;
        Ok(Self {
            contract: String::new(),
            provider,
            consumer,
            token,
        })
    }

    /// Has the server give another scope to those who bind.
    pub(crate) async fn serve(&mut self, scope: InformerScope) -> Result<()> {
        self.stop_server().await?;
        self.provider.set_flag("--consumer-scope", scope.as_str());
        self.provider.restart_server().await
    }

    /// Binds, in a contract of its own for each scope.
    pub(crate) async fn bind(&mut self, scope: InformerScope) -> Result<()> {
        let identity = format!("counts-{}", scope.as_str());
        self.contract = Provider::contract(&identity);
        let args = ["ranch", "--cluster-identity", &identity];
        self.consumer.bind(&self.provider, &self.token, &args).await.map(drop)
    }

    pub(crate) async fn unbind(&self) -> Result<()> {
        let args = ["unbind", "ranch", "--delete-objects"];
        self.consumer.bind(&self.provider, &self.token, &args).await.map(drop)
    }

    /// Waits until the provider's namespaces of a contract that has ended are gone.
    pub(crate) async fn is_gone(&self, contract: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.provider.plane.client());
        for place in PLACES.map(|place| names::provider_namespace(contract, place)) {
            eventually(format!("namespace {place} to be gone"), SOON, async || {
                Ok(namespaces.get_opt(&place).await?.is_none().then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    pub(crate) async fn stop_server(&mut self) -> Result<()> {
        self.provider.servers[0].terminate(SOON).await.map(drop)
    }

    /// Makes so many objects of each kind in each namespace, and waits until they are in sync.
    pub(crate) async fn fill(&self, objects: usize) -> Result<()> {
        let names: Vec<_> = (0..objects)
            .map(|number| format!("{}-{number}", self.contract))
            .collect();
        try_join_all(PLACES.map(|place| self.fill_place(place, &names)))
            .await
            .map(drop)
    }

    async fn fill_place(&self, place: &str, names: &[String]) -> Result<()> {
        bindery_e2e::bound::create(&self.cowboys(place), names.to_vec()).await?;
        for kind in [Claimed::Secret, Claimed::ConfigMap] {
            let ours = self.ours(kind, place);
            try_join_all(names.iter().map(|name| kind.create(&ours, name, "one"))).await?;
        }
        try_join_all(names.iter().map(|name| self.held(place, name))).await?;
        for kind in [Claimed::Secret, Claimed::ConfigMap] {
            let copies = self.copies(kind, place);
            try_join_all(names.iter().map(|name| kind.says(&copies, name, "one"))).await?;
        }
        Ok(())
    }

    /// Waits until all writes over a creation are done.
    pub(crate) async fn held(&self, place: &str, name: &str) -> Result<()> {
        let cowboys = self.cowboys(place);
        let copy = cowboys.copied(name, "ride").await?;
        let noted = |object: &DynamicObject| object.annotations().get(annotations::PROVIDER_UID) == copy.uid().as_ref();
        wildwest::wait("the copy to be noted", &cowboys.ours, name, noted)
            .await
            .map(drop)
    }

    pub(crate) fn cowboys(&self, place: &str) -> Cowboys {
        let cowboys = wildwest::resource();
        Cowboys {
            ours: Api::namespaced_with(self.consumer.plane.client(), place, &cowboys),
            copies: Api::namespaced_with(self.provider.plane.client(), &self.there(place), &cowboys),
        }
    }

    /// Claimed objects on the consumer.
    pub(crate) fn ours(&self, kind: Claimed, place: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.consumer.plane.client(), place, &kind.resource())
    }

    /// The same on the provider.
    pub(crate) fn copies(&self, kind: Claimed, place: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.provider.plane.client(), &self.there(place), &kind.resource())
    }

    /// The provider's namespace for one of the consumer.
    pub(crate) fn there(&self, place: &str) -> String {
        names::provider_namespace(&self.contract, place)
    }

    /// As whom the konnector asks the provider.
    pub(crate) fn binder(&self) -> String {
        format!("system:serviceaccount:{}:kube-binder", self.contract)
    }

    /// An error with what the programs said last.
    pub(crate) fn tails(&self, error: &anyhow::Error) -> anyhow::Error {
        let all = self.provider.servers.iter().chain(&self.consumer.konnectors);
        let tails: Vec<_> = all
            .map(|process| format!("{}:\n{}", process.name(), process.tail()))
            .collect();
        anyhow!("{error:#}\n\n{}", tails.join("\n"))
    }
}

// === impl Claimed ===

impl Claimed {
    fn resource(self) -> ApiResource {
        match self {
            Self::Secret => ApiResource::erase::<Secret>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        }
    }

    /// The content of an object that says a word.
    fn saying(self, word: &str) -> Value {
        let word = match self {
            Self::Secret => BASE64_STANDARD.encode(word),
            Self::ConfigMap => word.to_owned(),
        };
        json!({"data": {"word": word}})
    }

    /// An object that is claimed, with one word.
    pub(crate) async fn create(self, api: &Api<DynamicObject>, name: &str, word: &str) -> Result<()> {
        let mut object = DynamicObject::new(name, &self.resource()).data(self.saying(word));
        object.labels_mut().insert(LABEL.to_owned(), "yes".to_owned());
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    pub(crate) async fn change(self, api: &Api<DynamicObject>, name: &str, word: &str) -> Result<()> {
        api.patch(name, &PatchParams::default(), &Patch::Merge(self.saying(word)))
            .await?;
        Ok(())
    }

    /// Waits until an object says a word.
    pub(crate) async fn says(self, api: &Api<DynamicObject>, name: &str, word: &str) -> Result<()> {
        let data = self.saying(word)["data"].take();
        let is_so = |object: &DynamicObject| object.data["data"] == data;
        wildwest::wait(&format!("{self:?} {name} to say {word:?}"), api, name, is_so)
            .await
            .map(drop)
    }

    /// Waits until it is not there.
    pub(crate) async fn gone(self, api: &Api<DynamicObject>, name: &str) -> Result<()> {
        eventually(format!("{self:?} {name} to be gone"), SOON, async || {
            Ok(api.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }
}
