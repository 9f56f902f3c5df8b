//! A CRD that is on the consumer before the binding, with objects.

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{
    Condition, annotations, names,
    v1alpha2::{APIServiceBinding, APIServiceBindingSpec, ClusterSecretKeyRef},
};
use bindery_e2e::{NAMESPACE, eventually_ok, holds_for, run, wildwest::SOON};
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cells::{APART, TAKEN},
    side::{A_WHILE, Side, shown},
    world::{self, World},
};

const FOREIGN: &str = "ForeignCustomResourceDefinition";
const OLD: &str = "there-before";

pub(crate) fn with_its_objects() -> Result<()> {
    check(async |world| {
        let side = world.side(&TAKEN)?;
        installed(world, &side, side.cell.crd(side.cell.consumer_scope())).await?;
        let old = side.create(&side.cell.object(OLD, "ride")).await?;
        by_hand(world, &side).await?;
        refused(&side, FOREIGN, &["kubectl annotate crd", annotations::ADOPT_BY]).await?;
        // Somebody else's offer is none.
        offer(&side, Some("another")).await?;
        let crd = annotated(&side, "another").await?;
        holds_for("the CRD to be left alone", A_WHILE, async || {
            let now = crds(&side).get(&side.cell.crd_name()).await?;
            ensure!(
                now.metadata.owner_references == crd.metadata.owner_references,
                "{:?}",
                now.metadata
            );
            let now = side.ours().get(OLD).await?;
            ensure!(
                now.resource_version() == old.resource_version(),
                "written: {}",
                shown(&now)
            );
            ensure!(side.copies().get_opt(OLD).await?.is_none(), "it has a copy");
            Ok(())
        })
        .await?;

        offer(&side, Some(side.cell.name)).await?;
        side.condition("Ready", Condition::is_true).await?;
        let pair = side.linked(OLD).await.context("what was there before")?;
        ensure!(pair.ours.uid() == old.uid(), "made anew: {}", shown(&pair.ours));
        ensure!(pair.copy.data["spec"] == old.data["spec"], "{}", shown(&pair.copy));
        side.report(OLD, "seen").await?;
        side.reported(OLD, "seen").await?;
        // And the other way round.
        let source = side.put(&side.fresh("provided", "ride")).await?;
        side.adopted("provided", &source).await?;
        let crd = crds(&side).get(&side.cell.crd_name()).await?;
        let is_ours = crd
            .owner_references()
            .iter()
            .any(|owner| owner.kind == "APIServiceBinding" && owner.name == side.cell.name);
        ensure!(is_ours, "{:?}", crd.metadata);
        Ok(())
    })
}

pub(crate) fn of_another_schema() -> Result<()> {
    check(async |world| {
        let side = world.side(&APART)?;
        let mut crd = side.cell.crd(side.cell.consumer_scope());
        let intent = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/intent";
        *crd.pointer_mut(intent).context("no such field")? = json!({"type": "integer"});
        installed(world, &side, crd).await?;
        let mut object = side.cell.object(OLD, "");
        object.data["spec"]["intent"] = json!(7);
        let old = side.create(&object).await?;
        by_hand(world, &side).await?;
        refused(&side, FOREIGN, &[annotations::ADOPT_BY]).await?;
        offer(&side, Some(side.cell.name)).await?;
        refused(&side, "SchemasDisagree", &["intent", &side.cell.crd_name()]).await?;
        holds_for("all to be left alone", A_WHILE, async || {
            let crd = crds(&side).get(&side.cell.crd_name()).await?;
            ensure!(crd.owner_references().is_empty(), "{:?}", crd.metadata);
            let now = side.ours().get(OLD).await?;
            ensure!(
                now.resource_version() == old.resource_version(),
                "written: {}",
                shown(&now)
            );
            ensure!(side.copies().get_opt(OLD).await?.is_none(), "it has a copy");
            Ok(())
        })
        .await
    })
}

pub(crate) fn without_the_users_word() -> Result<()> {
    check(async |world| {
        let plane = &world.open.plane;
        let name = "sheriffs.policy.example.dev";
        let text = TAKEN.crd(bindery_api::v1alpha2::Scope::Namespaced).to_string();
        let text = text
            .replace(&TAKEN.group(), "policy.example.dev")
            .replace("riders", "sheriffs");
        plane.apply(&text).await?;
        let konnector = plane.service_account_client(NAMESPACE, names::KONNECTOR).await?;
        let (admin, konnector): (Api<CustomResourceDefinition>, Api<CustomResourceDefinition>) =
            (Api::all(plane.client()), Api::all(konnector));
        let take = async |binding: &str| {
            let owner = json!([{
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "name": binding, "uid": "u",
                "controller": true,
            }]);
            let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owner}}));
            konnector.patch(name, &PatchParams::default().dry_run(), &patch).await
        };
        for offered in [None, Some("another")] {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::ADOPT_BY: offered}}}));
            admin.patch(name, &PatchParams::default(), &patch).await?;
            eventually_ok("the policy to refuse it", SOON, async || match take("west").await {
                Err(kube::Error::Api(status)) if status.message.contains("kube-bind-konnector") => Ok(()),
                outcome => bail!("offered to {offered:?}: {outcome:?}"),
            })
            .await?;
        }
        // Nor may it offer one to itself.
        let both = json!({"metadata": {
            "annotations": {annotations::ADOPT_BY: "west"},
            "ownerReferences": [{
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "name": "west", "uid": "u",
                "controller": true,
            }],
        }});
        let own = konnector
            .patch(name, &PatchParams::default().dry_run(), &Patch::Merge(both))
            .await;
        ensure!(own.is_err(), "the konnector gave it to itself");
        take("another").await.context("what the user offered")?;
        Ok(())
    })
}

fn check(body: impl AsyncFnOnce(&'static World) -> Result<()>) -> Result<()> {
    run(async {
        let world = world::get().await?;
        body(world).await.map_err(|error| world.tails(&error))
    })
}

fn crds(side: &Side) -> Api<CustomResourceDefinition> {
    Api::all(side.client.clone())
}

/// The consumer's admin installs a CRD.
async fn installed(world: &World, side: &Side, crd: Value) -> Result<()> {
    world.open.plane.apply(&crd.to_string()).await?;
    side.namespace(side.cell.name).await
}

/// Offers the CRD to a binding.
async fn offer(side: &Side, binding: Option<&str>) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::ADOPT_BY: binding}}}));
    let name = side.cell.crd_name();
    crds(side).patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the CRD says so.
async fn annotated(side: &Side, binding: &str) -> Result<CustomResourceDefinition> {
    let crd = crds(side).get(&side.cell.crd_name()).await?;
    let offered = crd.annotations().get(annotations::ADOPT_BY);
    ensure!(offered.is_some_and(|offered| offered == binding), "{:?}", crd.metadata);
    Ok(crd)
}

/// Waits until the binding says why the CRD is not taken.
async fn refused(side: &Side, reason: &str, says: &[&str]) -> Result<()> {
    let condition = side
        .condition("SchemaInSync", |condition| condition.reason == reason)
        .await?;
    for words in says {
        ensure!(
            condition.message.contains(words),
            "no {words:?} in {:?}",
            condition.message
        );
    }
    Ok(())
}

/// Binds by manifests: Secret, rights and binding, as GitOps would.
async fn by_hand(world: &World, side: &Side) -> Result<()> {
    side.prepare().await?;
    let secret_name = names::provider_kubeconfig_secret(side.cell.name);
    let mut secret = Secret::default();
    secret.metadata.name = Some(secret_name.clone());
    secret.data = Some([(names::KUBECONFIG_KEY.to_owned(), side.response().await?)].into());
    Api::<Secret>::namespaced(side.client.clone(), NAMESPACE)
        .create(&PostParams::default(), &secret)
        .await?;
    world.open.plane.apply(&rights(side).to_string()).await?;
    let spec = APIServiceBindingSpec {
        kubeconfig_secret_ref: ClusterSecretKeyRef {
            name: secret_name,
            key: names::KUBECONFIG_KEY.to_owned(),
            namespace: NAMESPACE.to_owned(),
        },
        ..APIServiceBindingSpec::default()
    };
    let binding = APIServiceBinding::new(side.cell.name, spec);
    side.bindings().create(&PostParams::default(), &binding).await?;
    Ok(())
}

fn rights(side: &Side) -> Value {
    let (name, group) = (names::konnector_cluster_role(side.cell.name), side.cell.group());
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [
                {
                    "apiGroups": [group], "resources": ["riders"],
                    "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
                },
                {"apiGroups": [group], "resources": ["riders/status"], "verbs": ["get", "update", "patch"]},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": names::KONNECTOR}],
        },
    ]})
}
