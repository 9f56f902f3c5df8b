//! A team: what one of it bound, its colleagues see, renew, unbind and revoke; strangers learn nothing; admins by RBAC see all. Each
//! such call is an event and a line of the audit log.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{labels, names};
use bindery_e2e::{NAMESPACE, Person, Provider, call, eventually_ok, process, wildwest::SOON};
use bindery_proto::v1alpha2::{
    ErrorReason, ListContractsRequest, RevokeContractRequest, ShareContractRequest, UnbindContractRequest,
};
use bindery_sdk::{Client, Error};
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use crate::world::{World, with_world};

const JANE: Person = Person {
    name: "jane",
    groups: &["ranchers"],
};
const JOHN: Person = Person {
    name: "john",
    groups: &["ranchers", "drinkers"],
};
const EVE: Person = Person {
    name: "eve",
    groups: &["bandits"],
};
/// May get, list, watch and delete ClusterBindings.
const MARSHAL: Person = Person {
    name: "marshal",
    groups: &[],
};
pub(crate) const PEOPLE: [Person; 4] = [JANE, JOHN, EVE, MARSHAL];

const IDENTITY: &str = "cluster-of-teams";

fn client(provider: &Provider, person: Person) -> Result<Client> {
    let builder = Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
    Ok(builder.token(person.token(&provider.address())).build()?)
}

/// That a call was refused for this reason; its message.
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>, reason: ErrorReason) -> Result<String> {
    let error = outcome.err().context("not refused")?;
    ensure!(error.reason() == Some(reason), "{error}");
    Ok(error.to_string())
}

fn share(contract: &str, group: &str) -> ShareContractRequest {
    ShareContractRequest {
        contract: contract.to_owned(),
        add_groups: vec![group.to_owned()],
        ..ShareContractRequest::default()
    }
}

async fn names_of(client: &Client) -> Result<Vec<String>> {
    let contracts = client.list_contracts(ListContractsRequest::default()).await?;
    Ok(contracts.into_iter().map(|contract| contract.name).collect())
}

/// `kubectl bind provider ARGS` on the provider's cluster, as its admin.
async fn admin(world: &World, args: &[&str]) -> Result<String> {
    let mut command = world.consumer.bind_command()?;
    command.arg("provider").args(args);
    command
        .arg("--provider-kubeconfig")
        .arg(world.provider.plane.kubeconfig_path());
    let output = process::run(command, SOON).await?;
    process::stdout(&output).with_context(|| format!("kubectl bind provider {}", args.join(" ")))
}

async fn let_marshal_see(provider: &Provider) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    let rights = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "marshals"},
            "rules": [{
                "apiGroups": ["kube-bind.io"], "resources": ["clusterbindings"], "verbs": ["get", "list", "watch", "delete"],
            }],
        },
        {
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "marshals"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "marshals"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": MARSHAL.name}],
        },
    ]});
    provider.plane.apply(&rights.to_string()).await
}

/// Binds once the right to bind, which was just granted, is in effect.
async fn bind(client: &Client, name: &str) -> Result<()> {
    eventually_ok(format!("{name} to be bound"), SOON, async || {
        client
            .bind(call::wish(name, "cowboys", IDENTITY), SOON, |_| ())
            .await
            .map_err(anyhow::Error::from)
    })
    .await
    .map(drop)
}

/// The team, a stranger and an admin, as they call the server, and the contract that they are about.
struct Callers {
    jane: Client,
    john: Client,
    eve: Client,
    marshal: Client,
    contract: String,
}

#[test]
fn a_team_uses_what_one_of_it_bound() -> Result<()> {
    with_world(async |world| {
        let provider = &world.provider;
        let callers = Callers {
            jane: client(provider, JANE)?,
            john: client(provider, JOHN)?,
            eve: client(provider, EVE)?,
            marshal: client(provider, MARSHAL)?,
            contract: Provider::contract(IDENTITY),
        };
        let wish = call::wish("cowboys", "cowboys", IDENTITY);
        let denied = callers.jane.bind(wish, SOON, |_| ()).await;
        let denied = refused(denied, ErrorReason::TemplateBindDenied)?;
        ensure!(denied.contains("ranchers") && denied.contains("verb bind"), "{denied}");
        admin(world, &["grant", "cowboys", "--group", "ranchers"]).await?;
        let_marshal_see(provider).await?;
        bind(&callers.jane, "cowboys").await?;
        callers.share().await?;
        callers.use_together().await?;
        callers.keep_strangers_out().await?;
        callers.end().await?;

        let contract = callers.contract.as_str();
        let listed = admin(world, &["contracts", "-o", "wide"]).await?;
        let row = listed
            .lines()
            .find(|line| line.starts_with(contract))
            .context("no row")?;
        ensure!(
            row.contains("jane") && row.contains("ranchers") && row.contains("Revoked"),
            "{listed}"
        );
        let named = admin(world, &["contracts", "-o", "name"]).await?;
        ensure!(
            named.contains(&format!("contract.kube-bind.io/{contract}\n")),
            "{named}"
        );
        told_of_denied(world).await?;
        told(world, contract).await?;
        // A colleague binds again, which ends the revocation.
        bind(&callers.john, "cowboys").await?;
        callers.john.renew_kubeconfig(contract).await?;
        admin(world, &["take", "cowboys", "--group", "ranchers"])
            .await
            .map(drop)
    })
}

impl Callers {
    /// Before the contract is shared, a colleague is a stranger, to whom a contract that is there is like one that is not.
    async fn share(&self) -> Result<()> {
        let Self {
            jane,
            john,
            eve,
            contract,
            ..
        } = self;
        let says = refused(john.get_contract(contract).await, ErrorReason::ContractDenied)?;
        let nobodys = "kube-bind-nobodys";
        let of_none = refused(john.get_contract(nobodys).await, ErrorReason::ContractDenied)?;
        let same = |text: &str| text.split(" (").next().unwrap_or_default().replace(contract, nobodys);
        ensure!(same(&says) == same(&of_none), "{says} is not {of_none}");
        let wish = call::wish("riders", "cowboys", IDENTITY);
        refused(john.bind(wish, SOON, |_| ()).await, ErrorReason::ClusterIdentityTaken)?;
        ensure!(names_of(john).await?.is_empty(), "john sees contracts");

        let to_others = jane.share_contract(share(contract, "bandits")).await;
        refused(to_others, ErrorReason::MethodDenied)?;
        let to_all = jane.share_contract(share(contract, "system:authenticated")).await;
        refused(to_all, ErrorReason::FieldInvalid)?;
        let by_stranger = eve.share_contract(share(contract, "bandits")).await;
        refused(by_stranger, ErrorReason::ContractDenied)?;
        let shared = jane.share_contract(share(contract, "ranchers")).await?;
        ensure!(shared.owner_groups == ["ranchers"], "{shared:?}");
        Ok(())
    }

    /// A colleague sees, renews and binds more, and cannot share.
    async fn use_together(&self) -> Result<()> {
        let Self { john, contract, .. } = self;
        eventually_ok("john to see the contract", SOON, async || {
            ensure!(names_of(john).await? == [contract.as_str()], "john sees none");
            Ok(())
        })
        .await?;
        john.renew_kubeconfig(contract).await?;
        bind(john, "riders").await?;
        let further = john.share_contract(share(contract, "drinkers")).await;
        refused(further, ErrorReason::MethodDenied)?;
        let shown = john.get_contract(contract).await?;
        let bound: Vec<_> = shown
            .exports
            .iter()
            .map(|export| (&*export.name, &*export.template))
            .collect();
        ensure!(bound == [("cowboys", "cowboys"), ("riders", "cowboys")], "{bound:?}");
        ensure!(
            shown.owners.len() == 1 && shown.owners[0].username == "jane",
            "{shown:?}"
        );
        Ok(())
    }

    /// A stranger sees nothing; an admin by RBAC sees all, and does what the verbs say and no more.
    async fn keep_strangers_out(&self) -> Result<()> {
        let Self {
            eve, marshal, contract, ..
        } = self;
        let denied = ErrorReason::ContractDenied;
        ensure!(names_of(eve).await?.is_empty(), "eve sees contracts");
        refused(eve.get_contract(contract).await, denied)?;
        refused(eve.renew_kubeconfig(contract).await, denied)?;
        ensure!(names_of(marshal).await?.contains(contract), "marshal does not see all");
        marshal.get_contract(contract).await?;
        refused(marshal.renew_kubeconfig(contract).await, denied)?;
        refused(marshal.share_contract(share(contract, "bandits")).await, denied).map(drop)
    }

    /// A colleague unbinds, and the admin revokes.
    async fn end(&self) -> Result<()> {
        let Self {
            john,
            eve,
            marshal,
            contract,
            ..
        } = self;
        let unbind = UnbindContractRequest {
            contract: contract.clone(),
            exports: vec!["riders".to_owned()],
            ..UnbindContractRequest::default()
        };
        let left = john.unbind_contract(unbind).await?;
        ensure!(left.is_empty(), "{left:?}");
        let revoke = RevokeContractRequest {
            contract: contract.clone(),
            uid: john.get_contract(contract).await?.uid,
            reason: "a lost laptop".to_owned(),
        };
        refused(eve.revoke_contract(revoke.clone()).await, ErrorReason::ContractDenied)?;
        let revoked = marshal.revoke_contract(revoke).await?;
        ensure!(revoked.revoked_count > 0, "{revoked:?}");
        refused(john.renew_kubeconfig(contract).await, ErrorReason::RenewalStopped).map(drop)
    }
}

/// That events in the server's namespace tell of the refusal of somebody who had no right to bind and no contract.
async fn told_of_denied(world: &World) -> Result<()> {
    let events: Api<Event> = Api::namespaced(world.provider.plane.client(), NAMESPACE);
    eventually_ok("an event on the server's Pod", SOON, async || {
        let all = events.list(&ListParams::default()).await?.items;
        let is_it = |event: &Event| {
            let regarding = event.regarding.as_ref().and_then(|it| it.kind.as_deref());
            let says = event.note.as_deref().unwrap_or_default();
            regarding == Some("Pod")
                && event.reason.as_deref() == Some("BindRefused")
                && says.starts_with("jane ")
                && says.contains("TEMPLATE_BIND_DENIED")
        };
        ensure!(all.iter().any(is_it), "no BindRefused of jane in {all:#?}");
        Ok(())
    })
    .await
}

/// That events and the audit log say what happened, and hold no secret.
async fn told(world: &World, contract: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(world.provider.plane.client(), contract);
    eventually_ok("events on the ClusterBinding", SOON, async || {
        let all = events.list(&ListParams::default()).await?.items;
        for (reason, who) in [
            ("Bound", "john"),
            ("Renewed", "john"),
            ("Shared", "jane"),
            ("Unbound", "john"),
            ("Revoked", "marshal"),
            ("BindRefused", "john"),
            ("ShareRefused", "eve"),
            ("RenewalRefused", "eve"),
        ] {
            let is_it = |event: &&Event| {
                let regarding = event.regarding.as_ref().and_then(|it| it.name.as_deref());
                regarding == Some(names::CLUSTER_BINDING)
                    && event.reason.as_deref() == Some(reason)
                    && event.note.as_deref().is_some_and(|note| note.starts_with(who))
            };
            ensure!(
                all.iter().any(|event| is_it(&event)),
                "no {reason} of {who} in {all:#?}"
            );
        }
        Ok(())
    })
    .await?;
    let log = world.audit_log()?;
    let lines: Vec<Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for (who, method, decision, reason) in [
        (
            "jane",
            "BindingService/CreateBindableResourcesRequest",
            "refused",
            json!("TEMPLATE_BIND_DENIED"),
        ),
        (
            "jane",
            "BindingService/CreateBindableResourcesRequest",
            "allowed",
            Value::Null,
        ),
        ("john", "CredentialService/RenewKubeconfig", "allowed", Value::Null),
        (
            "john",
            "CredentialService/RenewKubeconfig",
            "refused",
            json!("RENEWAL_STOPPED"),
        ),
        (
            "john",
            "ContractService/ShareContract",
            "refused",
            json!("METHOD_DENIED"),
        ),
        (
            "eve",
            "ContractService/RevokeContract",
            "refused",
            json!("CONTRACT_DENIED"),
        ),
        ("marshal", "ContractService/RevokeContract", "allowed", Value::Null),
    ] {
        let line = lines.iter().find(|line| {
            line["principal"]["username"] == who
                && line["method"] == method
                && line["decision"] == decision
                && line["reason"] == reason
        });
        let line = line.with_context(|| format!("no line of {who}: {method} {decision} {reason}\n{log}"))?;
        ensure!(line["requestId"].is_string() && line["peer"].is_string(), "{line}");
    }
    for person in PEOPLE {
        let token = person.token(&world.provider.address());
        let parts: Vec<_> = token.split('.').collect();
        ensure!(!log.contains(parts[1]), "the log has the token of {}", person.name);
    }
    let secrets: Api<Secret> = Api::namespaced(world.provider.plane.client(), contract);
    let anchors = secrets.list(&ListParams::default().labels(labels::COMPONENT)).await?;
    ensure!(anchors.items.is_empty(), "anchors are left");
    Ok(())
}
