//! What may be asked, and that it stays what it was.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{annotations, labels, names, v1alpha2::BindableResourcesRequest};
use bindery_e2e::{NAMESPACE, call, eventually_ok, wildwest::SOON};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{merge, place, user};
use crate::{
    case::case,
    world::{dry_run, refused, server},
};

const AUTHOR: &str = "may not ask in the name of";
const IMMUTABLE: &str = "spec is immutable";
const RESERVED: &str = "are the server's own";

#[test]
fn what_is_missing_or_unreadable_is_refused_at_once() -> Result<()> {
    place("fields", async |place| {
        let fay = place.world.person("fay", "nobodys").await?;
        place.may_bind("fay-binds", user("fay")).await?;
        place.passes(&fay, &place.request("fay")).await?;
        let mut request = place.request("fay");
        request.spec.cluster_identity.identity.clear();
        place
            .is_refused(
                &fay,
                &request,
                &["spec.clusterIdentity.identity is required", "kube-system"],
            )
            .await?;
        for (ttl, passes) in [
            ("90s", true),
            ("1h30m", true),
            ("soon", false),
            ("90", false),
            ("", false),
        ] {
            let mut value = serde_json::to_value(place.request("fay"))?;
            value["spec"]["ttlAfterFinished"] = json!(ttl);
            let request = serde_json::from_value(value)?;
            if passes {
                place.passes(&fay, &request).await?;
            } else {
                place
                    .is_refused(&fay, &request, &["spec.ttlAfterFinished is no duration"])
                    .await?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_spec_is_what_it_was_by_every_way_of_writing() -> Result<()> {
    place("immutable", async |place| {
        // One who could have asked for all of it in the first place.
        let admin = place.admin();
        let api = place.api(&admin);
        let mut asked = place.request("jane");
        asked.spec.ttl_after_finished = Some(std::time::Duration::from_hours(1).into());
        let made = api.create(&PostParams::default(), &asked).await?;
        let changes = [
            json!({"templateRef": {"name": "sheriffs"}}),
            json!({"templateRef": null}),
            json!({"clusterIdentity": {"identity": "cluster-of-somebody"}}),
            json!({"clusterIdentity": {"prettyName": "Ranch"}}),
            json!({"author": "john"}),
            json!({"author": server()}),
            json!({"kubeconfigSecretRef": {"name": "another", "key": "kubeconfig"}}),
            json!({"ttlAfterFinished": "1s"}),
            json!({"ttlAfterFinished": null}),
        ];
        for change in changes {
            let outcome = api
                .patch("cowboys", &PatchParams::default(), &merge(json!({"spec": change})))
                .await;
            refused(outcome, &[IMMUTABLE]).with_context(|| change.to_string())?;
        }
        let operations = json!([{"op": "replace", "path": "/spec/author", "value": "john"}]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(operations)?);
        refused(
            api.patch("cowboys", &PatchParams::default(), &patch).await,
            &[IMMUTABLE],
        )?;
        // The server writes the status at the same time, which is a conflict and to be tried again.
        eventually_ok("a replacement to be refused", SOON, async || {
            let mut other = api.get("cowboys").await?;
            "john".clone_into(&mut other.spec.author);
            refused(
                api.replace("cowboys", &PostParams::default(), &other).await,
                &[IMMUTABLE],
            )
        })
        .await?;
        let mut applied = place.request("john");
        applied.metadata.managed_fields = None;
        let force = PatchParams::apply("raid").force();
        refused(
            api.patch("cowboys", &force, &Patch::Apply(&applied)).await,
            &[IMMUTABLE],
        )?;
        // A write of the status writes nothing else.
        let mut through = api.get("cowboys").await?;
        "john".clone_into(&mut through.spec.author);
        through
            .labels_mut()
            .insert(labels::VIA.to_owned(), labels::VIA_GRPC.to_owned());
        let _ = api.replace_status("cowboys", &PostParams::default(), &through).await;
        let _ = api
            .patch_status(
                "cowboys",
                &PatchParams::default(),
                &merge(json!({"spec": {"author": "john"}})),
            )
            .await;
        let now = api.get("cowboys").await?;
        ensure!(now.spec == made.spec && now.labels().is_empty(), "{now:?}");
        // What is no part of it may change.
        let note = merge(json!({"metadata": {"labels": {"mine": "too"}, "annotations": {"note": "well"}}}));
        api.patch("cowboys", &PatchParams::default(), &note).await?;
        Ok(())
    })
}

#[test]
fn marks_of_the_server_are_its_own() -> Result<()> {
    place("marks", async |place| {
        let mia = place.world.person("mia", "nobodys").await?;
        place.may_bind("mia-binds", user("mia")).await?;
        place.passes(&mia, &place.request("mia")).await?;
        let admin = place.admin();
        let marks = [
            json!({"labels": {labels::VIA: labels::VIA_GRPC}}),
            json!({"labels": {labels::VIA: "other"}}),
            json!({"annotations": {annotations::PRINCIPAL: r#"{"username":"john"}"#}}),
            json!({"annotations": {annotations::REQUEST_NAME: "another"}}),
        ];
        let api = place.api(&mia);
        for mark in &marks {
            let mut request = place.request("mia");
            let metadata: kube::api::ObjectMeta = serde_json::from_value(mark.clone())?;
            request.metadata.labels = metadata.labels;
            request.metadata.annotations = metadata.annotations;
            for client in [&mia, &admin] {
                place.is_refused(client, &request, &[RESERVED]).await?;
            }
        }
        api.create(&PostParams::default(), &place.request("mia")).await?;
        for mark in &marks {
            let patch = merge(json!({"metadata": mark}));
            let outcome = api.patch("cowboys", &PatchParams::default(), &patch).await;
            refused(outcome, &[RESERVED]).with_context(|| mark.to_string())?;
        }
        // Nor where the server's own requests are, of which it makes no more than it was asked for.
        place.allow(NAMESPACE, &json!([user("mia")])).await?;
        let beside: Api<BindableResourcesRequest> = Api::namespaced(mia.clone(), NAMESPACE);
        let mut forged = place.request("mia");
        forged.metadata.name = Some("beside".to_owned());
        eventually_ok("mia to write beside the server", SOON, async || {
            Ok(beside.create(&dry_run(), &forged).await.map(drop)?)
        })
        .await?;
        forged
            .labels_mut()
            .insert(labels::VIA.to_owned(), labels::VIA_GRPC.to_owned());
        forged
            .annotations_mut()
            .insert(annotations::PRINCIPAL.to_owned(), r#"{"username":"john"}"#.to_owned());
        refused(beside.create(&dry_run(), &forged).await, &[RESERVED]).map(drop)
    })
}

#[test]
fn a_mark_of_the_server_is_not_taken_off() -> Result<()> {
    case("unmark", async |world, case| {
        let wish = call::wish("cowboys", "cowboys", &case.identity());
        case.caller().await?.bind_by_request(wish, SOON, |_| ()).await?;
        let requests: Api<BindableResourcesRequest> = Api::namespaced(world.provider.plane.client(), NAMESPACE);
        let is_ours = |request: &BindableResourcesRequest| request.spec.author == case.author();
        let mut found = requests
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .filter(is_ours);
        let name = found.next().context("the request of the call")?.name_any();
        for mark in [
            json!({"labels": {labels::VIA: null}}),
            json!({"annotations": {annotations::PRINCIPAL: null}}),
            json!({"annotations": {annotations::REQUEST_NAME: "another"}}),
        ] {
            let patch = merge(json!({"metadata": mark}));
            refused(
                requests.patch(&name, &PatchParams::default(), &patch).await,
                &[RESERVED],
            )?;
        }
        Ok(())
    })
}

#[test]
fn no_name_and_no_dry_run_is_a_way_around() -> Result<()> {
    place("around", async |place| {
        let ann = place.world.person("ann", "nobodys").await?;
        place.may_bind("ann-binds", user("ann")).await?;
        place.passes(&ann, &place.request("ann")).await?;
        let api = place.api(&ann);
        let (params, dry) = (PostParams::default(), dry_run());
        let mut generated = place.request("john");
        generated.metadata.name = None;
        generated.metadata.generate_name = Some("cowboys-".to_owned());
        for params in [&params, &dry] {
            refused(api.create(params, &generated).await, &[AUTHOR])?;
        }
        for client in [&ann, &place.admin()] {
            let mut probe = place.request("ann");
            probe.metadata.name = Some(names::POLICY_PROBE.to_owned());
            place
                .is_refused(
                    client,
                    &probe,
                    &["policy.probe is refused by kube-bind-requests, revision"],
                )
                .await?;
        }
        // Server-side apply creates as well.
        let force = PatchParams::apply("raid").force();
        let outcome = api
            .patch("cowboys", &force, &Patch::Apply(&place.request("john")))
            .await;
        refused(outcome, &[AUTHOR])?;
        ensure!(
            api.list(&ListParams::default()).await?.items.is_empty(),
            "something was made"
        );
        Ok(())
    })
}
