//! One cluster with the policy, accounts of three contracts, and all rights for them.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bindery_api::{
    annotations::{CLUSTER_NAMESPACE, PROJECTION_OF},
    names,
    v1alpha2::{APIServiceNamespace, APIServiceNamespaceSpec},
};
use bindery_e2e::{ControlPlane, eventually, manifests, run, wildwest};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub(crate) const SOON: Duration = Duration::from_mins(2);
/// The first is a prefix of the second, but not with a dash.
const CONTRACTS: [&str; 3] = [A, AB, LAST];
pub(crate) const A: &str = "kube-bind-a";
pub(crate) const AB: &str = "kube-bind-ab";
/// RBAC gives it `overwrite` on sheriffs.
pub(crate) const LAST: &str = "kube-bind-last";
/// Both contracts share it.
pub(crate) const SHARED: &str = "wild-west";
pub(crate) const PROBE: &str = "policy.probe is refused by kube-bind-binder, revision 4";

/// Why it could not be started is told by every case: it is not tried again.
static WORLD: OnceCell<Result<World, String>> = OnceCell::const_new();

/// One cluster for all cases, each of which uses names of its own.
pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) a: Client,
    pub(crate) ab: Client,
    pub(crate) last: Client,
}

impl World {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start("policy").await?;
        plane.apply(&manifests::folder("crds")?).await?;
        plane.apply(&manifests::folder("server")?).await?;
        for example in ["cowboys", "sheriffs"] {
            let crd = manifests::file(&format!("examples/{example}/provider/crd.yaml"))?;
            plane.apply(&crd).await?;
        }
        plane.apply(&given().to_string()).await?;
        let client = async |contract| plane.service_account_client(contract, names::KUBE_BINDER).await;
        let (a, ab, last) = (client(A).await?, client(AB).await?, client(LAST).await?);
        let world = Self { plane, a, ab, last };
        // A policy takes effect with a delay, and so do a CRD and RBAC.
        eventually("the policy to be in force", SOON, || async {
            let probed = refused(world.probe(&world.a, names::POLICY_PROBE).await, &[PROBE]).is_ok();
            let sheriff = sheriffs(&world.a)
                .create(&dry_run(), &sheriff(&named(A, "x"), None))
                .await;
            Ok((probed && sheriff.is_ok()).then_some(()))
        })
        .await?;
        Ok(world)
    }

    pub(crate) async fn probe(&self, client: &Client, name: &str) -> kube::Result<APIServiceNamespace> {
        let api = Api::namespaced(client.clone(), A);
        api.create(&dry_run(), &APIServiceNamespace::new(name, APIServiceNamespaceSpec {}))
            .await
    }

    /// Puts an object there as the provider's admin.
    pub(crate) async fn plant(&self, name: &str, mark: Option<&str>) -> Result<()> {
        let admin = sheriffs(&self.plane.client());
        admin.create(&PostParams::default(), &sheriff(name, mark)).await?;
        Ok(())
    }

    /// Puts an object there that this contract shares by choice.
    pub(crate) async fn plant_shared(&self, name: &str, contract: &str) -> Result<()> {
        let admin = sheriffs(&self.plane.client());
        let mut object = sheriff(name, Some(contract));
        let note = (format!("{PROJECTION_OF}/{contract}"), "written".to_owned());
        object.annotations_mut().extend([note]);
        admin.create(&PostParams::default(), &object).await?;
        Ok(())
    }
}

pub(crate) fn sheriffs(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource())
}

pub(crate) fn cowboys(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &wildwest::resource())
}

/// Runs a case.
pub(crate) fn case(body: impl AsyncFnOnce(&World) -> Result<()>) -> Result<()> {
    run(async {
        let started = WORLD.get_or_init(async || World::start().await.map_err(|error| format!("{error:#}")));
        body(started.await.as_ref().map_err(anyhow::Error::msg)?).await
    })
}

/// Namespaces, accounts, and all rights for the accounts but to overwrite.
fn given() -> Value {
    let all = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let role = |name: &str, group: &str, resource: &str, verbs: &[&str]| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": [resource], "verbs": verbs}],
        })
    };
    let binding = |role: &str, accounts: &[(&str, &str)]| {
        let subject =
            |(namespace, name): &(&str, &str)| json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": accounts.iter().map(subject).collect::<Vec<_>>(),
        })
    };
    let binders = CONTRACTS.map(|contract| (contract, names::KUBE_BINDER));
    let mut items: Vec<_> = CONTRACTS.map(namespace).into();
    items.extend(["kube-bind-a-ranch", "kube-bind-ab-ranch", SHARED].map(namespace));
    items.extend(binders.iter().chain(&[(A, "other")]).map(
        |(namespace, name)| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}}),
    ));
    items.push(role("all", "*", "*", &all));
    items.push(binding("all", &[binders.as_slice(), &[(A, "other")]].concat()));
    items.push(role("overwrite", "wildwest.dev", "sheriffs", &["overwrite"]));
    items.push(binding("overwrite", &[(LAST, names::KUBE_BINDER)]));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("wildwest.dev", "v1alpha1", "Sheriff"),
        "sheriffs",
    )
}

pub(crate) fn sheriff(name: &str, mark: Option<&str>) -> DynamicObject {
    marked(DynamicObject::new(name, &resource()), mark)
}

pub(crate) fn cowboy(name: &str, mark: Option<&str>) -> DynamicObject {
    marked(DynamicObject::new(name, &wildwest::resource()), mark)
}

fn marked(mut object: DynamicObject, mark: Option<&str>) -> DynamicObject {
    object.metadata.annotations = mark.map(|mark| [(CLUSTER_NAMESPACE.to_owned(), mark.to_owned())].into());
    object
}

pub(crate) fn named(contract: &str, name: &str) -> String {
    names::prefixed_name(contract, name)
}

pub(crate) fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

/// A change of the spec.
pub(crate) fn change(intent: &str) -> Patch<Value> {
    Patch::Merge(json!({"spec": {"intent": intent}}))
}

/// A change of the mark.
pub(crate) fn mark(contract: Option<&str>) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {CLUSTER_NAMESPACE: contract}}}))
}

/// That the policy, and nothing else, refused.
#[track_caller]
pub(crate) fn refused<T>(outcome: kube::Result<T>, words: &[&str]) -> Result<()> {
    let Err(kube::Error::Api(status)) = outcome else {
        bail!("not refused");
    };
    ensure!(status.code == 403, "{status:?}");
    for words in [&["ValidatingAdmissionPolicy 'kube-bind-binder'"], words].concat() {
        ensure!(status.message.contains(words), "no {words:?} in {:?}", status.message);
    }
    Ok(())
}

pub(crate) const NOT_OWN: &str = "marked as its own before and after";
