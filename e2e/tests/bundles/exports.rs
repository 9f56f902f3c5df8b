//! Exports that are added, changed and removed, by two providers with a bundle each.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    bundle::{Bundle, rights},
    eventually_ok,
    offer::Offer,
    wildwest::SOON,
};
use k8s_openapi::api::{core::v1::ConfigMap, events::v1::Event};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{Case, case};

const FIRST: Offer = Offer { name: "exp-first" };
const SECOND: Offer = Offer { name: "exp-second" };
const OTHER: Offer = Offer { name: "exp-other" };

pub(crate) async fn exports_of_two_providers_come_change_and_go() -> Result<()> {
    case("exports", async |case| {
        let (p, q) = tokio::try_join!(
            case.contract(&case.world.p, &[FIRST, SECOND]),
            case.contract(&case.world.q, &[OTHER])
        )?;
        let (from_p, from_q) = (case.bundle("-p"), case.bundle("-q"));
        // A Secret may call its key as it likes.
        from_p
            .give_under("provider.yaml", &p.export(FIRST).await?.yaml()?)
            .await?;
        from_q.give(&q.export(OTHER).await?.yaml()?).await?;
        from_p.apply(spec_of_p(case)).await?;
        from_q.apply(json!({})).await?;
        from_p.binds(&[FIRST.name]).await?;
        from_q.binds(&[OTHER.name]).await?;
        it_says_where_it_leads(&from_p, &p.namespace, &p.uid().await?).await?;
        let first = case.object(&p, FIRST, "one").await?;
        let other = case.object(&q, OTHER, "one").await?;
        let (copy, theirs) = (first.copy().await?, from_q.bound().await?);

        p.export(SECOND).await?;
        from_p.binds(&[FIRST.name, SECOND.name]).await?;
        let second = case.object(&p, SECOND, "one").await?;
        second.delete().await?;

        // Another claim is another export under the same name.
        let (before, bindings) = (p.exports().get(FIRST.name).await?, from_p.bound().await?);
        claim_configmaps(case).await?;
        // The server may see the template's change a moment later.
        eventually_ok("the export to be replaced", SOON, async || {
            p.export(FIRST).await?;
            let after = p.exports().get(FIRST.name).await?;
            ensure!(before.metadata.uid != after.metadata.uid);
            Ok(())
        })
        .await?;
        copied_along(case, &p.namespace).await?;
        from_p.binds(&[FIRST.name, SECOND.name]).await?;
        first.works("green").await?;
        ensure!(first.copy().await? == copy, "the copy was made anew");
        ensure!(from_p.bound().await? == bindings, "a binding was made anew");

        p.remove(SECOND.name).await?;
        from_p.unbound(SECOND.name).await?;
        from_p.binds(&[FIRST.name]).await?;
        events_tell(case, &from_p, &["Bound", "Unbound", "Ready"]).await?;
        first.works("blue").await?;
        other.works("blue").await?;
        ensure!(
            from_q.bound().await? == theirs,
            "the other provider's bindings were written"
        );
        Ok(())
    })
    .await
}

fn claim() -> Value {
    json!({"resource": "configmaps", "selector": {"labelSelector": {"matchLabels": {"exports": "yes"}}}})
}

fn spec_of_p(case: &Case) -> Value {
    let secret = json!({"name": format!("{}-p", case.name), "namespace": "kube-bind", "key": "provider.yaml"});
    json!({"kubeconfigSecretRef": secret, "acceptedClaims": [claim()]})
}

/// Events of the bundle tell what was bound and unbound.
async fn events_tell(case: &Case, bundle: &Bundle, wanted: &[&str]) -> Result<()> {
    let events: Api<Event> = Api::namespaced(case.world.consumer.plane.client(), "default");
    let about = ListParams::default().fields(&format!("regarding.name={}", bundle.name));
    eventually_ok(format!("events {wanted:?}"), SOON, async || {
        let events = events.list(&about).await?.items;
        let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
        for reason in wanted {
            ensure!(reasons.contains(reason), "{reasons:?}");
        }
        Ok(())
    })
    .await
}

async fn it_says_where_it_leads(bundle: &Bundle, contract: &str, uid: &str) -> Result<()> {
    let status = bundle.status().await?;
    ensure!(
        status.provider_namespace.as_deref() == Some(contract) && status.contract_uid.as_deref() == Some(uid),
        "{status:?}"
    );
    ensure!(status.last_sync_time.is_some(), "{status:?}");
    let probed = bundle.condition("ProviderReachable").await?;
    ensure!(probed.is_true() && probed.last_probe_time.is_some(), "{probed:?}");
    eventually_ok("the provider's name", SOON, async || {
        let status = bundle.status().await?;
        status.provider_pretty_name.context("none")?;
        Ok(())
    })
    .await
}

async fn claim_configmaps(case: &Case) -> Result<()> {
    let rights = rights("bundles-exports-claim", &[("", "configmaps")]);
    case.world.consumer.plane.apply(&rights.to_string()).await?;
    let mut template = FIRST.template();
    template["spec"]["permissionClaims"] = json!([claim()]);
    case.world.p.plane.apply(&template.to_string()).await?;
    FIRST.ready(&case.world.p).await
}

/// A claimed object of the consumer's is copied.
async fn copied_along(case: &Case, contract: &str) -> Result<()> {
    let ours: Api<ConfigMap> = Api::namespaced(case.world.consumer.plane.client(), case.name);
    let labelled = json!({"metadata": {"name": "along", "labels": {"exports": "yes"}}, "data": {"a": "b"}});
    ours.create(&PostParams::default(), &serde_json::from_value(labelled)?)
        .await?;
    let place = bindery_api::names::provider_namespace(contract, case.name);
    let copies: Api<ConfigMap> = Api::namespaced(case.world.p.plane.client(), &place);
    eventually_ok("the claimed object to be copied", SOON, async || {
        copies.get("along").await?;
        Ok(())
    })
    .await
}
