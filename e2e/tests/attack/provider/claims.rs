//! Claims that came after the bind: the provider's admin makes the export anew, with claims that nobody was asked about.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Conditions as _, annotations, conditions::ConditionStatus, v1alpha2 as api};
use bindery_e2e::{eventually, holds_for, wildwest::SOON};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{A_WHILE, BOOTS, Ranch, STIRRUPS, betray, list, resource, secret};
use crate::offers::Offer;

const RBAC: &str = "rbac.authorization.k8s.io";

fn claim(group: &str, resource: &str, selector: &Value) -> Value {
    json!({"group": group, "resource": resource, "selector": selector})
}

/// A selector of everything.
fn all() -> Value {
    json!({"labelSelector": {"matchLabels": {}}})
}

/// What no provider gets, whatever the konnector may do.
fn protected() -> Value {
    json!([
        claim("rbac.authorization.k8s.io", "roles", &all()),
        claim("rbac.authorization.k8s.io", "clusterroles", &all()),
        claim("rbac.authorization.k8s.io", "clusterrolebindings", &all()),
        claim("apiextensions.k8s.io", "customresourcedefinitions", &all()),
        claim("kube-bind.io", "apiservicebindings", &all()),
        claim("apps", "deployments", &all()),
        claim("", "pods", &all()),
        claim("", "namespaces", &all()),
    ])
}

/// What can be claimed, and was not; with paths and names that are none.
fn unasked(offer: Offer) -> Value {
    let reference = |path: &str| {
        json!({"references": [{
            "group": offer.group(), "resource": offer.name, "jsonPath": {"name": path, "namespace": path},
        }]})
    };
    json!([
        claim("", "secrets", &all()),
        claim(
            "",
            "secrets",
            &json!({"namedResources": [{"name": "../../jewels"}, {"name": "*"}, {"name": "jewels"}]})
        ),
        claim("", "configmaps", &reference("$..[?(@.spec)]")),
        claim("", "serviceaccounts", &reference("metadata.annotations['a/b']")),
    ])
}

/// Makes the export anew with these claims, in the way in which the server replaces one. An admin may be too slow for what
/// was synced to stay so, which is not what is asked here.
async fn replace(ranch: &Ranch, offer: Offer, claims: Value) -> Result<()> {
    let exports: Api<api::APIServiceExport> = Api::namespaced(ranch.provider.plane.client(), &Ranch::contract(offer));
    let old = exports.get(offer.name).await?;
    let mark = Patch::Merge(json!({"metadata": {"annotations": {annotations::REPLACE: annotations::TRUE}}}));
    exports.patch(offer.name, &PatchParams::default(), &mark).await?;
    exports.delete(offer.name, &DeleteParams::orphan()).await?;
    let mut new = api::APIServiceExport::new(offer.name, old.spec.clone());
    new.spec.permission_claims = serde_json::from_value(claims)?;
    new.metadata.labels.clone_from(&old.metadata.labels);
    eventually("the export to be made anew", SOON, || async {
        // The server may be quicker, with the claims that the template has.
        if let Some(now) = exports.get_opt(offer.name).await? {
            if now.spec.permission_claims == new.spec.permission_claims {
                return Ok(Some(()));
            }
            if now.metadata.deletion_timestamp.is_none() && now.uid() != old.uid() {
                exports.delete(offer.name, &DeleteParams::orphan()).await?;
            }
            return Ok(None);
        }
        exports.create(&PostParams::default(), &new).await?;
        Ok(Some(()))
    })
    .await
}

/// Waits until the binding says that claims are not in sync, in words that name all of these.
pub(super) async fn refused(ranch: &Ranch, offer: Offer, says: &[&str]) -> Result<()> {
    eventually(format!("binding {} to name its claims", offer.name), SOON, || async {
        let binding = ranch.binding(offer.name).await?;
        let condition = binding.condition("PermissionClaimsInSync");
        let condition = condition.with_context(|| format!("{:?}", binding.conditions()))?;
        let missing: Vec<_> = says.iter().filter(|part| !condition.message.contains(**part)).collect();
        ensure!(
            missing.is_empty() && condition.status == ConditionStatus::False,
            "does not say {missing:?}: {condition:?}"
        );
        Ok(Some(()))
    })
    .await
}

/// What of the consumer's has come to the provider, by name.
async fn taken(ranch: &Ranch, offer: Offer) -> Result<Vec<String>> {
    let secrets: Api<Secret> = Api::all(ranch.provider.plane.client());
    let all = secrets.list(&ListParams::default()).await?;
    let prefix = format!("{}-", Ranch::contract(offer));
    let here = all.iter().filter(|secret| {
        secret
            .namespace()
            .is_some_and(|namespace| namespace.starts_with(&prefix))
    });
    Ok(here
        .map(|secret| format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any()))
        .collect())
}

/// Names and versions of what a claim could reach on the consumer.
async fn picture(ranch: &Ranch, kinds: &[(&str, &str, &str)]) -> Result<BTreeMap<String, Option<String>>> {
    let mut picture = BTreeMap::new();
    for (group, kind, plural) in kinds {
        let objects: Api<DynamicObject> =
            Api::all_with(ranch.consumer.plane.client(), &resource(group, "v1", kind, plural));
        for object in objects.list(&ListParams::default()).await? {
            let key = format!(
                "{plural} {}/{}",
                object.namespace().unwrap_or_default(),
                object.name_any()
            );
            picture.insert(key, object.resource_version());
        }
    }
    Ok(picture)
}

#[test]
fn claims_that_came_after_the_bind_are_not_in_effect() -> Result<()> {
    betray(async |ranch| {
        // Another binding has given the konnector the right that is missing here: all share one account.
        ranch.consumer.plane.apply(&list(&right_on_secrets())).await?;
        ranch.bind(BOOTS, &[]).await?;
        for namespace in ["kube-system", BOOTS.name] {
            let secrets: Api<Secret> = Api::namespaced(ranch.consumer.plane.client(), namespace);
            secrets
                .create(&PostParams::default(), &secret("jewels", "Opaque", "hush"))
                .await?;
        }
        ranch.create(BOOTS, BOOTS.name, "first").await?;
        // A gift that nobody asked for stands ready.
        let gifts: Api<Secret> = Api::namespaced(ranch.provider.plane.client(), &Ranch::space(BOOTS, BOOTS.name));
        gifts
            .create(&PostParams::default(), &secret("gift", "Opaque", "horse"))
            .await?;
        replace(ranch, BOOTS, unasked(BOOTS)).await?;
        refused(ranch, BOOTS, &["secrets"]).await?;
        let own: Api<Secret> = Api::namespaced(ranch.consumer.plane.client(), BOOTS.name);
        holds_for("no Secret to go either way", 2 * A_WHILE, async || {
            let taken = taken(ranch, BOOTS).await?;
            ensure!(
                taken == [format!("{}/gift", Ranch::space(BOOTS, BOOTS.name))],
                "{taken:?}"
            );
            ensure!(own.get_opt("gift").await?.is_none());
            Ok(())
        })
        .await
    })
}

/// What a binding gives that accepts a claim on Secrets.
fn right_on_secrets() -> Vec<Value> {
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let rules = json!([{"apiGroups": [""], "resources": ["secrets", "configmaps", "serviceaccounts"], "verbs": verbs}]);
    role_of_konnector("for-another-binding", &rules)
}

/// Every right on what [`protected`] asks for.
fn too_much() -> Vec<Value> {
    let may = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
    let rules = json!([
        may(RBAC, &["roles", "clusterroles", "clusterrolebindings"]),
        may("apps", &["deployments"]),
        may("", &["pods", "namespaces"]),
        may("kube-bind.io", &["apiservicebindings"]),
    ]);
    role_of_konnector("too-much", &rules)
}

/// A ClusterRole, and its binding to the konnector.
fn role_of_konnector(name: &str, rules: &Value) -> Vec<Value> {
    let (version, meta) = (format!("{RBAC}/v1"), json!({"name": name}));
    vec![
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": meta, "rules": rules}),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "konnector", "namespace": "kube-bind"}],
        }),
    ]
}

#[test]
fn what_is_protected_is_never_claimed() -> Result<()> {
    betray(async |ranch| {
        const KINDS: [(&str, &str, &str); 4] = [
            ("rbac.authorization.k8s.io", "Role", "roles"),
            ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings"),
            ("apps", "Deployment", "deployments"),
            ("", "Pod", "pods"),
        ];
        // Somebody has given the konnector every right on what is asked for.
        ranch.consumer.plane.apply(&list(&too_much())).await?;
        ranch.bind(STIRRUPS, &[]).await?;
        ranch.create(STIRRUPS, STIRRUPS.name, "first").await?;
        let before = picture(ranch, &KINDS).await?;
        // A Role that would give its holder everything stands ready to be copied.
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "gift", "namespace": Ranch::space(STIRRUPS, STIRRUPS.name)},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
        });
        ranch.provider.plane.apply(&role.to_string()).await?;
        replace(ranch, STIRRUPS, protected()).await?;
        // One is named for all.
        refused(ranch, STIRRUPS, &["roles.rbac.authorization.k8s.io", "refused"]).await?;
        holds_for("the consumer as it was", 2 * A_WHILE, async || {
            let now = picture(ranch, &KINDS).await?;
            ensure!(now == before, "{before:?} became {now:?}");
            Ok(())
        })
        .await
    })
}
