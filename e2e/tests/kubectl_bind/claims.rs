//! What a provider claims: shown, accepted, rejected, and changed later.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::APIServiceBinding;
use bindery_e2e::run;
use bindery_proto::v1alpha2 as proto;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::World;

const ROLE: &str = "kube-bind-konnector-cowboys";
const SOON: Duration = Duration::from_mins(2);

/// A claim on a core resource, by the label `app`, or on every object.
pub(crate) fn claim(resource: &str, app: Option<&str>) -> proto::PermissionClaim {
    let labels = proto::LabelSelector {
        match_labels: app.map(|app| ("app".to_owned(), app.to_owned())).into_iter().collect(),
        ..proto::LabelSelector::default()
    };
    proto::PermissionClaim {
        group: String::new(),
        resource: resource.to_owned(),
        selector: Some(proto::Selector {
            label_selector: Some(labels),
            ..proto::Selector::default()
        }),
    }
}

/// Plays the konnector: says which claims are in effect.
async fn report_claims(world: &World, resources: &[&str]) -> Result<()> {
    let resources: Vec<_> = resources.iter().map(|resource| (*resource, None)).collect();
    report(world, &resources).await
}

async fn report(world: &World, resources: &[(&str, Option<&str>)]) -> Result<()> {
    let status = json!({ "status": { "permissionClaims": claims(resources) } });
    let bindings = Api::<APIServiceBinding>::all(world.plane.client());
    bindings
        .patch_status("cowboys", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

async fn binding(world: &World) -> Result<APIServiceBinding> {
    Ok(Api::all(world.plane.client()).get("cowboys").await?)
}

async fn role(world: &World) -> Result<ClusterRole> {
    Ok(Api::all(world.plane.client()).get(ROLE).await?)
}

async fn rejected(world: &World) -> Result<Vec<String>> {
    let binding = binding(world).await?;
    let rejected = binding.spec.rejected_permission_claims.iter();
    Ok(rejected.map(ToString::to_string).collect())
}

/// The verbs that the konnector holds on a core resource.
async fn verbs(world: &World, resource: &str) -> Result<Vec<String>> {
    let rules = role(world).await?.rules.unwrap_or_default();
    let rule = rules.into_iter().find(|rule| {
        let resources = rule.resources.iter().flatten();
        rule.api_groups.as_deref() == Some(&[String::new()][..]) && resources.into_iter().any(|held| held == resource)
    });
    Ok(rule.map(|rule| rule.verbs).unwrap_or_default())
}

const ALL_VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// Once the binding does not reject any more, plays the konnector that takes up the claim; the right must be there by then.
async fn take_up(world: &World) -> Result<()> {
    bindery_e2e::eventually_ok("the consent", SOON, async || {
        ensure!(rejected(world).await?.is_empty());
        Ok(())
    })
    .await?;
    ensure!(verbs(world, "secrets").await? == ALL_VERBS);
    report_claims(world, &["secrets"]).await
}

/// Once the binding says so, plays the konnector that withdraws; the right must be there till then.
async fn withdraw(world: &World) -> Result<()> {
    bindery_e2e::eventually_ok("the rejection", SOON, async || {
        ensure!(rejected(world).await? == ["secrets"]);
        Ok(())
    })
    .await?;
    bindery_e2e::holds_for("the konnector's right", Duration::from_millis(500), async || {
        ensure!(verbs(world, "secrets").await? == ALL_VERBS);
        Ok(())
    })
    .await?;
    report_claims(world, &[]).await
}

#[test]
fn the_consumer_decides_what_is_claimed() -> Result<()> {
    run(async {
        let world = World::start("cli-claims").await?;
        world.backend.script.lock().claims = vec![claim("secrets", None)];
        everything_needs_a_yes(&world).await?;
        rejecting_gives_no_right(&world).await?;
        accepting_gives_the_right_first(&world).await?;
        rejecting_takes_the_right_last(&world).await?;
        a_new_bind_rejects_too(&world).await?;
        claims_cannot_change_meanwhile(&world).await?;
        what_becomes_wider_waits_for_a_yes(&world).await?;
        what_is_rejected_is_not_recorded(&world).await?;
        somebody_elses_binding_gets_the_record(&world).await
    })
}

/// The contract stands on the same cluster, without an export yet.
async fn contract(world: &World) -> Result<()> {
    let plane = &world.plane;
    plane.apply(&bindery_e2e::manifests::folder("crds")?).await?;
    plane.kubectl(&["create", "namespace", "kube-bind-x"]).await?;
    plane
        .kubectl(&["create", "serviceaccount", "kube-binder", "-n", "kube-bind-x"])
        .await?;
    plane
        .kubectl(&[
            "create",
            "clusterrole",
            "binder",
            "--verb=get",
            "--resource=apiserviceexports.kube-bind.io",
        ])
        .await?;
    let subject = "--serviceaccount=kube-bind-x:kube-binder";
    plane
        .kubectl(&[
            "create",
            "clusterrolebinding",
            "binder",
            "--clusterrole=binder",
            subject,
        ])
        .await?;
    let token = plane.token_for("kube-bind-x", "kube-binder", &[], 3600).await?;
    world.backend.script.lock().access = Some((plane.server_url(), plane.ca_pem(), token));
    Ok(())
}

/// Selects by the label `app`, or every object.
fn selector(app: Option<&str>) -> Value {
    match app {
        Some(app) => json!({ "labelSelector": { "matchLabels": { "app": app } } }),
        None => json!({ "labelSelector": {} }),
    }
}

fn claims(resources: &[(&str, Option<&str>)]) -> Value {
    let claims = resources
        .iter()
        .map(|(resource, app)| json!({ "resource": resource, "selector": selector(*app) }));
    claims.collect()
}

/// Makes the export anew, with these claims: those of one export never change.
async fn export(world: &World, resources: &[(&str, Option<&str>)]) -> Result<()> {
    let delete = ["delete", "apiserviceexport", "cowboys", "-n", "kube-bind-x"];
    world
        .plane
        .kubectl(&[&delete[..], &["--ignore-not-found"]].concat())
        .await?;
    let export = json!({ "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExport",
        "metadata": { "name": "cowboys", "namespace": "kube-bind-x" },
        "spec": { "resources": [{ "group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"] }],
            "informerScope": "Namespaced", "isolation": "Prefixed", "permissionClaims": claims(resources) } });
    world.plane.apply(&export.to_string()).await
}

/// The claims that the binding records as accepted.
async fn record(world: &World) -> Result<Value> {
    let binding = binding(world).await?;
    let record = binding.annotations().get("kube-bind.io/accepted-claims");
    Ok(serde_json::from_str(record.context("a record")?)?)
}

async fn what_becomes_wider_waits_for_a_yes(world: &World) -> Result<()> {
    let (maps, some, all) = (
        ("configmaps", Some("cowboy")),
        ("secrets", Some("cowboy")),
        ("secrets", None),
    );
    let show = ["claims", "cowboys"];
    // The rejection of before ends with a yes to what the export claims now.
    export(world, &[maps, some]).await?;
    let accept = ["claims", "cowboys", "--accept", "secrets"];
    world.bind(&[&accept[..], &["--wait=false"]].concat()).await?.expect(
        0,
        &[
            "claims secrets: those labelled app=cowboy",
            "records as accepted: configmaps,secrets",
        ],
    )?;
    ensure!(
        record(world).await? == claims(&[maps, some]),
        "{}",
        record(world).await?
    );
    report(world, &[maps, some]).await?;
    let shown = world.bind(&show).await?.expect(0, &["in effect"])?;
    ensure!(!shown.stdout.contains("not accepted"), "{}", shown.stdout);

    export(world, &[maps, all, ("serviceaccounts", Some("x"))]).await?;
    let before = world.versions().await?;
    world.bind(&show).await?.expect(
        0,
        &[
            "changed: not accepted",
            "new: EVERY Secret; accepted before: those labelled app=cowboy",
            "new: not accepted",
            "those labelled app=x",
        ],
    )?;
    let items = world.bind(&["claims", "cowboys", "-o", "json"]).await?.json()?;
    let secrets = items["items"].as_array().into_iter().flatten();
    let secrets: Vec<_> = secrets.filter(|claim| claim["resource"] == "secrets").collect();
    ensure!(
        secrets[0]["state"] == "Changed"
            && secrets[0]["notAccepted"] == claims(&[all])
            && secrets[0]["acceptedBefore"] == claims(&[some]),
        "{secrets:?}"
    );
    // Every Secret is not given away by silence.
    world
        .bind(&accept)
        .await?
        .expect(2, &["claims secrets: EVERY Secret", "EVERY Secret of this cluster"])?;
    ensure!(before == world.versions().await?, "something was written");
    let yes = [&accept[..], &["--yes"]].concat();
    let waiting = "waiting for the konnector to take up the claims on secrets";
    let taken = async {
        ensure!(record(world).await? == claims(&[maps, all]));
        report(world, &[maps, all]).await
    };
    let ended = world.bind_meanwhile(&yes, waiting, taken).await?;
    ended.expect(0, &["EVERY Secret"])?;
    let before = world.versions().await?;
    world.bind(&yes).await?.expect(0, &["in effect"])?;
    ensure!(before == world.versions().await?, "something was written");
    Ok(())
}

async fn what_is_rejected_is_not_recorded(world: &World) -> Result<()> {
    let maps = ("configmaps", Some("cowboy"));
    let reject = ["claims", "cowboys", "--reject", "secrets", "--wait=false"];
    world
        .bind(&reject)
        .await?
        .expect(0, &["rejects secrets", "records as accepted: configmaps"])?;
    ensure!(record(world).await? == claims(&[maps]), "{}", record(world).await?);
    report(world, &[maps]).await?;
    // What nobody can see, nobody accepts.
    let gone = ["delete", "apiserviceexport", "cowboys", "-n", "kube-bind-x"];
    world.plane.kubectl(&gone).await?;
    let accept = ["claims", "cowboys", "--accept", "secrets", "--yes"];
    world
        .bind(&accept)
        .await?
        .expect(2, &["what the provider claims of secrets cannot be read now"])?;
    ensure!(rejected(world).await? == ["secrets"]);
    // Binding again records what is offered now.
    world.backend.script.lock().claims = vec![claim("configmaps", None), claim("secrets", None)];
    world.bind(&["cowboys"]).await?.expect(
        0,
        &[
            "claims configmaps: EVERY ConfigMap",
            "changed APIServiceBinding cowboys",
        ],
    )?;
    ensure!(
        record(world).await? == claims(&[("configmaps", None)]),
        "{}",
        record(world).await?
    );
    world.bind(&["cowboys"]).await?.expect(0, &["installed already"])?;
    Ok(())
}

async fn somebody_elses_binding_gets_the_record(world: &World) -> Result<()> {
    let bindings = Api::<APIServiceBinding>::all(world.plane.client());
    let foreign = json!({ "metadata": { "labels": null } });
    bindings
        .patch("cowboys", &PatchParams::default(), &Patch::Merge(&foreign))
        .await?;
    world.backend.script.lock().claims = vec![claim("configmaps", None), claim("serviceaccounts", None)];
    let before = binding(world).await?;
    world.bind(&["cowboys"]).await?.expect(
        0,
        &["claims serviceaccounts: EVERY", "changed APIServiceBinding cowboys"],
    )?;
    let after = binding(world).await?;
    ensure!(record(world).await? == claims(&[("configmaps", None), ("serviceaccounts", None)]));
    ensure!(before.spec == after.spec && after.labels().is_empty(), "{after:?}");
    world.bind(&["cowboys"]).await?.expect(0, &["installed already"])?;
    Ok(())
}

async fn everything_needs_a_yes(world: &World) -> Result<()> {
    world.bind(&["cowboys"]).await?.expect(
        2,
        &[
            "claims secrets: EVERY Secret of this cluster",
            "--accept-claims",
            "--reject-claim",
        ],
    )?;
    world
        .bind(&["cowboys", "--reject-claim", "secret"])
        .await?
        .expect(2, &["secret is not claimed", "claimed: secrets"])?;
    let shown = world
        .bind(&["cowboys", "--dry-run", "-o", "json"])
        .await?
        .expect(0, &["EVERY Secret", "would create ClusterRole"])?
        .json()?;
    ensure!(shown.to_string().contains("\"resources\":[\"secrets\"]"), "{shown}");
    let shown = world
        .bind(&["cowboys", "--dry-run", "--reject-claim", "secrets", "-o", "json"])
        .await?
        .expect(0, &["which is rejected"])?
        .json()?;
    ensure!(!shown.to_string().contains("\"resources\":[\"secrets\"]"), "{shown}");
    let binding: Vec<&Value> = shown["items"].as_array().into_iter().flatten().collect();
    let binding = binding.last().context("a binding")?;
    ensure!(
        binding["spec"]["rejectedPermissionClaims"] == json!([{ "resource": "secrets" }]),
        "{binding}"
    );
    ensure!(world.backend.script.lock().binds == 0, "bound without a yes");
    world.is_untouched().await
}

async fn rejecting_gives_no_right(world: &World) -> Result<()> {
    contract(world).await?;
    let args = ["cowboys", "--reject-claim", "secrets"];
    let (bound, ready) = tokio::join!(world.bind(&args), world.report_ready("cowboys"));
    ready?;
    bound?.expect(0, &["nothing of it is read or written"])?;
    ensure!(rejected(world).await? == ["secrets"]);
    ensure!(verbs(world, "secrets").await?.is_empty());
    // Without the flag it stays rejected.
    let before = world.versions().await?;
    world
        .bind(&["cowboys"])
        .await?
        .expect(0, &["everything is installed already"])?;
    ensure!(before == world.versions().await?, "something was written");
    world
        .bind(&["claims", "cowboys"])
        .await?
        .expect(0, &["secrets", "rejected"])?;
    world
        .bind(&["status"])
        .await?
        .expect(0, &["claims: secrets (rejected)"])?;
    world
        .bind(&["claims", "sheriffs"])
        .await?
        .expect(4, &["\"sheriffs\""])?;
    Ok(())
}

async fn accepting_gives_the_right_first(world: &World) -> Result<()> {
    export(world, &[("secrets", None)]).await?;
    let accept = ["claims", "cowboys", "--accept", "secrets"];
    world.bind(&accept).await?.expect(2, &["EVERY Secret"])?;
    world
        .bind(&["claims", "cowboys", "--accept", "configmaps", "--yes"])
        .await?
        .expect(2, &["configmaps is not claimed"])?;
    ensure!(verbs(world, "secrets").await?.is_empty(), "a right without a yes");
    world
        .bind(&[&accept[..], &["--yes", "--wait=false"]].concat())
        .await?
        .expect(0, &["changed ClusterRole", "rejects no claim", "not in effect yet"])?;
    ensure!(rejected(world).await?.is_empty());
    ensure!(verbs(world, "secrets").await? == ALL_VERBS);
    // Both revisions are of one store.
    let revision = |version: Option<String>| -> Result<u64> { Ok(version.context("a version")?.parse()?) };
    let (role, binding) = (
        role(world).await?.resource_version(),
        binding(world).await?.resource_version(),
    );
    ensure!(revision(role)? < revision(binding)?, "the binding was changed first");
    Ok(())
}

async fn rejecting_takes_the_right_last(world: &World) -> Result<()> {
    report_claims(world, &["secrets"]).await?;
    let reject = ["claims", "cowboys", "--reject", "secrets"];
    // A konnector that does not answer keeps its right: without it, nothing could be withdrawn.
    world
        .bind(&[&reject[..], &["--timeout", "10s"]].concat())
        .await?
        .expect(
            5,
            &[
                "waiting for the konnector to withdraw the claims on secrets",
                "takes it then",
            ],
        )?;
    world
        .bind(&["claims", "cowboys"])
        .await?
        .expect(0, &["rejected, being withdrawn"])?;
    let (ended, withdrawn) = tokio::join!(world.bind(&reject), withdraw(world));
    withdrawn?;
    ended?.expect(0, &["changed ClusterRole"])?;
    ensure!(verbs(world, "secrets").await?.is_empty());
    let before = world.versions().await?;
    world.bind(&reject).await?.expect(0, &["rejected"])?;
    ensure!(before == world.versions().await?, "something was written");
    Ok(())
}

async fn a_new_bind_rejects_too(world: &World) -> Result<()> {
    let accept = ["claims", "cowboys", "--accept", "secrets", "--yes"];
    let (ended, taken) = tokio::join!(world.bind(&accept), take_up(world));
    taken?;
    ended?.expect(0, &["changed ClusterRole", "in effect"])?;
    // What is in effect as it is was accepted before.
    world.bind(&["cowboys"]).await?.expect(0, &["installed already"])?;
    let args = ["cowboys", "--reject-claim", "secrets"];
    let (ended, withdrawn) = tokio::join!(world.bind(&args), withdraw(world));
    withdrawn?;
    ended?.expect(0, &["changed ClusterRole"])?;
    ensure!(verbs(world, "secrets").await?.is_empty());
    Ok(())
}

async fn claims_cannot_change_meanwhile(world: &World) -> Result<()> {
    {
        let mut script = world.backend.script.lock();
        script.claims = vec![claim("configmaps", Some("cowboy"))];
        script.claims_at_bind = Some(vec![claim("configmaps", None)]);
        script.shared = true;
    }
    let before = world.versions().await?;
    world.bind(&["cowboys"]).await?.expect(
        1,
        &[
            "WARNING: isolation None",
            "those labelled app=cowboy",
            "EVERY ConfigMap",
            "bind again to see them",
        ],
    )?;
    ensure!(before == world.versions().await?, "something was written");
    world.backend.script.lock().claims_at_bind = None;
    // Some ConfigMaps: without a terminal that is shown, and done.
    world
        .bind(&["cowboys"])
        .await?
        .expect(0, &["claims configmaps: those labelled app=cowboy"])?;
    ensure!(verbs(world, "configmaps").await? == ALL_VERBS);
    world
        .bind(&["templates", "-o", "wide"])
        .await?
        .expect(0, &["None,FirstWins", "Cluster"])?;
    world
        .bind(&["templates", "cowboys"])
        .await?
        .expect(0, &["WARNING: isolation None", "those labelled app=cowboy"])?;
    Ok(())
}
