//! One konnector holds a contract: a clone of the consumer, a consumer that was restored, and a second install write nothing until
//! the user accepts them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Condition, Conditions as _,
    holder::{HELD, HolderDigest, HolderRecord, RecordedHolder},
    names::{self, CLUSTER_BINDING},
    v1alpha2::{APIServiceBinding, ClusterBinding},
};
use bindery_e2e::{
    Consumer, ControlPlane, NAMESPACE,
    bound::{self, Bound, free_lease},
    eventually_ok, holds_for,
    lease::PATIENT,
    run,
    wildwest::SOON,
};
use k8s_openapi::api::{coordination::v1::Lease, rbac::v1::ClusterRole};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};

const HERD: usize = 5;
/// Long enough for a konnector that means to write.
const PATIENCE: Duration = Duration::from_secs(6);

#[test]
fn a_clone_beside_its_origin_writes_nothing_and_says_so() -> Result<()> {
    run(async {
        let mut bound = Bound::start("origin", &PATIENT).await?;
        bound.create(bound::names("herd", 0..HERD)).await?;
        bound.converged().await?;
        let backup = bound.consumer.plane.backup()?;
        // The next step of the holder comes with the next start, or after half of the heartbeat interval.
        restart(&mut bound).await?;
        bound.create(bound::names("late", 0..3)).await?;
        bound.intend("herd-000", "rest").await?;
        bound.converged().await?;

        let plane = ControlPlane::start_before_controllers("clone").await?;
        plane.stop_api_server()?;
        plane.restore(&backup).await?;
        plane.start_api_server().await?;
        free_lease(plane.client(), "kube-bind").await?;
        let before = copies(&bound).await?;
        let clone = Consumer::start_on(plane, &PATIENT).await?;
        let told = waits(&clone, "RestoredOrCloned").await?;
        ensure!(told.message.contains("kubectl bind accept"), "{told:?}");
        holds_for("the clone writes nothing", PATIENCE, async || {
            ensure!(copies(&bound).await? == before, "copies changed");
            Ok(())
        })
        .await?;
        // The origin goes on.
        bound.intend("herd-001", "rest").await?;
        bound.converged().await?;
        bound.unbind().await
    })
}

#[test]
fn a_restored_consumer_waits_until_the_user_accepts_it() -> Result<()> {
    run(async {
        let mut bound = Bound::start("rewound", &PATIENT).await?;
        bound.create(bound::names("herd", 0..HERD)).await?;
        bound.converged().await?;
        let backup = bound.consumer.plane.backup()?;
        restart(&mut bound).await?;
        bound.intend("herd-000", "rest").await?;
        bound.converged().await?;
        let before = copies(&bound).await?;

        kill(&mut bound)?;
        bound.consumer.plane.stop_api_server()?;
        bound.consumer.plane.restore(&backup).await?;
        bound.consumer.plane.start_api_server().await?;
        free_lease(bound.consumer.plane.client(), "kube-bind").await?;
        bound.consumer.start_konnector().await?;
        waits(&bound.consumer, "RestoredOrCloned").await?;
        holds_for("nothing is written", PATIENCE, async || {
            ensure!(copies(&bound).await? == before, "copies changed");
            Ok(())
        })
        .await?;

        let refused = bound.bind(&["accept", "cowboys"]).await;
        ensure!(refused.is_err(), "without a terminal it is not asked");
        let shown = bound.bind(&["accept"]).await?;
        ensure!(shown.contains("RestoredOrCloned"), "{shown}");
        bound.bind(&["accept", "cowboys", "--yes"]).await?;
        bound.expected.insert("herd-000".to_owned(), "ride".to_owned());
        bound.converged().await?;
        goes_on(&bound.consumer).await?;
        bound.unbind().await
    })
}

#[test]
fn a_second_install_waits_until_the_user_accepts_it() -> Result<()> {
    run(async {
        let mut bound = Bound::start("install", &PATIENT).await?;
        bound.create(bound::names("herd", 0..HERD)).await?;
        bound.converged().await?;
        kill(&mut bound)?;
        let leases: Api<Lease> = Api::namespaced(bound.consumer.plane.client(), NAMESPACE);
        leases.delete("kube-bind", &DeleteParams::default()).await?;
        bound.consumer.start_konnector().await?;
        waits(&bound.consumer, "SecondInstall").await?;
        let before = copies(&bound).await?;
        bound.intend("herd-000", "rest").await?;
        holds_for("nothing is written", PATIENCE, async || {
            ensure!(copies(&bound).await? == before, "copies changed");
            Ok(())
        })
        .await?;
        bound.bind(&["accept", "cowboys", "--yes"]).await?;
        bound.converged().await?;
        goes_on(&bound.consumer).await?;
        bound.unbind().await
    })
}

#[test]
fn a_deleted_cluster_binding_is_told_and_nothing_is_written_until_the_user_accepts() -> Result<()> {
    run(async {
        let mut bound = Bound::start("unrecorded", &PATIENT).await?;
        bound.create(bound::names("herd", 0..HERD)).await?;
        bound.converged().await?;
        // The Lease records which ClusterBinding has the step.
        restart(&mut bound).await?;
        bound.converged().await?;
        let records: Api<ClusterBinding> = Api::namespaced(bound.provider.plane.client(), &bound.contract);
        records.delete(CLUSTER_BINDING, &DeleteParams::default()).await?;
        waits(&bound.consumer, "RecordDeleted").await?;
        let before = copies(&bound).await?;
        bound.intend("herd-000", "rest").await?;
        holds_for("nothing is written", PATIENCE, async || {
            ensure!(copies(&bound).await? == before, "copies changed");
            Ok(())
        })
        .await?;
        bound.bind(&["accept", "cowboys", "--yes"]).await?;
        bound.converged().await?;
        goes_on(&bound.consumer).await?;
        bound.unbind().await
    })
}

#[test]
fn a_right_to_list_that_is_taken_away_is_told_and_ends_nothing() -> Result<()> {
    run(async {
        let mut bound = Bound::start("blind", &PATIENT).await?;
        bound.create(bound::names("herd", 0..HERD)).await?;
        bound.converged().await?;
        let roles: Api<ClusterRole> = Api::all(bound.consumer.plane.client());
        let name = names::konnector_cluster_role("cowboys");
        let mut role = roles.get(&name).await?;
        let before_it = role.rules.clone();
        for rule in role.rules.iter_mut().flatten() {
            rule.verbs.retain(|verb| verb != "list");
        }
        let mut role = roles.replace(&name, &PostParams::default(), &role).await?;
        let before = copies(&bound).await?;
        // After a break, the watch asks for the version of the list.
        bound.consumer.plane.stop_api_server()?;
        bound.consumer.plane.start_api_server().await?;
        eventually_ok("the missing right to be told", SOON, async || {
            let told = bound.condition("InformersSynced").await?;
            ensure!(told.reason == "Forbidden" && told.message.contains(&name), "{told:?}");
            Ok(())
        })
        .await?;
        holds_for("the contract is held, and nothing ends", PATIENCE, async || {
            let binding = binding(&bound.consumer).await?;
            ensure!(binding.condition(HELD).is_none(), "{:?}", binding.conditions());
            ensure!(copies(&bound).await? == before, "copies changed");
            Ok(())
        })
        .await?;
        role.rules = before_it;
        roles.replace(&name, &PostParams::default(), &role).await?;
        bound.intend("herd-000", "rest").await?;
        bound.converged().await?;
        goes_on(&bound.consumer).await?;
        bound.unbind().await
    })
}

#[test]
fn a_failover_within_a_deployment_goes_on_at_once() -> Result<()> {
    run(async {
        let mut bound = Bound::start("failover", &PATIENT).await?;
        bound.create(bound::names("herd", 0..HERD)).await?;
        bound.converged().await?;
        for round in 0..3 {
            bound.consumer.start_konnector().await?;
            let last = bound.consumer.konnectors.len() - 2;
            // Killed, not stopped: nothing is said to the next one.
            bound.consumer.konnectors[last].kill9()?;
            free_lease(bound.consumer.plane.client(), "kube-bind").await?;
            bound.intend("herd-000", &format!("ride {round}")).await?;
            bound.converged().await?;
            goes_on(&bound.consumer).await?;
        }
        bound.unbind().await?;
        // What was given up is taken again.
        bound.expected.clear();
        bound.bind(&["cowboys"]).await?;
        bound.create(["again".to_owned()]).await?;
        bound.converged().await?;
        goes_on(&bound.consumer).await?;
        bound.unbind().await
    })
}

/// Starts the konnector anew, and waits until the provider has the next step of the holder.
async fn restart(bound: &mut Bound) -> Result<()> {
    let before = record(bound).await?;
    ensure!(before.is_some(), "nobody holds the contract");
    bound.consumer.stop_konnectors().await?;
    bound.consumer.start_konnector().await?;
    eventually_ok("the next step of the holder", SOON, async || {
        ensure!(record(bound).await? != before, "it is {before:?}");
        Ok(())
    })
    .await
}

/// What the provider records of the holder.
async fn record(bound: &Bound) -> Result<Option<HolderRecord>> {
    let records: Api<ClusterBinding> = Api::namespaced(bound.provider.plane.client(), &bound.contract);
    Ok(RecordedHolder::of(&records.get(CLUSTER_BINDING).await?).record)
}

fn kill(bound: &mut Bound) -> Result<()> {
    let konnector = bound.consumer.konnectors.last_mut().context("none was started")?;
    konnector.kill9()
}

/// Waits until the binding says that it waits for the user, for this reason.
async fn waits(consumer: &Consumer, reason: &str) -> Result<Condition> {
    eventually_ok(format!("Held to be {reason}"), SOON, async || {
        let binding = binding(consumer).await?;
        let held = binding.condition(HELD).cloned().context("no condition Held")?;
        ensure!(held.reason == reason, "{held:?}");
        ensure!(HolderDigest::of_message(&held.message).is_some(), "{held:?}");
        ensure!(!binding.is_condition_true("Ready"), "it is ready");
        Ok(held)
    })
    .await
}

/// Waits until the binding is ready and says nothing of the holder.
async fn goes_on(consumer: &Consumer) -> Result<()> {
    eventually_ok("the binding to go on", SOON, async || {
        let binding = binding(consumer).await?;
        ensure!(binding.condition(HELD).is_none(), "{:?}", binding.conditions());
        ensure!(binding.is_condition_true("Ready"), "{:?}", binding.conditions());
        Ok(())
    })
    .await
}

async fn binding(consumer: &Consumer) -> Result<APIServiceBinding> {
    let bindings: Api<APIServiceBinding> = Api::all(consumer.plane.client());
    Ok(bindings.get("cowboys").await?)
}

/// Copies with their versions.
async fn copies(bound: &Bound) -> Result<BTreeMap<String, Option<String>>> {
    let copies = bound.cowboys.copies.list_metadata(&ListParams::default()).await?.items;
    Ok(copies
        .into_iter()
        .map(|copy| (copy.name_any(), copy.resource_version()))
        .collect())
}
