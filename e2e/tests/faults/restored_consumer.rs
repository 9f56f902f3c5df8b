//! A consumer whose objects are gone, and a consumer that has another's kubeconfig: the provider keeps what it has.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Condition, Conditions as _, annotations,
    conditions::ORPHANED_OBJECTS,
    names,
    orphans::{OrphanAction, OrphanOrder, OrphanSet},
    v1alpha2::{APIServiceBinding, APIServiceNamespace},
};
use bindery_e2e::{
    Consumer, NAMESPACE,
    bound::{self, Bound, free_lease},
    eventually_ok, holds_for,
    lease::PATIENT,
    run,
    wildwest::SOON,
};
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::foreign::Foreign;

const HERD: usize = 15;
/// Long enough for a konnector that means to delete.
const PATIENCE: Duration = Duration::from_secs(6);

#[test]
fn lost_objects_stay_on_the_provider_until_the_user_orders_their_end() -> Result<()> {
    run(async {
        let mut bound = Bound::start("restored", &PATIENT).await?;
        let contract = bound.contract.clone();
        let foreign = Foreign::plant(&bound.provider, &contract).await?;
        bound.create(bound::names("herd", 0..HERD)).await?;
        bound.converged().await?;
        let before = copies(&bound).await?;

        lose(&mut bound, &["wildwest.dev/cowboys/", "namespaces/wild-west"]).await?;
        orphaned(&bound, HERD).await?;
        holds_for("nothing is deleted", PATIENCE, async || {
            ensure!(copies(&bound).await? == before, "copies changed");
            ensure!(is_mapped(&bound, &contract).await?, "the namespace was given back");
            Ok(())
        })
        .await?;
        let refused = bound.bind(&["orphans", "cowboys", "--delete"]).await;
        ensure!(refused.is_err(), "without a terminal it is not asked");

        bound.bind(&["orphans", "cowboys", "--delete", "--yes"]).await?;
        eventually_ok("the copies to go", SOON, async || {
            ensure!(copies(&bound).await?.is_empty(), "some are left");
            ensure!(!is_mapped(&bound, &contract).await?, "the namespace is still mapped");
            Ok(())
        })
        .await?;
        orphaned(&bound, 0).await?;
        foreign.is_untouched().await?;
        bound.expected.clear();
        bound.unbind().await
    })
}

#[test]
fn a_few_lost_objects_stay_too() -> Result<()> {
    run(async {
        let mut bound = Bound::start("few", &PATIENT).await?;
        bound.create(bound::names("herd", 0..HERD)).await?;
        bound.converged().await?;
        let before = copies(&bound).await?;
        let lost: Vec<_> = bound::names("herd", 0..3).collect();
        let keys: Vec<_> = lost
            .iter()
            .map(|name| format!("wildwest.dev/cowboys/wild-west/{name}"))
            .collect();
        lose(&mut bound, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let told = orphaned(&bound, lost.len()).await?;
        ensure!(told.contains("wild-west/herd-000"), "{told}");
        bound.bound_once().await.context("orphans leave a binding ready")?;
        for name in &lost {
            event_names(&bound, name).await?;
        }
        holds_for("nothing is deleted", PATIENCE, async || {
            ensure!(copies(&bound).await? == before, "copies changed");
            Ok(())
        })
        .await?;

        // An order for others is refused, and says so.
        let mut others = OrphanSet::default();
        others.add("somebody else");
        let order = OrphanOrder {
            action: OrphanAction::Delete,
            orphans: others,
        };
        let order = json!({"metadata": {"annotations": {annotations::END_ORPHANS: order.to_string()}}});
        bindings(&bound.consumer)
            .patch("cowboys", &PatchParams::default(), &Patch::Merge(order))
            .await?;
        eventually_ok("the order to be removed", SOON, async || {
            let binding = bindings(&bound.consumer).get("cowboys").await?;
            ensure!(
                !binding.annotations().contains_key(annotations::END_ORPHANS),
                "it is there"
            );
            Ok(())
        })
        .await?;
        orphaned(&bound, lost.len()).await?;
        ensure!(copies(&bound).await? == before, "copies changed");

        // Of three that are made anew, two go on with their copies, and the third is let go before.
        bound.create(lost[..2].iter().cloned()).await?;
        bound.bind(&["orphans", "cowboys", "--relink", "--yes"]).await?;
        orphaned(&bound, 1).await?;
        bound.bind(&["orphans", "cowboys", "--release", "--yes"]).await?;
        orphaned(&bound, 0).await?;
        let kept = bound.cowboys.copies.get(&lost[2]).await?;
        ensure!(kept.annotations().contains_key(annotations::RELEASED), "{kept:?}");
        bound
            .cowboys
            .copies
            .delete(&lost[2], &kube::api::DeleteParams::default())
            .await?;
        bound.expected.remove(&lost[2]);
        bound.converged().await?;
        bound.unbind().await
    })
}

/// What a former version left on a binding: a condition, and the user's consent.
#[test]
fn a_consent_that_a_former_version_asked_for_still_holds() -> Result<()> {
    run(async {
        let mut bound = Bound::start("consent", &PATIENT).await?;
        bound.create(bound::names("herd", 0..3)).await?;
        bound.converged().await?;
        lose(&mut bound, &["wildwest.dev/cowboys/wild-west/herd-000"]).await?;
        orphaned(&bound, 1).await?;
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(10);
        let consent = json!({"metadata": {"annotations": {annotations::ALLOW_DELETIONS: until.to_string()}}});
        bindings(&bound.consumer)
            .patch("cowboys", &PatchParams::default(), &Patch::Merge(consent))
            .await?;
        bound.expected.remove("herd-000");
        bound.converged().await?;
        bound.unbind().await
    })
}

#[test]
fn a_second_cluster_with_the_same_kubeconfig_writes_nothing() -> Result<()> {
    run(async {
        let mut bound = Bound::start("first", &PATIENT).await?;
        let contract = bound.contract.clone();
        bound.create(bound::names("herd", 0..HERD)).await?;
        bound.converged().await?;
        let before = copies(&bound).await?;

        // As if the first had been restored empty, or its manifests applied to another cluster.
        let second = Consumer::start_with("second", &PATIENT).await?;
        give(&bound, &second).await?;
        let refused = condition(&second, "Heartbeating", "ConsumerClusterMismatch").await?;
        let first = bound.consumer.identity().await?;
        ensure!(refused.message.contains(&first), "{refused:?}");
        holds_for("nothing is written", PATIENCE, async || {
            ensure!(copies(&bound).await? == before, "copies changed");
            ensure!(is_mapped(&bound, &contract).await?, "the namespace was given back");
            Ok(())
        })
        .await?;
        // The first one goes on, and the second one can leave without taking anything along.
        bound.create(bound::names("late", 0..3)).await?;
        bound.converged().await?;
        bindings(&second)
            .delete("cowboys", &kube::api::DeleteParams::default())
            .await?;
        eventually_ok("the second binding to end", SOON, async || {
            ensure!(bindings(&second).get_opt("cowboys").await?.is_none(), "it is there");
            Ok(())
        })
        .await?;
        bound.converged().await?;
        bound.status_flows("still here").await?;
        bound.unbind().await
    })
}

/// Waits until the binding tells this many orphans; returns what it says.
async fn orphaned(bound: &Bound, count: usize) -> Result<String> {
    eventually_ok(format!("{count} orphans"), SOON, async || {
        let binding = bindings(&bound.consumer).get("cowboys").await?;
        let message = binding
            .condition(ORPHANED_OBJECTS)
            .map(|condition| condition.message.clone());
        let told = message.as_deref().and_then(OrphanSet::of_message);
        ensure!(told.map_or(0, |told| told.count) == count, "{message:?}");
        Ok(message.unwrap_or_default())
    })
    .await
}

/// Waits until an event names an orphan.
async fn event_names(bound: &Bound, name: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(bound.consumer.plane.client(), "wild-west");
    eventually_ok(format!("an event about {name}"), SOON, async || {
        let events = events.list(&ListParams::default()).await?.items;
        let names = |event: &Event| {
            let of = event.regarding.as_ref().and_then(|of| of.name.as_deref());
            of == Some(name) && event.reason.as_deref() == Some("Orphaned")
        };
        ensure!(events.iter().any(names), "there is none");
        Ok(())
    })
    .await
}

/// Takes objects out of the consumer's store, as a restored backup does that has them not.
async fn lose(bound: &mut Bound, prefixes: &[&str]) -> Result<()> {
    bound
        .consumer
        .konnectors
        .last_mut()
        .context("none was started")?
        .kill9()?;
    bound.consumer.plane.stop_api_server()?;
    for prefix in prefixes {
        ensure!(bound.consumer.plane.lose(prefix).await? > 0, "nothing under {prefix}");
    }
    bound.consumer.plane.start_api_server().await?;
    free_lease(bound.consumer.plane.client(), "kube-bind").await?;
    bound.consumer.start_konnector().await
}

/// Gives another cluster what the first one was given, as its admin might.
async fn give(bound: &Bound, second: &Consumer) -> Result<()> {
    let name = names::provider_kubeconfig_secret("cowboys");
    let secrets = |consumer: &Consumer| Api::<Secret>::namespaced(consumer.plane.client(), NAMESPACE);
    let given = secrets(&bound.consumer).get(&name).await?;
    let secret = Secret {
        metadata: meta(&name),
        data: given.data,
        ..Secret::default()
    };
    secrets(second).create(&PostParams::default(), &secret).await?;
    let first = bindings(&bound.consumer).get("cowboys").await?;
    let mut binding = APIServiceBinding::new("cowboys", first.spec);
    binding.metadata = meta("cowboys");
    bindings(second).create(&PostParams::default(), &binding).await?;
    let namespace = Namespace {
        metadata: meta("wild-west"),
        ..Namespace::default()
    };
    Api::all(second.plane.client())
        .create(&PostParams::default(), &namespace)
        .await?;
    Ok(())
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn bindings(consumer: &Consumer) -> Api<APIServiceBinding> {
    Api::all(consumer.plane.client())
}

/// Waits until a condition has this reason, or is true, which has none.
async fn condition(consumer: &Consumer, kind: &str, reason: &str) -> Result<Condition> {
    eventually_ok(format!("{kind} to be {reason:?}"), SOON, async || {
        let binding = bindings(consumer).get("cowboys").await?;
        let condition = binding.condition(kind).cloned();
        let condition = condition.with_context(|| format!("no such condition: {:?}", binding.conditions()))?;
        ensure!(
            condition.is_true() == reason.is_empty() && condition.reason == reason,
            "{condition:?}"
        );
        Ok(condition)
    })
    .await
}

/// Copies with their versions.
async fn copies(bound: &Bound) -> Result<Vec<(String, Option<String>)>> {
    let everywhere: Api<DynamicObject> =
        Api::all_with(bound.provider.plane.client(), &bindery_e2e::wildwest::resource());
    let copies = everywhere.list(&ListParams::default()).await?.items;
    let ours = copies
        .into_iter()
        .filter(|copy| copy.namespace().as_deref() != Some("foreign"));
    Ok(ours.map(|copy| (copy.name_any(), copy.resource_version())).collect())
}

async fn is_mapped(bound: &Bound, contract: &str) -> Result<bool> {
    let mapped: Api<APIServiceNamespace> = Api::namespaced(bound.provider.plane.client(), contract);
    let mapped = mapped.get_opt("wild-west").await?;
    Ok(mapped.is_some_and(|mapped| mapped.metadata.deletion_timestamp.is_none()))
}
