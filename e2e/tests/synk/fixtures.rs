//! What real charts render: applied, changed, reduced, rolled back and deleted.

use anyhow::{Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    case::Case,
    documents::Documents,
    life::Life,
    list,
    world::{case, rough},
};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

#[test]
fn an_operator_with_its_kinds_and_a_webhook() -> Result<()> {
    rough("operator", async |case| {
        let first = Documents::of(include_str!("fixtures/operator.yaml"));
        let mut life = Life::begin(case, &first.text(), 11).await?;
        let hook = case.find("pods", "ferry-operator-test-connection").await?;
        ensure!(hook.is_none(), "a test of the chart is no part of the set");
        let ferry = case.get("harbour.example/v1/ferries", "first").await?;
        ensure!(
            ferry["spec"]["cars"] == 12 && ferry["spec"]["tariff"]["adult"] == 3.5,
            "{ferry:#}"
        );

        // What a webhook's owner fills in is not the set's.
        let webhooks = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        let bundle = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ca_bundle(case)}]);
        let patch = [
            "patch",
            "validatingwebhookconfiguration",
            "ferry-operator",
            "--type=json",
            "-p",
        ];
        case.kubectl(&[&patch[..], &[&bundle.to_string()]].concat(), "").await?;
        life.again().await?;

        let next = first.with("ferry-operator:0.9.1", "ferry-operator:0.10.0")?;
        let next = next
            .with("minimum: 0", "minimum: 1")?
            .with("timeoutSeconds: 1", "timeoutSeconds: 2")?;
        life.apply(&next.text(), 11).await?;
        let webhook = case.find_global(webhooks, "ferry-operator").await?.unwrap_or_default();
        let webhook = &webhook["webhooks"][0];
        ensure!(
            webhook["clientConfig"]["caBundle"] == bundle[0]["value"],
            "the CA is gone: {webhook:#}"
        );
        ensure!(webhook["timeoutSeconds"] == 2, "{webhook:#}");
        let container = |deployment: &Value| deployment["spec"]["template"]["spec"]["containers"][0].clone();
        let deployment = case.get("apps/v1/deployments", "ferry-operator").await?;
        ensure!(
            container(&deployment)["image"] == "harbour.example/ferry-operator:0.10.0",
            "{deployment:#}"
        );

        // With its definition out of the set, what is of that kind stays; what left the set does not.
        let less = next.without(&["kind: Ferry\n", "name: first"])?;
        let less = less
            .without(&["name: piers.harbour.example"])?
            .without(&["name: ferry-operator-auth-reader"])?;
        life.apply(&less.text(), 8).await?;
        case.gone("harbour.example/v1/ferries", "first").await?;
        case.gone_from(&format!(
            "/apis/{RBAC}/namespaces/kube-system/rolebindings/ferry-operator-auth-reader"
        ))
        .await?;

        life.roll_back(1, 11).await?;
        let deployment = case.get("apps/v1/deployments", "ferry-operator").await?;
        ensure!(
            container(&deployment)["image"] == "harbour.example/ferry-operator:0.9.1",
            "{deployment:#}"
        );
        life.end().await
    })
}

#[test]
fn a_database_with_quantities_and_secrets() -> Result<()> {
    case("database", async |case| {
        let first = Documents::of(include_str!("fixtures/database.yaml"));
        let mut life = Life::begin(case, &first.text(), 9).await?;
        let secret = case.get("secrets", "ledger-db").await?;
        let keys: Vec<_> = secret["data"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .collect();
        ensure!(
            keys == ["admin-password", "pg_hba.conf", "replication-password"],
            "{keys:?}"
        );
        let kept = case.get("apps/v1/statefulsets", "ledger-db").await?;

        let next = first.with(
            "requests: {cpu: 1000m, memory: 1024Mi}",
            "requests: {cpu: 1500m, memory: 1024Mi}",
        )?;
        let next = next
            .with("otter-under-ice", "heron-over-mud")?
            .with("maxUnavailable: 1", "maxUnavailable: 50%")?;
        life.apply(&next.text(), 9).await?;
        let changed = case.get("apps/v1/statefulsets", "ledger-db").await?;
        ensure!(changed["metadata"]["uid"] == kept["metadata"]["uid"], "made anew");
        let requests = &changed["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"];
        ensure!(requests["cpu"] == "1500m" && requests["memory"] == "1Gi", "{requests}");
        let secret = case.get("secrets", "ledger-db").await?;
        ensure!(
            secret["data"]["admin-password"] == "aGVyb24tb3Zlci1tdWQ=",
            "the password is the old one"
        );

        // A key that is gone from `stringData` is gone from the Secret.
        let less = next.with(
            "  pg_hba.conf: |\n    local all all trust\n    host all all 0.0.0.0/0 md5\n",
            "",
        )?;
        let less = less
            .without(&["kind: PodDisruptionBudget"])?
            .without(&["name: ledger-db-backup"])?;
        life.apply(&less.text(), 7).await?;
        case.gone("policy/v1/poddisruptionbudgets", "ledger-db").await?;
        case.gone("persistentvolumeclaims", "ledger-db-backup").await?;
        let secret = case.get("secrets", "ledger-db").await?;
        ensure!(secret["data"]["pg_hba.conf"].is_null(), "the key is still there");

        life.roll_back(1, 9).await?;
        let secret = case.get("secrets", "ledger-db").await?;
        ensure!(
            secret["data"]["admin-password"] == "b3R0ZXItdW5kZXItaWNl",
            "the password is not the first one"
        );
        ensure!(secret["data"]["pg_hba.conf"].is_string(), "the key is not back");
        life.end().await
    })
}

#[test]
fn a_job_that_changes_is_made_anew() -> Result<()> {
    case("migration", async |case| {
        let first = Documents::of(include_str!("fixtures/migration.yaml"));
        let mut life = Life::begin(case, &first.text(), 3).await?;
        let uid = async || anyhow::Ok(case.get("batch/v1/jobs", "shop-migrate").await?["metadata"]["uid"].clone());
        let mut seen = vec![uid().await?];

        let next = first.with("shop.example/migrate:1.0", "shop.example/migrate:2.0")?;
        life.apply(&next.text(), 3).await?;
        seen.push(uid().await?);
        let job = case.settled(2).await?["status"]["applied"].clone();
        let actions = crate::look::objects_in(&job);
        let action = actions
            .iter()
            .find(|object| object["kind"] == "Job")
            .map(|object| &object["action"]);
        ensure!(action == Some(&json!("Replace")), "{actions:#?}");

        // What may be changed of a Job is changed in place.
        let next = next.with("backoffLimit: 3", "backoffLimit: 4")?;
        life.apply(&next.text(), 3).await?;
        ensure!(uid().await? == seen[1], "made anew without need");

        let less = next.without(&["kind: CronJob"])?;
        life.apply(&less.text(), 2).await?;
        case.gone("batch/v1/cronjobs", "shop-nightly").await?;

        life.roll_back(2, 3).await?;
        let job = case.get("batch/v1/jobs", "shop-migrate").await?;
        ensure!(
            job["spec"]["template"]["spec"]["containers"][0]["image"] == "shop.example/migrate:2.0",
            "{job:#}"
        );
        ensure!(seen[0] != seen[1] && job["spec"]["backoffLimit"] == 3, "{job:#}");
        life.end().await
    })
}

#[test]
fn wide_rbac_over_two_namespaces() -> Result<()> {
    case("rbac", async |case| {
        let first = rbac(12, "get");
        let count = first.len();
        ensure!(count > 60, "{count} are not wide");
        let mut life = Life::begin(case, &list(&first), count).await?;

        let next = rbac(12, "watch");
        life.apply(&list(&next), count).await?;
        let role = case.get(&format!("{RBAC}/roles"), "rbac-3").await?;
        ensure!(role["rules"][0]["verbs"] == json!(["watch", "list"]), "{role:#}");

        let less = rbac(8, "watch");
        life.apply(&list(&less), less.len()).await?;
        case.gone(&format!("{RBAC}/roles"), "rbac-9").await?;
        case.gone_from(&format!("/apis/{RBAC}/clusterroles/rbac-9")).await?;
        case.gone_from(&format!("/apis/{RBAC}/namespaces/kube-system/rolebindings/rbac-9"))
            .await?;

        life.roll_back(1, count).await?;
        life.end().await
    })
}

#[test]
fn a_config_map_too_large_to_remember() -> Result<()> {
    case("large", async |case| {
        // Random enough that it stays large when it is kept for a rollback.
        let words = |seed: u64| {
            let mut state = seed;
            let word = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                format!("{:016x}\n", state ^ (state >> 31))
            };
            std::iter::repeat_with(word).take(30_000).collect::<String>()
        };
        let map = |seed: u64| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "table"},
                "data": {"table": words(seed), "seed": seed.to_string()},
            })
        };
        let small = crate::config_map("small", "1");
        let mut life = Life::begin(case, &list(&[map(1), small.clone()]), 2).await?;
        let annotation = "kubectl.kubernetes.io/last-applied-configuration";
        let annotated = async |name: &str| {
            let object = case.get("configmaps", name).await?;
            anyhow::Ok(object["metadata"]["annotations"][annotation].is_string())
        };
        ensure!(
            !annotated("table").await? && annotated("small").await?,
            "which one is annotated?"
        );
        life.apply(&list(&[map(2), small.clone()]), 2).await?;
        ensure!(
            case.get("configmaps", "table").await?["data"]["table"] == words(2),
            "it is not the second"
        );
        life.apply(&list(&[small]), 1).await?;
        case.gone("configmaps", "table").await?;
        life.roll_back(1, 2).await?;
        ensure!(
            case.get("configmaps", "table").await?["data"]["table"] == words(1),
            "it is not the first"
        );
        life.end().await
    })
}

/// A CA as an admission server fills it in.
fn ca_bundle(case: &Case) -> String {
    BASE64_STANDARD.encode(case.plane.ca_pem())
}

/// Roles for as many teams, with bindings, in the set's namespace, in kube-system and everywhere.
fn rbac(teams: usize, verb: &str) -> Vec<Value> {
    let rules = json!([{"apiGroups": ["", "apps"], "resources": ["pods", "deployments"], "verbs": [verb, "list"]}]);
    let subject = |team: usize| json!([{"kind": "Group", "name": format!("team-{team}"), "apiGroup": "rbac.authorization.k8s.io"}]);
    // Aggregates a role that outlives the set. When a role that it aggregates is deleted, the controller applies the new rules without
    // a precondition, and so creates the role once more if it has just been deleted itself.
    let mut all = vec![json!({
        "apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "rbac-all"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}]},
    })];
    for team in 0..teams {
        let name = format!("rbac-{team}");
        let role = |kind: &str, namespace: Option<&str>| json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": rules});
        let binding = |kind: &str, role: &str, namespace: Option<&str>| {
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name});
            json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "roleRef": role, "subjects": subject(team)})
        };
        all.extend([
            role("Role", None),
            binding("RoleBinding", "Role", None),
            role("ClusterRole", None),
            binding("ClusterRoleBinding", "ClusterRole", None),
            binding("RoleBinding", "ClusterRole", Some("kube-system")),
        ]);
    }
    all
}
