//! Who may ask, in whose name, for which template.

use anyhow::{Result, ensure};
use bindery_api::{
    names,
    v1alpha2::{BindableResourcesRequest, NameRef, Phase},
};
use bindery_e2e::{eventually_ok, holds_for, wildwest::SOON};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PatchParams},
};
use serde_json::json;

use super::{Place, group, merge, place, user};
use crate::{
    case::{Case, case, default_secret, role},
    response::{RESPONSE_KEY, text},
    world::{A_WHILE, dry_run, server},
};

const AUTHOR: &str = "may not ask in the name of";
const BIND: &str = "may not bind template";

#[test]
fn who_asks_is_the_author_or_may_impersonate_it() -> Result<()> {
    place("author", async |place| {
        let jane = place.world.person("jane", "author-crew").await?;
        place.may_bind("author-crew", group("author-crew")).await?;
        place.passes(&jane, &place.request("jane")).await?;
        let account = "system:serviceaccount:author:robot";
        let others = [
            "john",
            "jane ",
            "Jane",
            "",
            account,
            &server(),
            "system:admin",
            "system:masters",
        ];
        for other in others {
            place
                .is_refused(&jane, &place.request(other), &["jane", AUTHOR])
                .await?;
        }

        let rule =
            json!({"apiGroups": [""], "resources": ["users"], "resourceNames": ["john"], "verbs": ["impersonate"]});
        place.grant("impersonate-john", rule, user("jane")).await?;
        place.passes(&jane, &place.request("john")).await?;
        for other in ["jill", account] {
            place.is_refused(&jane, &place.request(other), &[AUTHOR]).await?;
        }
        // ServiceAccounts are impersonated as such, in their namespaces.
        let rules = json!([{
            "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["robot"], "verbs": ["impersonate"],
        }]);
        let given = role("author", "impersonate-robot", &rules, &json!([user("jane")]));
        place.apply(&given).await?;
        place.passes(&jane, &place.request(account)).await?;
        for other in [
            "system:serviceaccount:default:robot",
            "system:serviceaccount:author:other",
        ] {
            place.is_refused(&jane, &place.request(other), &[AUTHOR]).await?;
        }
        // Groups are not users of the same name.
        let rule =
            json!({"apiGroups": [""], "resources": ["groups"], "resourceNames": ["jill"], "verbs": ["impersonate"]});
        place.grant("impersonate-group", rule, user("jane")).await?;
        place.is_refused(&jane, &place.request("jill"), &[AUTHOR]).await
    })
}

#[test]
fn binding_is_a_right_of_users_and_of_groups() -> Result<()> {
    place("may-bind", async |place| {
        let by_name = place.world.person("bert", "nobodys").await?;
        let by_group = place.world.person("gina", "bind-crew").await?;
        for (client, author) in [(&by_name, "bert"), (&by_group, "gina")] {
            eventually_ok(format!("{author} to get as far as the policy"), SOON, async || {
                place
                    .is_refused(client, &place.request(author), &[author, BIND, "cowboys"])
                    .await
            })
            .await?;
        }
        place.may_bind("bert-binds", user("bert")).await?;
        place.may_bind("crew-binds", group("bind-crew")).await?;
        place.passes(&by_name, &place.request("bert")).await?;
        place.passes(&by_group, &place.request("gina")).await?;
        // That template, and no other.
        let mut other = place.request("bert");
        other.spec.template_ref = Some(NameRef::new("sheriffs"));
        place.is_refused(&by_name, &other, &[BIND, "sheriffs"]).await?;
        other.spec.template_ref = None;
        place
            .is_refused(&by_name, &other, &["spec.templateRef.name is required"])
            .await?;
        // Other verbs on it are another right.
        let rule = json!({
            "apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        });
        place.grant("all-but-bind", rule, user("carl")).await?;
        let carl = place.world.person("carl", "nobodys").await?;
        place.is_refused(&carl, &place.request("carl"), &[BIND]).await?;
        // Whoever impersonates somebody asks with rights of its own, not with the author's.
        let rule =
            json!({"apiGroups": [""], "resources": ["users"], "resourceNames": ["bert"], "verbs": ["impersonate"]});
        place.grant("carl-as-bert", rule, user("carl")).await?;
        eventually_ok("carl to ask in the name of bert", SOON, async || {
            place.is_refused(&carl, &place.request("bert"), &["carl", BIND]).await
        })
        .await
    })
}

#[test]
fn the_account_of_a_contract_asks_for_nothing() -> Result<()> {
    case("bound", async |world, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let contract = case.contract();
        let place = Place { world, name: case.name };
        let account = format!("system:serviceaccount:{contract}:{}", names::KUBE_BINDER);
        let binder = world
            .provider
            .plane
            .service_account_client(&contract, names::KUBE_BINDER)
            .await?;
        let mut request = place.request(&account);
        // Under another name the policy on all that contracts write stands in the way as well.
        request.metadata.name = Some(names::prefixed_name(&contract, "more"));
        let forbidden = place.api(&binder).create(&dry_run(), &request).await;
        ensure!(
            matches!(&forbidden, Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains(" cannot ")),
            "{forbidden:?}"
        );
        // Where somebody gave it the right to write them, and even to bind, the policy holds.
        place.allow(case.name, &json!([user(&account)])).await?;
        eventually_ok("the account to get as far as the policy", SOON, async || {
            place.is_refused(&binder, &request, &[]).await
        })
        .await?;
        place.may_bind("account-binds", user(&account)).await?;
        holds_for("the account is refused", A_WHILE, async || {
            place
                .is_refused(&binder, &request, &["the account of a contract"])
                .await
        })
        .await?;
        request.spec.author = case.author();
        place.is_refused(&binder, &request, &[]).await
    })
}

#[test]
fn a_forged_status_gives_no_credential() -> Result<()> {
    case("forged", async |world, victim| {
        victim.apply(&victim.request("cowboys")).await?;
        victim.succeeds("cowboys").await?;
        let thief = Case::settle(&world.provider, "forger").await?;
        let place = Place {
            world,
            name: thief.name,
        };
        place.allow(thief.name, &json!([user(&thief.author())])).await?;
        // It waits for the server's right to respond, long enough to be written to.
        thief.apply(&thief.request("cowboys")).await?;
        let mut taken = thief.request("cowboys");
        taken["metadata"]["name"] = json!("taken");
        taken["spec"]["clusterIdentity"]["identity"] = json!(victim.identity());
        thief.apply(&taken).await?;
        thief
            .comes_to("cowboys", Phase::Pending, "ServerLacksRights", &[])
            .await?;
        thief
            .comes_to("taken", Phase::Failed, "ClusterIdentityTaken", &[])
            .await?;
        let requests: Api<BindableResourcesRequest> = Api::namespaced(thief.client.clone(), thief.name);
        for name in ["cowboys", "taken"] {
            let forged = merge(json!({"status": {
                "phase": "Succeeded", "namespace": victim.contract(),
                "kubeconfigSecretRef": {"name": "loot", "key": "kubeconfig"}, "completionTime": jiff::Timestamp::now(),
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "SecretReady", "message": "",
                    "lastTransitionTime": jiff::Timestamp::now(),
                }],
            }}));
            requests.patch_status(name, &PatchParams::default(), &forged).await?;
        }
        thief.let_the_server_respond().await?;
        let secrets: Api<Secret> = Api::namespaced(world.provider.plane.client(), thief.name);
        holds_for("nothing is given for a forged word", 3 * A_WHILE, async || {
            for secret in secrets.list(&ListParams::default()).await? {
                let name = secret.name_any();
                ensure!(name != "loot", "the Secret of the status was written");
                ensure!(
                    name != default_secret("taken"),
                    "a response of somebody else's contract"
                );
                for key in [RESPONSE_KEY, names::KUBECONFIG_KEY] {
                    let told = text(&secret, key)?;
                    ensure!(
                        !told.contains(&victim.contract()),
                        "{name} leads to the victim's contract"
                    );
                }
            }
            Ok(())
        })
        .await
    })
}
