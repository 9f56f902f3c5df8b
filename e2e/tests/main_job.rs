//! The main job: an API is bound over gRPC, its objects are kept in sync, and unbinding leaves nothing.

use std::{collections::BTreeMap, path::Path};

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
        top_shows_objects_and_changes(&provider, &consumer, &token, &cowboys).await?;

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
    are_there(&server, "server", &SERVER_METRICS_AT_TIMES)?;
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
            are_there(&konnector, "konnector", &KONNECTOR_METRICS_AT_TIMES)?;
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

async fn top_shows_objects_and_changes(
    provider: &Provider,
    consumer: &Consumer,
    token: &Path,
    cowboys: &Cowboys,
) -> Result<()> {
    for intent in ["ride", "rest"] {
        let edit = Patch::Merge(json!({"spec": {"intent": intent}}));
        cowboys.ours.patch("billy", &PatchParams::default(), &edit).await?;
        cowboys.copied("billy", intent).await?;
    }
    let objects = cowboys.ours.list_metadata(&ListParams::default()).await?.items.len();
    let url = format!("http://127.0.0.1:{}/metrics", consumer.admin_port());
    let args = ["top", "--once", "--interval=500ms", "-o", "json", "--metrics-url", &url];
    eventually_ok("top to show the changes", wildwest::SOON, async || {
        let shown: serde_json::Value = serde_json::from_str(&consumer.bind(provider, token, &args).await?)?;
        let items = shown["items"].as_array().context("no list")?;
        let row = items.iter().find(|item| item["binding"] == "cowboys");
        let row = row.with_context(|| format!("no row of the binding in {shown}"))?;
        ensure!(row["objects"] == objects, "{objects} objects: {row}");
        ensure!(row["changes"].as_f64() >= Some(2.0), "{row}");
        ensure!(row["bytes"].as_f64() > Some(0.0), "{row}");
        ensure!(row["changesPerSecond"].is_number() && row["lag"].is_object(), "{row}");
        Ok(())
    })
    .await
}

/// The generated reference of all metrics.
const REFERENCE: &str = include_str!("../../docs/reference/metrics.md");
/// Metrics of a server that are there only at times: once they count something, or with the flag that they are about.
const SERVER_METRICS_AT_TIMES: [&str; 6] = [
    "bindery_audit_lines",
    "bindery_grpc_stream_ends",
    "bindery_oidc_config_loads",
    "bindery_oidc_key_fetches",
    "bindery_oidc_keys",
    "bindery_oidc_verifications",
];
/// Metrics of a konnector that are there only at times: once they count something, or with a flag.
const KONNECTOR_METRICS_AT_TIMES: [&str; 4] = [
    "bindery_bundle_bindings",
    "bindery_credential_renewals",
    "bindery_policy_in_force",
    "bindery_sync_watch_lag_seconds",
];

/// The metrics of a program by the reference, without the `_total` of counters, which is in their samples alone.
fn referenced(program: &str) -> Result<Vec<&'static str>> {
    let (_, section) = REFERENCE
        .split_once(&format!("\n## {program}\n"))
        .with_context(|| format!("the reference has no metrics of the {program}"))?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split('`').next());
    let names: Vec<_> = names.map(|name| name.trim_end_matches("_total")).collect();
    ensure!(names.len() > 10, "the reference has only {names:?} of the {program}");
    Ok(names)
}

/// Fails if what a program serves lacks a metric of the reference that is always there, or has one that the reference lacks.
fn are_there(page: &str, program: &str, at_times: &[&str]) -> Result<()> {
    let (shown, known) = (families(page), referenced(program)?);
    let gone: Vec<_> = at_times.iter().filter(|name| !known.contains(name)).collect();
    ensure!(gone.is_empty(), "{gone:?} are not in the reference");
    let always = known.iter().filter(|name| !at_times.contains(name));
    let missing: Vec<_> = always.filter(|name| !shown.contains(name)).collect();
    ensure!(missing.is_empty(), "{missing:?} are missing: {shown:?}");
    let unknown: Vec<_> = shown.iter().filter(|name| !known.contains(name)).collect();
    ensure!(
        unknown.is_empty(),
        "{unknown:?} are not in the reference: run `cargo xtask gen`"
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
