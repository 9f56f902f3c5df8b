//! A kubeconfig that may only read exports and objects: what the konnector lacks is said, and nothing is taken away.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Condition, Conditions as _, Severity, annotations, conditions::ConditionStatus, v1alpha2::APIServiceBinding,
};
use bindery_e2e::{
    Consumer, ControlPlane,
    bundle::{Bundle, rights},
    eventually_ok, holds_for, lease, manifests,
    offer::Offer,
    wildwest::{self, SOON},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    claims,
    contract::{Contract, Credential, user},
    pair::Pair,
    world::{A_WHILE, case},
};

const READ: Offer = Offer { name: "reader" };
const AGAIN: Offer = Offer { name: "reader-again" };
const ANEW: Offer = Offer { name: "reader-anew" };
const CLAIMS: Offer = Offer { name: "reader-claims" };
const OTHER: Offer = Offer { name: "reader-other" };
/// The namespace of the readers' accounts, which outlive their contracts.
const ACCOUNTS: &str = "default";
const LACKING: &str = "ProviderAccessComplete";
/// A provider that forbids something is asked again only now and then.
const AT_LAST: Duration = Duration::from_secs(90);

/// The provider's admin, who gives an account of the contract namespace this right and that.
struct Admin<'a> {
    plane: &'a ControlPlane,
    contract: &'a Contract,
    offer: Offer,
}

pub(crate) async fn a_kubeconfig_that_only_reads_says_what_it_lacks() -> Result<()> {
    case("reader", async |case| {
        let contract = case.contract(&case.world.p, &[READ]).await?;
        let granted = contract.export(READ).await?;
        let admin = Admin {
            plane: &case.world.p.plane,
            contract: &contract,
            offer: READ,
        };
        let credential = admin.reader(&granted).await?;
        let bundle = case.bundle("");
        bundle.give(&credential.yaml()?).await?;
        bundle.apply(json!({"pollingInterval": "1s"})).await?;
        begins_without_rights(&bundle).await?;

        admin.allow_all().await?;
        let uid = contract.uid().await?;
        names(&bundle, &uid).await?;
        consent(&bundle, READ, &uid).await?;
        clears(&bundle, &contract).await?;
        let pair = case.object(&contract, READ, "one").await?;
        let ending = case.object(&contract, READ, "ending").await?;
        pair.works("with all rights").await?;

        admin.deny_all_but_reading().await?;
        lacks(&bundle, "apiserviceexports/status").await?;
        reads_and_deletes_nothing(&bundle, &pair, &ending).await?;
        admin.allow_all().await?;
        clears(&bundle, &contract).await?;
        ending.gone().await?;
        pair.works("with all rights again").await?;

        admin.deny_all_but_reading().await?;
        lacks(&bundle, "namespaces").await?;
        contract.remove(READ.name).await?;
        let before = bundle.bound().await?;
        holds_for("nothing to be unbound", A_WHILE, async || {
            ensure!(bundle.bound().await? == before, "bindings changed");
            pair.is_here().await
        })
        .await?;
        binding_says(&bundle, "Connected", "ContractUnverified", "so nothing is unbound").await
    })
    .await
}

/// A konnector that starts when only reading is left goes on with what it knows: the CRD, the connection that led to the
/// contract, and where copies are.
pub(crate) async fn a_konnector_that_starts_with_reading_rights_goes_on() -> Result<()> {
    case("reader-again", async |case| {
        let contract = case.contract(&case.world.p, &[AGAIN]).await?;
        let granted = contract.export(AGAIN).await?;
        let admin = Admin {
            plane: &case.world.p.plane,
            contract: &contract,
            offer: AGAIN,
        };
        let plane = ControlPlane::start("bundles-reader").await?;
        let mut consumer = Consumer::start_on(plane, &lease::PATIENT).await?;
        let role = rights("reader-again", &[(AGAIN.group().as_str(), "widgets")]);
        consumer.plane.apply(&role.to_string()).await?;
        let bundle = Bundle::new(consumer.plane.client(), "again");
        bundle.give(&admin.reader(&granted).await?.yaml()?).await?;
        admin.allow_all().await?;
        bundle.apply(json!({"pollingInterval": "1s"})).await?;
        bundle.binds(&[AGAIN.name]).await?;
        let ours: Api<DynamicObject> = Api::namespaced_with(consumer.plane.client(), "default", &AGAIN.resource());
        ours.create(&PostParams::default(), &AGAIN.widget("one", "red")).await?;
        let is_synced = |object: &DynamicObject| object.annotations().contains_key(annotations::PROVIDER_UID);
        wildwest::wait("the object to be in sync", &ours, "one", is_synced).await?;

        admin.deny_all_but_reading().await?;
        lacks(&bundle, "apiservicenamespaces").await?;
        consumer.stop_konnectors().await?;
        let status = Patch::Merge(json!({"status": {"color": "after the restart"}}));
        let copies = contract.copies(AGAIN, "default");
        copies.patch_status("one", &PatchParams::default(), &status).await?;
        consumer.start_konnector().await?;
        let has = |object: &DynamicObject| object.data["status"]["color"] == "after the restart";
        wildwest::wait("the status to come down", &ours, "one", has).await?;
        lacks(&bundle, "apiservicenamespaces").await?;
        let uid = contract.uid().await?;
        let pinned = bundle.all_bindings.get(AGAIN.name).await?;
        ensure!(pinned.contract_uid() == Some(&*uid), "{:?}", pinned.contract_uid());
        admin.allow_all().await?;
        eventually_ok("the binding to have all rights", AT_LAST, async || {
            let binding = bundle.all_bindings.get(AGAIN.name).await?;
            ensure!(binding.is_condition_true("Ready"), "{:?}", binding.conditions());
            Ok(())
        })
        .await
    })
    .await
}

/// A namespace that was made anew takes the place neither of one whose UID was never read, nor of one whose UID was.
pub(crate) async fn a_contract_made_anew_needs_consent() -> Result<()> {
    case("reader-anew", async |case| {
        let contract = case.contract(&case.world.p, &[ANEW, OTHER]).await?;
        let granted = contract.export(ANEW).await?;
        let admin = Admin {
            plane: &case.world.p.plane,
            contract: &contract,
            offer: ANEW,
        };
        let bundle = case.bundle("");
        bundle.give(&admin.reader(&granted).await?.yaml()?).await?;
        admin.allow_all_but_the_namespace().await?;
        bundle.apply(json!({"pollingInterval": "1s"})).await?;
        lacks(&bundle, "namespaces").await?;
        let pair = case.object(&contract, ANEW, "one").await?;
        pair.works("before").await?;

        let is_unverified = async || {
            let bound = bundle.all_bindings.get(ANEW.name).await?;
            for pinned in [bound.contract_uid(), bundle.get().await?.contract_uid()] {
                ensure!(pinned.is_some_and(|uid| uid.starts_with("unverified-")), "{pinned:?}");
            }
            pair.is_here().await
        };
        is_unverified().await?;
        admin.make_anew().await?;
        let second = contract.uid().await?;
        names(&bundle, &second).await?;
        binding_of(
            &bundle,
            ANEW,
            "Connected",
            "ContractUnverified",
            "so nothing is unbound",
        )
        .await?;
        holds_for("the pin to stay", A_WHILE, is_unverified).await?;
        consent(&bundle, ANEW, &second).await?;
        pair.is_here().await?;

        admin.make_anew().await?;
        let third = contract.uid().await?;
        bundle
            .complains("SecretValid", Severity::Error, "ProviderChanged", &[&second, &third])
            .await?;
        pair.is_here().await
    })
    .await
}

/// Claimed objects wait while the contract cannot be verified, and those of the bound API do not.
pub(crate) async fn claimed_objects_are_kept_from_an_unverified_contract() -> Result<()> {
    case("reader-claims", async |case| {
        let contract = case.contract(&case.world.p, &[CLAIMS]).await?;
        let granted = claims::exported(case, &contract, CLAIMS, json!([claims::claim("configmaps")])).await?;
        let role = rights("bundles-reader-claims", &[("", "configmaps")]);
        case.world.consumer.plane.apply(&role.to_string()).await?;
        let admin = Admin {
            plane: &case.world.p.plane,
            contract: &contract,
            offer: CLAIMS,
        };
        let bundle = case.bundle("");
        bundle.give(&admin.reader(&granted).await?.yaml()?).await?;
        admin.allow_all().await?;
        admin.allow_claimed().await?;
        bundle
            .apply(json!({"pollingInterval": "1s", "acceptedClaims": [claims::claim("configmaps")]}))
            .await?;
        let pair = case.object(&contract, CLAIMS, "one").await?;
        let client = case.world.consumer.plane.client();
        claims::create::<ConfigMap>(&client, case.name, json!({"data": {"a": "first"}})).await?;
        let copies = claims::copies::<ConfigMap>(case, &contract);
        let is_copied = async |value: &str| {
            let data = copies.get("claimed").await?.data.unwrap_or_default();
            ensure!(data.get("a").is_some_and(|copied| copied == value), "{data:?}");
            Ok(())
        };
        eventually_ok("the ConfigMap to be copied", SOON, || is_copied("first")).await?;

        admin.deny_the_namespace().await?;
        binding_of(
            &bundle,
            CLAIMS,
            "PermissionClaimsInSync",
            "ContractUnverified",
            "not synced",
        )
        .await?;
        let ours: Api<ConfigMap> = Api::namespaced(client, case.name);
        let second = Patch::Merge(json!({"data": {"a": "second"}}));
        ours.patch("claimed", &PatchParams::default(), &second).await?;
        pair.works("while claims wait").await?;
        holds_for("the ConfigMap to be kept back", A_WHILE, || is_copied("first")).await?;

        admin.allow_all().await?;
        eventually_ok("the change to be copied", AT_LAST, || is_copied("second")).await
    })
    .await
}

/// With the role that is shipped alone, the API is bound, and every right that lacks is named.
async fn begins_without_rights(bundle: &Bundle) -> Result<()> {
    let missing = [
        "resources: [namespaces], verbs: [get]",
        "resources: [clusterbindings], verbs: [list, watch]",
        "resources: [apiservicenamespaces], verbs: [list, watch, create, patch, delete]",
        "resources: [apiserviceexports/status, boundschemas/status, clusterbindings/status], verbs: [patch]",
    ];
    bundle
        .complains(LACKING, Severity::Warning, "ContractUnverified", &missing)
        .await?;
    bundle.is("ProviderReachable", Condition::is_true).await?;
    bundle.is("Synced", Condition::is_true).await?;
    for rule in missing {
        binding_says(bundle, LACKING, "ContractUnverified", rule).await?;
    }
    binding_says(
        bundle,
        "Heartbeating",
        "ClusterBindingUpdateFailed",
        "sends no heartbeats",
    )
    .await?;
    bundle
        .binding_is(READ.name, "Connected", Condition::is_true)
        .await
        .map(drop)?;
    let pinned = binding(bundle).await?.contract_uid().map(str::to_owned);
    ensure!(
        pinned.as_ref().is_some_and(|uid| uid.starts_with("unverified-")),
        "it is pinned to {pinned:?}"
    );
    Ok(())
}

/// The condition names the UID that was found, and how to consent to it.
async fn names(bundle: &Bundle, uid: &str) -> Result<()> {
    let says = ["has UID", uid, annotations::ACCEPT_PROVIDER_CHANGE];
    bundle
        .complains(LACKING, Severity::Warning, "ContractUnverified", &says)
        .await
        .map(drop)
}

/// The user consents to the contract of this UID, until it is pinned.
async fn consent(bundle: &Bundle, offer: Offer, uid: &str) -> Result<()> {
    let until = Timestamp::now() + SignedDuration::from_mins(5);
    bundle
        .annotate(annotations::ACCEPT_PROVIDER_CHANGE, json!(until.to_string()))
        .await?;
    eventually_ok("the contract to be the one that was consented to", SOON, async || {
        let bound = bundle.all_bindings.get(offer.name).await?;
        for pinned in [bound.contract_uid(), bundle.get().await?.contract_uid()] {
            ensure!(pinned == Some(uid), "{pinned:?}");
        }
        Ok(())
    })
    .await?;
    bundle
        .annotate(annotations::ACCEPT_PROVIDER_CHANGE, json!(null))
        .await?;
    bundle
        .annotate_binding(offer.name, annotations::ACCEPT_PROVIDER_CHANGE, json!(null))
        .await
}

/// With all rights the condition is gone, and the UID of the contract is pinned.
async fn clears(bundle: &Bundle, contract: &Contract) -> Result<()> {
    let uid = contract.uid().await?;
    eventually_ok("the binding to have all rights", AT_LAST, async || {
        let binding = binding(bundle).await?;
        ensure!(binding.condition(LACKING).is_none(), "{:?}", binding.conditions());
        ensure!(binding.is_condition_true("Ready"), "{:?}", binding.conditions());
        ensure!(binding.contract_uid() == Some(&*uid), "{:?}", binding.contract_uid());
        let bundle = bundle.get().await?;
        ensure!(bundle.is_condition_true("Ready"), "{:?}", bundle.conditions());
        ensure!(bundle.contract_uid() == Some(&*uid), "{:?}", bundle.contract_uid());
        Ok(())
    })
    .await
}

async fn lacks(bundle: &Bundle, resource: &str) -> Result<()> {
    let what = format!("the right on {resource} to be missing");
    eventually_ok(what, SOON, async || {
        let lacking = bundle.condition(LACKING).await?;
        ensure!(lacking.reason == "ContractUnverified", "{lacking:?}");
        ensure!(lacking.message.contains(resource), "{lacking:?}");
        Ok(())
    })
    .await
}

/// The status of a copy comes down, also of an object whose change cannot go up; and what the user deletes stays.
async fn reads_and_deletes_nothing(bundle: &Bundle, pair: &Pair, ending: &Pair) -> Result<()> {
    let contract = binding(bundle).await?.contract_uid().map(str::to_owned);
    pair.paint("cannot go up").await?;
    let status = Patch::Merge(json!({"status": {"color": "comes down"}}));
    let params = PatchParams::default();
    pair.copies.patch_status(&pair.name, &params, &status).await?;
    let has = |object: &DynamicObject| object.data["status"]["color"] == "comes down";
    wildwest::wait("the status to come down", &pair.ours, &pair.name, has).await?;
    bundle
        .binding_is(READ.name, "ObjectsInSync", |known| {
            known.message.contains("cannot patch")
        })
        .await?;
    ending.ours.delete(&ending.name, &DeleteParams::default()).await?;
    let copy = ending.copy().await?;
    holds_for("nothing to be deleted", A_WHILE, async || {
        ensure!(ending.ours.get_opt(&ending.name).await?.is_some(), "the object is gone");
        ensure!(ending.copy().await? == copy, "the copy is another");
        let known = binding(bundle).await?;
        ensure!(known.contract_uid() == contract.as_deref(), "the pin has changed");
        Ok(())
    })
    .await?;
    Ok(())
}

async fn binding(bundle: &Bundle) -> Result<APIServiceBinding> {
    bundle.all_bindings.get(READ.name).await.context("the binding")
}

async fn binding_says(bundle: &Bundle, type_: &str, reason: &str, says: &str) -> Result<()> {
    binding_of(bundle, READ, type_, reason, says).await
}

async fn binding_of(bundle: &Bundle, offer: Offer, type_: &str, reason: &str, says: &str) -> Result<()> {
    let is_so = |known: &Condition| {
        known.status == ConditionStatus::False && known.reason == reason && known.message.contains(says)
    };
    bundle.binding_is(offer.name, type_, is_so).await.map(drop)
}

// === impl Admin ===

impl Admin<'_> {
    /// Makes an account that holds the shipped role in the contract namespace and reads the objects; returns its kubeconfig.
    async fn reader(&self, granted: &Credential) -> Result<Credential> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.plane.client(), ACCOUNTS);
        let account = serde_json::from_value(json!({"metadata": {"name": self.offer.name}}))?;
        accounts.create(&PostParams::default(), &account).await?;
        self.plane.apply(&manifests::file("provider-reader/role.yaml")?).await?;
        self.bind("kube-bind-reader", "kube-bind-reader").await?;
        let role = |name: String, verbs: &[&str]| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
                "rules": [{"apiGroups": [self.offer.group()], "resources": ["widgets"], "verbs": verbs}],
            })
        };
        let reading = role(self.role("reads"), &["get", "list", "watch"]);
        let writing = role(self.role("writes"), &["create", "update", "patch", "delete"]);
        self.plane.apply(&reading.to_string()).await?;
        self.plane.apply(&writing.to_string()).await?;
        self.bind_everywhere(&self.role("reads")).await?;
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let issued = accounts
            .create_token_request(self.offer.name, &PostParams::default(), &request)
            .await?;
        let token = issued.status.context("no token")?.token;
        Ok(granted
            .without_backend()
            .with(|config| *user(config) = json!({"token": token})))
    }

    /// Gives the account what the server gives a contract.
    async fn allow_all(&self) -> Result<()> {
        self.bind("reader-is-a-binder", "kube-binder").await?;
        self.bind_everywhere(&self.role("writes")).await
    }

    /// Gives the account what the server gives a contract, except that it may not read the namespace.
    async fn allow_all_but_the_namespace(&self) -> Result<()> {
        let cluster_roles: Api<ClusterRole> = Api::all(self.plane.client());
        let mut rules = cluster_roles.get("kube-binder").await?.rules.unwrap_or_default();
        rules.retain(|rule| rule.resources.as_deref() != Some(&["namespaces".to_owned()]));
        let name = self.role("is-almost-a-binder");
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        });
        self.plane.apply(&role.to_string()).await?;
        self.bind(&name, &name).await?;
        self.bind_everywhere(&self.role("writes")).await
    }

    /// Takes the right to read the namespace away, and no other.
    async fn deny_the_namespace(&self) -> Result<()> {
        self.allow_all_but_the_namespace().await?;
        let bindings: Api<RoleBinding> = Api::namespaced(self.plane.client(), &self.contract.namespace);
        bindings.delete("reader-is-a-binder", &DeleteParams::default()).await?;
        Ok(())
    }

    /// Lets the account write ConfigMaps, which an export claims.
    async fn allow_claimed(&self) -> Result<()> {
        let name = self.role("serves-claims");
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        });
        self.plane.apply(&role.to_string()).await?;
        self.bind_everywhere(&name).await
    }

    /// Deletes the contract namespace and has it made again, with the export of another API in it.
    async fn make_anew(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.plane.client());
        let name = &self.contract.namespace;
        namespaces.delete(name, &DeleteParams::default()).await?;
        eventually_ok(format!("namespace {name} to be gone"), AT_LAST, async || {
            let left = namespaces.get_opt(name).await?;
            ensure!(left.is_none(), "{:?}", left.and_then(|left| left.status));
            Ok(())
        })
        .await?;
        self.contract.export(OTHER).await?;
        self.bind("kube-bind-reader", "kube-bind-reader").await?;
        self.allow_all().await
    }

    async fn deny_all_but_reading(&self) -> Result<()> {
        let params = DeleteParams::default();
        let bindings: Api<RoleBinding> = Api::namespaced(self.plane.client(), &self.contract.namespace);
        bindings.delete("reader-is-a-binder", &params).await?;
        let everywhere: Api<ClusterRoleBinding> = Api::all(self.plane.client());
        everywhere.delete(&self.role("writes"), &params).await?;
        Ok(())
    }

    /// Name of the ClusterRole by which the account reads or writes objects.
    fn role(&self, does: &str) -> String {
        format!("{}-{does}", self.offer.name)
    }

    async fn bind(&self, name: &str, role: &str) -> Result<()> {
        let mut binding = self.subject("RoleBinding", name, role);
        binding["metadata"]["namespace"] = json!(self.contract.namespace);
        self.plane.apply(&binding.to_string()).await
    }

    async fn bind_everywhere(&self, role: &str) -> Result<()> {
        let binding = self.subject("ClusterRoleBinding", role, role);
        self.plane.apply(&binding.to_string()).await
    }

    fn subject(&self, kind: &str, name: &str, role: &str) -> serde_json::Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": self.offer.name, "namespace": ACCOUNTS}],
        })
    }
}
