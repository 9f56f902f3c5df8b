//! What the server does for permission claims: which it takes, the rights it gives for them and where, which namespaces it
//! makes for them, and when those go.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Conditions as _, annotations, labels, names,
    v1alpha2::{
        APIServiceExport, APIServiceExportTemplate, APIServiceNamespace, APIServiceNamespaceSpec,
        APIServiceNamespaceStatus,
    },
};
use bindery_e2e::{Provider, call::wish, eventually_ok, lease, rights, run, wildwest::SOON};
use bindery_sdk::Client;
use k8s_openapi::api::{
    authorization::v1::ResourceAttributes,
    core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Secret},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(2);
/// A namespace that is kept is looked at anew within a minute, and for each look that an event brings, twice as late.
const LOOKED_AT_ANEW: Duration = Duration::from_mins(5);
/// What an APIServiceNamespace says whose claims wait for the admin of the namespace that would be shared.
const UNLABELLED: &str = "SharedNamespaceNotLabelled";
const FLAGS: [&str; 4] = [
    "--claimable-resources=safes.example.dev,banks.example.dev",
    "--claimable-resources=ghosts.example.dev",
    "--max-namespaces-per-contract",
    "3",
];

fn crd(plural: &str, kind: &str, scope: &str, exported: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.dev"), "labels": {labels::EXPORTED: exported}},
        "spec": {
            "group": "example.dev", "scope": scope,
            "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    })
}

fn binder(contract: &str) -> String {
    format!("system:serviceaccount:{contract}:{}", names::KUBE_BINDER)
}

fn right(verb: &str, resource: &str, namespace: &str) -> ResourceAttributes {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        ..ResourceAttributes::default()
    }
}

fn template(name: &str, (plural, scope): (&str, &str), claims: &[&str]) -> Value {
    let claim = |resource: &&str| {
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        json!({"group": group, "resource": resource, "selector": {"labelSelector": {"matchLabels": {"app": "x"}}}})
    };
    json!({
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate", "metadata": {"name": name},
        "spec": {
            "scope": scope, "isolation": if scope == "Cluster" { "None" } else { "Prefixed" },
            "resources": [{"group": "example.dev", "resource": plural, "versions": ["v1"]}],
            "permissionClaims": claims.iter().map(claim).collect::<Vec<_>>(),
        },
    })
}

fn held(plurals: &[&str]) -> Value {
    let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("held-{}", plurals.join("-")), "labels": {labels::AGGREGATE_TO_SERVER: "true"}},
        "rules": [{"apiGroups": ["example.dev"], "resources": plurals, "verbs": verbs}],
    })
}

fn offers() -> Value {
    let (narrows, wides) = (("narrows", "Namespaced"), ("wides", "Cluster"));
    json!({"apiVersion": "v1", "kind": "List", "items": [
        crd("narrows", "Narrow", "Namespaced", "true"),
        crd("wides", "Wide", "Cluster", "true"),
        crd("safes", "Safe", "Namespaced", "false"),
        crd("banks", "Bank", "Cluster", "false"),
        held(&["narrows", "wides"]),
        template("mapped", narrows, &["secrets", "configmaps", "serviceaccounts", "safes.example.dev"]),
        template("shared", wides, &["secrets"]),
        template("wide", narrows, &["secrets", "configmaps"]),
        template("of-kubernetes", narrows, &["pods"]),
        template("not-allowed", narrows, &["horses.example.dev"]),
        template("cluster-scoped", narrows, &["banks.example.dev"]),
        template("not-served", narrows, &["ghosts.example.dev"]),
        template("own", narrows, &["narrows.example.dev"]),
    ]})
}

struct World {
    provider: Provider,
    client: Client,
}

impl World {
    async fn start(name: &str, more: &[&str]) -> Result<Self> {
        let flags = [&lease::PATIENT[..], &FLAGS[..], more].concat();
        let provider = Provider::start_with(name, &flags).await?;
        provider.plane.apply(&offers().to_string()).await?;
        let token = std::fs::read_to_string(provider.principal("team", &["mapped", "shared", "wide"]).await?)?;
        let builder = Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        Ok(Self {
            client: builder.token(token).build()?,
            provider,
        })
    }

    fn all<K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>>(&self) -> Api<K> {
        Api::all(self.provider.plane.client())
    }

    fn within<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.provider.plane.client(), namespace)
    }

    /// Waits until a template says that, in words that hold these.
    async fn says(&self, template: &str, reason: &str, words: &str) -> Result<()> {
        let templates: Api<APIServiceExportTemplate> = self.all();
        eventually_ok(format!("template {template} to say {reason}"), SOON, async || {
            let found = templates.get(template).await?;
            let ready = found.condition("Ready").context("no condition")?;
            ensure!(ready.reason == reason && ready.message.contains(words), "{ready:?}");
            Ok(())
        })
        .await
    }

    /// Binds, and gives the contract.
    async fn bind(&self, template: &str, identity: &str) -> Result<String> {
        let bound = self
            .client
            .bind_by_request(wish(template, template, identity), PATIENCE, |_| ())
            .await;
        bound.with_context(|| format!("bind {template}"))?;
        Ok(Provider::contract(identity))
    }

    /// Asks for a provider namespace as a konnector does.
    async fn ask(&self, contract: &str, name: &str) -> Result<()> {
        let plane = &self.provider.plane;
        let binder = plane.service_account_client(contract, names::KUBE_BINDER).await?;
        let wanted = APIServiceNamespace::new(name, APIServiceNamespaceSpec {});
        let api: Api<APIServiceNamespace> = Api::namespaced(binder, contract);
        api.create(&PostParams::default(), &wanted).await?;
        Ok(())
    }

    /// Waits until the server says so.
    async fn told(
        &self,
        contract: &str,
        name: &str,
        reason: &str,
        is_it: impl Fn(&APIServiceNamespaceStatus) -> bool,
    ) -> Result<APIServiceNamespaceStatus> {
        let api: Api<APIServiceNamespace> = self.within(contract);
        eventually_ok(format!("{name} of {contract} to be {reason:?}"), SOON, async || {
            let status = api.get(name).await?.status.context("no status")?;
            let ready = bindery_api::conditions::get(&status.conditions, "Ready").context("no condition")?;
            ensure!(ready.reason == reason && is_it(&status), "{status:?}");
            Ok(status)
        })
        .await
    }

    async fn mapped(&self, contract: &str, name: &str) -> Result<String> {
        self.ask(contract, name).await?;
        let status = self
            .told(contract, name, "", |status| status.namespace.is_some())
            .await?;
        status.namespace.context("no namespace")
    }

    async fn give_back(&self, contract: &str, name: &str) -> Result<()> {
        let api: Api<APIServiceNamespace> = self.within(contract);
        api.delete(name, &DeleteParams::default()).await?;
        self.ended(contract, name).await
    }

    async fn ended(&self, contract: &str, name: &str) -> Result<()> {
        let api: Api<APIServiceNamespace> = self.within(contract);
        eventually_ok(format!("{name} of {contract} to be gone"), SOON, async || {
            let left = api.get_opt(name).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await
    }

    /// Whether a contract may do that with a resource in a namespace, or, with an empty one, everywhere.
    async fn may(&self, contract: &str, verb: &str, resource: &str, namespace: &str) -> Result<bool> {
        rights::may(
            &self.provider.plane,
            &binder(contract),
            &right(verb, resource, namespace),
        )
        .await
    }

    /// Waits until a contract may, or may not.
    async fn counts(&self, contract: &str, verb: &str, resource: &str, namespace: &str, allowed: bool) -> Result<()> {
        let what = right(verb, resource, namespace);
        rights::wait_until(&self.provider.plane, &binder(contract), &what, allowed).await
    }

    async fn is_gone(&self, namespace: &str, within: Duration) -> Result<()> {
        let namespaces: Api<Namespace> = self.all();
        eventually_ok(format!("namespace {namespace} to be gone"), within, async || {
            let left = namespaces.get_opt(namespace).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await
    }
}

const CLAIMED: [&str; 4] = ["secrets", "configmaps", "serviceaccounts", "safes.example.dev"];

async fn templates_are_judged(world: &World) -> Result<()> {
    let invalid = "InvalidPermissionClaim";
    world
        .says("of-kubernetes", invalid, "belongs to Kubernetes itself")
        .await?;
    world
        .says("not-allowed", invalid, "--claimable-resources=horses.example.dev")
        .await?;
    world.says("cluster-scoped", invalid, "cluster-scoped").await?;
    world
        .says("not-served", invalid, "install its CustomResourceDefinition")
        .await?;
    world.says("own", invalid, "offers the resource itself").await?;
    // Once it is served, and namespaced, nothing but the right to hand it out is missing.
    let ghosts = crd("ghosts", "Ghost", "Namespaced", "false");
    world.provider.plane.apply(&ghosts.to_string()).await?;
    world.says("not-served", "ServerLacksRights", "ghosts").await?;
    world.says("mapped", "ServerLacksRights", "safes").await?;
    world.provider.plane.apply(&held(&["safes"]).to_string()).await?;
    world.says("mapped", "", "").await
}

#[test]
fn claims_have_rights_in_mapped_namespaces_and_namespaces_go_with_the_last_source() -> Result<()> {
    run(async {
        let world = World::start("claimed", &[]).await?;
        templates_are_judged(&world).await?;
        let contract = world.bind("mapped", "ranch-cluster").await?;
        let namespace = world.mapped(&contract, "team1").await?;
        for resource in CLAIMED {
            for verb in ["create", "delete", "get", "list", "patch", "update", "watch"] {
                let may = async |namespace: &str| world.may(&contract, verb, resource, namespace).await;
                world.counts(&contract, verb, resource, &namespace, true).await?;
                ensure!(!may(&contract).await?, "{verb} {resource} in the contract namespace");
                ensure!(!may("").await?, "{verb} {resource} everywhere");
                ensure!(!may("kube-system").await?, "{verb} {resource} in kube-system");
            }
        }
        // What Kubernetes puts there keeps no namespace.
        let kept = world.mapped(&contract, "team2").await?;
        for namespace in [&namespace, &kept] {
            let mut root = ConfigMap::default();
            root.metadata.name = Some("kube-root-ca.crt".to_owned());
            world.within(namespace).create(&PostParams::default(), &root).await?;
            let token: Secret = serde_json::from_value(json!({
                "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}},
                "type": "kubernetes.io/service-account-token",
            }))?;
            eventually_ok("the default account", SOON, async || {
                world.within(namespace).create(&PostParams::default(), &token).await?;
                Ok(())
            })
            .await?;
        }
        let mut source = Secret::default();
        source.metadata.name = Some("source".to_owned());
        world.within(&kept).create(&PostParams::default(), &source).await?;
        world.give_back(&contract, "team1").await?;
        world.is_gone(&namespace, SOON).await?;
        // The provider's own Secret keeps it, without any rights of the contract.
        world.give_back(&contract, "team2").await?;
        let namespaces: Api<Namespace> = world.all();
        let left = namespaces.get(&kept).await?;
        ensure!(left.metadata.deletion_timestamp.is_none(), "{left:?}");
        ensure!(left.annotations().contains_key(annotations::RELEASED), "{left:?}");
        world.counts(&contract, "get", "secrets", &kept, false).await?;
        let secrets: Api<Secret> = world.within(&kept);
        ensure!(secrets.get_opt("source").await?.is_some(), "the source has gone");
        secrets.delete("source", &DeleteParams::default()).await?;
        world.is_gone(&kept, LOOKED_AT_ANEW).await
    })
}

#[test]
fn a_namespace_stays_with_what_an_operator_keeps_in_it() -> Result<()> {
    run(async {
        let world = World::start("valuable", &["--valuable-resources=vaults.example.dev"]).await?;
        let plane = &world.provider.plane;
        plane
            .apply(&crd("vaults", "Vault", "Namespaced", "false").to_string())
            .await?;
        plane.apply(&held(&["safes"]).to_string()).await?;
        world.says("mapped", "", "").await?;
        let contract = world.bind("mapped", "ranch-cluster").await?;
        let empty = world.mapped(&contract, "team1").await?;
        let claiming = world.mapped(&contract, "team2").await?;
        let vaulted = world.mapped(&contract, "team3").await?;
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }))?;
        world.within(&claiming).create(&PostParams::default(), &claim).await?;
        let vault = json!({
            "apiVersion": "example.dev/v1", "kind": "Vault", "metadata": {"name": "gold", "namespace": vaulted},
        });
        eventually_ok("a vault", SOON, async || plane.apply(&vault.to_string()).await).await?;

        // A kind that is named and cannot be seen keeps every namespace, and the condition tells the rule.
        let mapped: Api<APIServiceNamespace> = world.within(&contract);
        mapped.delete("team1", &DeleteParams::default()).await?;
        world
            .told(&contract, "team1", "ServerLacksRights", |status| {
                let ready = bindery_api::conditions::get(&status.conditions, "Ready");
                ready.is_some_and(|ready| ready.message.contains("resources: [vaults], verbs: [list]"))
            })
            .await?;
        let namespaces: Api<Namespace> = world.all();
        let kept = namespaces.get(&empty).await?;
        ensure!(kept.metadata.deletion_timestamp.is_none(), "{kept:?}");
        plane.apply(&held(&["vaults"]).to_string()).await?;
        world.ended(&contract, "team1").await?;
        world.is_gone(&empty, SOON).await?;

        for (name, namespace, keeps) in [
            ("team2", &claiming, "1 object keeps it: persistentvolumeclaims data"),
            ("team3", &vaulted, "1 object keeps it: vaults.example.dev gold"),
        ] {
            world.give_back(&contract, name).await?;
            let left = namespaces.get(namespace).await?;
            ensure!(left.metadata.deletion_timestamp.is_none(), "{left:?}");
            let kept_for = left.annotations().get(annotations::KEPT_FOR).map(String::as_str);
            ensure!(kept_for == Some(keeps), "{left:?}");
            ensure!(left.annotations().contains_key(annotations::RELEASED), "{left:?}");
        }
        // It is in use again, with what was kept in it.
        ensure!(world.mapped(&contract, "team2").await? == claiming, "another namespace");
        let left = namespaces.get(&claiming).await?;
        ensure!(!left.annotations().contains_key(annotations::KEPT_FOR), "{left:?}");
        let claims: Api<PersistentVolumeClaim> = world.within(&claiming);
        claims.delete("data", &DeleteParams::default()).await?;
        eventually_ok("the claim to be gone", SOON, async || {
            let left = claims.get_opt("data").await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await?;
        world.give_back(&contract, "team2").await?;
        world.is_gone(&claiming, SOON).await
    })
}

/// As from before the policy refused a contract's finalizers.
#[test]
fn what_holds_the_end_of_a_namespace_is_named_with_its_mend() -> Result<()> {
    const FINALIZER: &str = "joe.example.dev/stays";
    run(async {
        let world = World::start("held", &[]).await?;
        let plane = &world.provider.plane;
        plane.apply(&held(&["safes"]).to_string()).await?;
        world.says("mapped", "", "").await?;
        let contract = world.bind("mapped", "ranch-cluster").await?;
        let namespace = world.mapped(&contract, "team1").await?;
        let copy = json!({
            "apiVersion": "example.dev/v1", "kind": "Narrow",
            "metadata": {
                "name": "billy", "namespace": namespace, "finalizers": [FINALIZER],
                "annotations": {annotations::CLUSTER_NAMESPACE: &contract, annotations::CONSUMER_UID: "0-1-2"},
            },
        });
        eventually_ok("a copy", SOON, async || plane.apply(&copy.to_string()).await).await?;
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.dev", "v1", "Narrow"), "narrows");
        let copies: Api<DynamicObject> = Api::namespaced_with(plane.client(), &namespace, &kind);
        copies.delete("billy", &DeleteParams::default()).await?;
        let mapped: Api<APIServiceNamespace> = world.within(&contract);
        mapped.delete("team1", &DeleteParams::default()).await?;
        let mend = format!("kubectl patch narrows.example.dev billy -n {namespace} --type=merge");
        let is_named = |status: &APIServiceNamespaceStatus| {
            let ready = bindery_api::conditions::get(&status.conditions, "Ready");
            ready.is_some_and(|ready| ready.message.contains(FINALIZER) && ready.message.contains(&mend))
        };
        world.told(&contract, "team1", "Draining", is_named).await?;
        world
            .all::<Namespace>()
            .delete(&namespace, &DeleteParams::default())
            .await?;
        world.told(&contract, "team1", "HeldByFinalizers", is_named).await?;
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        copies.patch("billy", &PatchParams::default(), &none).await?;
        world.is_gone(&namespace, SOON).await?;
        world.ended(&contract, "team1").await
    })
}

fn label(key: &str, value: &Value) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"labels": {key: value}}}))
}

#[test]
fn contracts_share_a_namespace_only_where_its_admin_says_so() -> Result<()> {
    run(async {
        let world = World::start("sharing", &[]).await?;
        let namespaces: Api<Namespace> = world.all();
        let params = PatchParams::default();
        for (name, labels) in [("occupied", json!({})), ("saloon", json!({labels::SHARED: "true"}))] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
            namespaces.create(&PostParams::default(), &namespace).await?;
        }
        let one = world.bind("shared", "one").await?;
        let other = world.bind("shared", "other").await?;
        let is_shared = |status: &APIServiceNamespaceStatus| status.shared_namespace.as_deref() == Some("saloon");
        for contract in [&one, &other] {
            world.ask(contract, "saloon").await?;
            world.told(contract, "saloon", "", is_shared).await?;
            world.counts(contract, "create", "secrets", "saloon", true).await?;
            let mapped = names::provider_namespace(contract, "saloon");
            ensure!(
                !world.may(contract, "get", "secrets", &mapped).await?,
                "{contract} in {mapped}"
            );
        }
        let is_mapped =
            |status: &APIServiceNamespaceStatus| status.namespace.is_some() && status.shared_namespace.is_none();
        for (name, reason) in [("kube-system", "SharedNamespaceReserved"), ("occupied", UNLABELLED)] {
            world.ask(&one, name).await?;
            world.told(&one, name, reason, is_mapped).await?;
            ensure!(!world.may(&one, "get", "secrets", name).await?, "{name}");
        }
        // A fourth is beyond the limit until one is given back.
        world.ask(&one, "fourth").await?;
        world
            .told(&one, "fourth", "TooManyNamespaces", |status| status.namespace.is_none())
            .await?;
        world.give_back(&one, "kube-system").await?;
        // The consumer chose a name that the provider may want one day: no namespace is made for it, and the mend is named.
        let told = world.told(&one, "fourth", UNLABELLED, is_mapped).await?;
        let ready = bindery_api::conditions::get(&told.conditions, "Ready").context("no condition")?;
        let mend = "kubectl label namespace fourth kube-bind.io/shared=true";
        ensure!(ready.message.contains(mend), "{ready:?}");
        ensure!(namespaces.get_opt("fourth").await?.is_none(), "it was made");
        // The admin agrees, and later takes it back.
        namespaces
            .patch("occupied", &params, &label(labels::SHARED, &json!("true")))
            .await?;
        world
            .told(&one, "occupied", "", |status| status.shared_namespace.is_some())
            .await?;
        world.counts(&one, "get", "secrets", "occupied", true).await?;
        namespaces
            .patch("occupied", &params, &label(labels::SHARED, &Value::Null))
            .await?;
        world.told(&one, "occupied", UNLABELLED, is_mapped).await?;
        world.counts(&one, "get", "secrets", "occupied", false).await?;
        // Each leaves by itself, and the admin's stays without a trace of us.
        world.give_back(&one, "saloon").await?;
        world.counts(&one, "get", "secrets", "saloon", false).await?;
        ensure!(
            world.may(&other, "get", "secrets", "saloon").await?,
            "the other contract's"
        );
        world.give_back(&other, "saloon").await?;
        world.give_back(&one, "occupied").await?;
        for name in ["saloon", "occupied"] {
            let left = world
                .within::<RoleBinding>(name)
                .list(&kube::api::ListParams::default())
                .await?;
            ensure!(left.items.is_empty(), "{left:?}");
            ensure!(
                namespaces.get(name).await?.metadata.deletion_timestamp.is_none(),
                "{name} is being deleted"
            );
        }
        Ok(())
    })
}

/// A server of an earlier version made a namespace for a consumer that asked before the provider wanted the name.
#[test]
fn what_an_earlier_version_shared_is_closed_and_kept_until_its_admin_decides() -> Result<()> {
    run(async {
        let world = World::start("shared-before", &[]).await?;
        let namespaces: Api<Namespace> = world.all();
        let one = world.bind("shared", "one").await?;
        for name in ["cert-manager", "saloon"] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            namespaces.create(&PostParams::default(), &namespace).await?;
        }
        let copy: Secret = serde_json::from_value(json!({
            "metadata": {"name": "copy", "annotations": {annotations::CLUSTER_NAMESPACE: &one}},
        }))?;
        let secrets: Api<Secret> = world.within("cert-manager");
        secrets.create(&PostParams::default(), &copy).await?;
        let user = format!("{}/{one}", annotations::SHARED_BY);
        let made = Patch::Merge(json!({"metadata": {
            "labels": {labels::SHARED: "true", labels::COMPONENT: "shared-namespace"},
            "annotations": {user: "true", annotations::GRANTED_CLAIMS: "secrets"},
        }}));
        for name in ["cert-manager", "saloon"] {
            namespaces.patch(name, &PatchParams::default(), &made).await?;
        }
        world.ask(&one, "cert-manager").await?;
        let is_mapped =
            |status: &APIServiceNamespaceStatus| status.namespace.is_some() && status.shared_namespace.is_none();
        let told = world.told(&one, "cert-manager", UNLABELLED, is_mapped).await?;
        let ready = bindery_api::conditions::get(&told.conditions, "Ready").context("no condition")?;
        let mend = "kubectl label namespace cert-manager kube-bind.io/component-";
        ensure!(ready.message.contains(mend), "{ready:?}");
        ensure!(
            !world.may(&one, "get", "secrets", "cert-manager").await?,
            "it reads Secrets"
        );
        // One that is empty goes. What is in the other one stays, until its admin shares it or deletes it.
        world.is_gone("saloon", SOON).await?;
        secrets.get("copy").await?;
        namespaces
            .patch(
                "cert-manager",
                &PatchParams::default(),
                &label(labels::COMPONENT, &Value::Null),
            )
            .await?;
        world
            .told(&one, "cert-manager", "", |status| status.shared_namespace.is_some())
            .await?;
        world.counts(&one, "get", "secrets", "cert-manager", true).await?;
        world.give_back(&one, "cert-manager").await?;
        let left = namespaces.get("cert-manager").await?;
        ensure!(left.metadata.deletion_timestamp.is_none(), "{left:?}");
        secrets.get("copy").await.map(drop).map_err(Into::into)
    })
}

/// Reading claimed objects in the whole cluster is the provider admin's to hand out, and Secrets only after a flag as well.
async fn check_cluster_wide(name: &str, more: &[&str], secrets: bool) -> Result<()> {
    let flags = [&["--consumer-scope", "cluster"], more].concat();
    let world = World::start(name, &flags).await?;
    world.says("wide", "ServerLacksRights", "configmaps").await?;
    let resources: &[&str] = if secrets {
        &["configmaps", "secrets"]
    } else {
        &["configmaps"]
    };
    let mut role = held(resources);
    role["rules"] = json!([{"apiGroups": [""], "resources": resources, "verbs": ["get", "list", "watch"]}]);
    world.provider.plane.apply(&role.to_string()).await?;
    world.says("wide", "", "").await?;
    let contract = world.bind("wide", "ranch-cluster").await?;
    let export: APIServiceExport = world.within(&contract).get("wide").await?;
    let mark = export.annotations().get(annotations::CLUSTER_WIDE_SECRETS);
    ensure!((mark.map(String::as_str) == Some("true")) == secrets, "{export:?}");
    let may = async |verb: &str, resource: &str| world.may(&contract, verb, resource, "").await;
    world.counts(&contract, "list", "configmaps", "", true).await?;
    world.counts(&contract, "list", "secrets", "", secrets).await?;
    ensure!(!may("update", "configmaps").await?, "configmaps");
    ensure!(!may("create", "secrets").await?, "secrets");
    // All of it goes with the export.
    let exports: Api<APIServiceExport> = world.within(&contract);
    exports.delete("wide", &DeleteParams::default()).await?;
    eventually_ok("the export to be gone", SOON, async || {
        let left = exports.get_opt("wide").await?;
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await?;
    world.counts(&contract, "list", "configmaps", "", false).await?;
    world.counts(&contract, "list", "secrets", "", false).await
}

#[test]
fn claims_are_read_cluster_wide_where_konnectors_watch_so() -> Result<()> {
    run(async {
        tokio::try_join!(
            check_cluster_wide("wide", &[], false),
            check_cluster_wide("dangerous", &["--dangerous-cluster-wide-secret-claims"], true),
        )?;
        Ok(())
    })
}
