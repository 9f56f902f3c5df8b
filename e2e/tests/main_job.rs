//! The main job: an API is bound over gRPC, its objects are kept in sync, and unbinding leaves nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Consumer, Provider, eventually_ok, holds_for, http, lease, remains, run,
    wildwest::{self, Cowboys},
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

#[test]
fn an_api_is_bound_synced_and_unbound() -> Result<()> {
    run(async {
        let (provider, mut consumer) = tokio::try_join!(
            Provider::start_with("main-p", &lease::PATIENT),
            Consumer::start_with("main-c", &lease::PATIENT)
        )?;
        let token = provider.principal("team", &["cowboys"]).await?;
        let listed = consumer.bind(&provider, &token, &["templates"]).await?;
        ensure!(listed.contains("cowboys"), "{listed}");
        consumer.bind(&provider, &token, &["cowboys"]).await?;
        // The same once more changes nothing and succeeds.
        consumer.bind(&provider, &token, &["cowboys"]).await?;
        wildwest::namespace(consumer.plane.client(), "wild-west").await?;
        let cowboys = Cowboys::of(&provider, &consumer, "wild-west").await?;

        spec_goes_up_and_status_comes_down(&cowboys).await?;
        removed_fields_are_removed(&cowboys).await?;
        a_restart_writes_nothing(&mut consumer, &cowboys).await?;
        a_copy_deleted_on_the_provider_comes_back(&cowboys).await?;

        metrics_tell_what_happened(&provider, &consumer, &cowboys).await?;

        cowboys.ours.delete("billy", &DeleteParams::default()).await?;
        cowboys.gone("billy").await?;
        cowboys.create("left-over", "stay").await?;
        cowboys.copied("left-over", "stay").await?;
        let tree = consumer.bind(&provider, &token, &["status"]).await?;
        ensure!(tree.contains("cowboys"), "{tree}");
        consumer
            .bind(&provider, &token, &["unbind", "cowboys", "--delete-objects"])
            .await?;
        remains::none(&provider, &consumer, "cowboys", "wildwest.dev").await
    })
}

async fn spec_goes_up_and_status_comes_down(cowboys: &Cowboys) -> Result<()> {
    let ours = cowboys.create("billy", "rob a train").await?;
    let copy = cowboys.copied("billy", "rob a train").await?;
    let mark = |key: &str| copy.annotations().get(key).cloned();
    ensure!(
        mark("kube-bind.io/consumer-uid") == ours.uid(),
        "{:?}",
        copy.annotations()
    );
    ensure!(mark("kube-bind.io/consumer-namespace").as_deref() == Some("wild-west"));
    ensure!(mark("kube-bind.io/cluster-namespace").is_some());
    ensure!(mark("kube-bind.io/bound").as_deref() == Some("true"));
    cowboys.report("billy", "caught").await?;
    let seen = cowboys.reported("billy", "caught").await?;
    ensure!(
        seen.annotations().get("kube-bind.io/provider-uid").cloned() == copy.uid(),
        "{:?}",
        seen.annotations()
    );
    ensure!(
        seen.finalizers()
            .iter()
            .any(|finalizer| finalizer == "kubebind.io/syncer")
    );
    // One that the user edits is put back.
    let forged = Patch::Merge(json!({"status": {"result": "escaped"}}));
    cowboys
        .ours
        .patch_status("billy", &PatchParams::default(), &forged)
        .await?;
    cowboys.reported("billy", "caught").await.map(drop)
}

async fn removed_fields_are_removed(cowboys: &Cowboys) -> Result<()> {
    let add = Patch::Merge(json!({
        "metadata": {"labels": {"gang": "dalton", "kubernetes.io/own": "x"}},
        "spec": {"secretRefs": [{"name": "colt-45-permit"}]},
    }));
    cowboys.ours.patch("billy", &PatchParams::default(), &add).await?;
    let copy = wildwest::wait(
        "the label and the field on the copy",
        &cowboys.copies,
        "billy",
        |copy| copy.labels().contains_key("gang") && copy.data["spec"]["secretRefs"].is_array(),
    )
    .await?;
    ensure!(!copy.labels().contains_key("kubernetes.io/own"), "{:?}", copy.labels());
    // What the provider adds stays.
    let added = Patch::Merge(json!({"metadata": {"labels": {"provider": "was-here"}}}));
    cowboys.copies.patch("billy", &PatchParams::default(), &added).await?;
    let remove = Patch::Merge(json!({"metadata": {"labels": {"gang": null}}, "spec": {"secretRefs": null}}));
    cowboys.ours.patch("billy", &PatchParams::default(), &remove).await?;
    let copy = wildwest::wait(
        "label and field to go from the copy",
        &cowboys.copies,
        "billy",
        |copy| !copy.labels().contains_key("gang") && copy.data["spec"]["secretRefs"].is_null(),
    )
    .await?;
    ensure!(
        copy.labels().get("provider").map(String::as_str) == Some("was-here"),
        "{:?}",
        copy.labels()
    );
    Ok(())
}

async fn a_restart_writes_nothing(consumer: &mut Consumer, cowboys: &Cowboys) -> Result<()> {
    for number in 0..20 {
        cowboys.create(&format!("extra-{number}"), "ride").await?;
    }
    for number in 0..20 {
        let name = format!("extra-{number}");
        cowboys.copied(&name, "ride").await?;
        let noted = |object: &kube::api::DynamicObject| object.annotations().contains_key("kube-bind.io/provider-uid");
        wildwest::wait("the copy to be noted", &cowboys.ours, &name, noted).await?;
    }
    consumer.konnectors[0].terminate(wildwest::SOON).await?;
    consumer.konnectors.clear();
    let before = versions(cowboys).await?;
    consumer.start_konnector().await?;
    // In sync again: a change goes through. All others must have stayed as they were.
    cowboys.create("after-restart", "ride on").await?;
    cowboys.copied("after-restart", "ride on").await?;
    holds_for("no write at rest", std::time::Duration::from_secs(2), async || {
        let after = versions(cowboys).await?;
        let changed: Vec<_> = before
            .iter()
            .filter(|(key, version)| after.get(*key) != Some(*version))
            .collect();
        ensure!(changed.is_empty(), "written at restart: {changed:?}");
        Ok(())
    })
    .await
}

async fn a_copy_deleted_on_the_provider_comes_back(cowboys: &Cowboys) -> Result<()> {
    let before = cowboys.copies.get("extra-0").await?.uid().context("a UID")?;
    cowboys.copies.delete("extra-0", &DeleteParams::default()).await?;
    let back = |copy: &kube::api::DynamicObject| copy.uid().as_ref() != Some(&before);
    wildwest::wait("the copy to come back", &cowboys.copies, "extra-0", back)
        .await
        .map(drop)
}

async fn metrics_tell_what_happened(provider: &Provider, consumer: &Consumer, cowboys: &Cowboys) -> Result<()> {
    let server = metrics(provider.admin_port()).await?;
    are_there(&server, &SERVER_METRICS, &SERVER_METRICS_AT_TIMES)?;
    let method = r#"CreateBindableResourcesRequest""#;
    let binds = sum(&server, "bindery_grpc_calls_total", &[method, r#"code="OK""#])?;
    ensure!(binds >= 1.0, "{binds} binds in:\n{server}");
    let (count, sum_of) = ("bindery_grpc_call_seconds_count", "bindery_grpc_call_seconds_sum");
    ensure!(
        sum(&server, count, &[method])? >= binds && sum(&server, sum_of, &[method])? > 0.0,
        "{server}"
    );

    let objects = cowboys.ours.list_metadata(&ListParams::default()).await?.items.len();
    let binding = r#"binding="cowboys""#;
    eventually_ok(
        "the konnector's metrics to say that all is in sync",
        wildwest::SOON,
        async || {
            let konnector = metrics(consumer.admin_port()).await?;
            are_there(&konnector, &KONNECTOR_METRICS, &KONNECTOR_METRICS_AT_TIMES)?;
            let is = |name: &str, labels: &[&str], expect: f64| -> Result<()> {
                let value = sum(&konnector, name, labels)?;
                ensure!(
                    (value - expect).abs() < f64::EPSILON,
                    "{name} is {value} and not {expect} in:\n{konnector}"
                );
                Ok(())
            };
            is("bindery_sync_objects", &[binding], f64::from(u32::try_from(objects)?))?;
            is("bindery_sync_pending", &[binding], 0.0)?;
            is("bindery_sync_synced", &[binding], 1.0)?;
            is("bindery_leading", &[], 1.0)?;
            is("bindery_sessions", &[], 1.0)?;
            for counted in [
                "bindery_heartbeats_total",
                "bindery_sync_operations_total",
                "bindery_kubernetes_bytes_total",
            ] {
                ensure!(sum(&konnector, counted, &[])? >= 1.0, "{counted} is 0 in:\n{konnector}");
            }
            Ok(())
        },
    )
    .await
}

/// Metrics of a server that has served a bind. The unit of a counter, `_total`, is in its samples alone.
const SERVER_METRICS: [&str; 23] = [
    "bindery_contracts",
    "bindery_credentials",
    "bindery_exports",
    "bindery_grpc_call_seconds",
    "bindery_grpc_calls",
    "bindery_grpc_streams",
    "bindery_grpc_token_checks",
    "bindery_kubernetes_bytes",
    "bindery_kubernetes_connections",
    "bindery_kubernetes_requests",
    "bindery_kubernetes_responses",
    "bindery_leading",
    "bindery_limit_refusals",
    "bindery_policy_in_force",
    "bindery_queued_keys",
    "bindery_reconcile_seconds",
    "bindery_reconcile_wait_seconds",
    "bindery_reconciles",
    "bindery_released_objects",
    "bindery_renewal_locks",
    "bindery_requests",
    "bindery_templates",
    "bindery_tls_expires_in_seconds",
];
/// Metrics of a server that are there once they count something.
const SERVER_METRICS_AT_TIMES: [&str; 2] = ["bindery_grpc_connection_ends", "bindery_grpc_stream_ends"];
/// Metrics of a konnector that serves a binding.
const KONNECTOR_METRICS: [&str; 14] = [
    "bindery_heartbeats",
    "bindery_kubernetes_bytes",
    "bindery_kubernetes_connections",
    "bindery_kubernetes_requests",
    "bindery_kubernetes_responses",
    "bindery_leading",
    "bindery_sessions",
    "bindery_sync_objects",
    "bindery_sync_operation_seconds",
    "bindery_sync_operations",
    "bindery_sync_orphans",
    "bindery_sync_pending",
    "bindery_sync_queue_wait_seconds",
    "bindery_sync_synced",
];
/// Metrics of a konnector that are there once they count something.
const KONNECTOR_METRICS_AT_TIMES: [&str; 3] = [
    "bindery_bundle_bindings",
    "bindery_credential_renewals",
    "bindery_sync_watch_lag_seconds",
];

/// Fails if a page lacks a metric, or has one of an unknown name.
fn are_there(page: &str, always: &[&str], at_times: &[&str]) -> Result<()> {
    let shown = families(page);
    let missing: Vec<_> = always.iter().filter(|name| !shown.contains(name)).collect();
    ensure!(missing.is_empty(), "{missing:?} are missing: {shown:?}");
    let known = [always, at_times].concat();
    let unknown: Vec<_> = shown.iter().filter(|name| !known.contains(name)).collect();
    ensure!(
        unknown.is_empty(),
        "{unknown:?} are new: name them here and in the documentation"
    );
    Ok(())
}

/// The page of a process's metrics.
async fn metrics(port: u16) -> Result<String> {
    let (status, page) = http::get(port, "/metrics").await?;
    ensure!(status == 200, "{status}: {page}");
    Ok(page)
}

/// The names of the metrics on a page.
fn families(page: &str) -> Vec<&str> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).collect()
}

/// Sum of the samples of a name that have all of these labels.
fn sum(page: &str, name: &str, labels: &[&str]) -> Result<f64> {
    let samples = page.lines().filter_map(|line| {
        let (sample, value) = line.rsplit_once(' ')?;
        let is_it = sample.split('{').next() == Some(name) && labels.iter().all(|label| sample.contains(label));
        is_it.then_some(value)
    });
    let values: Result<Vec<f64>, _> = samples.map(str::parse).collect();
    let values = values?;
    ensure!(!values.is_empty(), "{name} with {labels:?} is missing in:\n{page}");
    Ok(values.iter().sum())
}

/// Resource versions of all objects on both sides.
async fn versions(cowboys: &Cowboys) -> Result<BTreeMap<String, Option<String>>> {
    let mut versions = BTreeMap::new();
    for (side, api) in [("consumer", &cowboys.ours), ("provider", &cowboys.copies)] {
        for object in api.list(&ListParams::default()).await? {
            versions.insert(format!("{side}/{}", object.name_any()), object.resource_version());
        }
    }
    Ok(versions)
}
