//! Schemas that speak of another API than the one that was bound.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Conditions as _, v1alpha2 as api};
use bindery_e2e::{eventually, holds_for, wildwest::SOON};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{A_WHILE, LASSOS, Ranch, betray};

#[test]
fn a_schema_that_speaks_of_another_api_changes_no_definition() -> Result<()> {
    betray(async |ranch| {
        ranch.bind(LASSOS, &[]).await?;
        ranch.create(LASSOS, "lassos", "first").await?;
        let definitions: Api<CustomResourceDefinition> = Api::all(ranch.consumer.plane.client());
        let mine = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "ropes.mine.example.dev"},
            "spec": {
                "group": "mine.example.dev", "scope": "Namespaced",
                "names": {"plural": "ropes", "singular": "rope", "kind": "Rope", "listKind": "RopeList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        ranch.consumer.plane.apply(&mine.to_string()).await?;
        let look = async || -> Result<Vec<_>> {
            let all = definitions.list(&ListParams::default()).await?.items;
            // What the API server itself says of them comes when it comes, as do the definitions of other tests.
            let is_others = |name: &str| {
                name.ends_with(".example.dev")
                    && !name.ends_with(".mine.example.dev")
                    && !name.ends_with(&LASSOS.group())
            };
            Ok(all
                .iter()
                .filter(|crd| !is_others(&crd.name_any()))
                .map(|crd| (crd.name_any(), crd.uid(), crd.metadata.generation))
                .collect())
        };
        let before = look().await?;

        // The same schema under its own name, but for another API: one of the consumer's own, and one of Kubernetes'.
        let schemas: Api<api::BoundSchema> = Api::namespaced(ranch.provider.plane.client(), &Ranch::contract(LASSOS));
        let name = format!("{}.{}", LASSOS.name, LASSOS.group());
        for (group, plural, kind) in [
            ("mine.example.dev", "ropes", "Rope"),
            ("apps.k8s.io", "deployments", "Deployment"),
        ] {
            let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
            let other = Patch::Merge(json!({"spec": {"group": group, "names": names}}));
            schemas.patch(&name, &PatchParams::default(), &other).await?;
            eventually(
                format!("the binding to refuse a schema of {plural}.{group}"),
                SOON,
                || async {
                    let binding = ranch.binding(LASSOS.name).await?;
                    let refused = binding
                        .conditions()
                        .iter()
                        .find(|condition| condition.message.contains(&name));
                    let refused = refused.with_context(|| format!("{:?}", binding.conditions()))?;
                    Ok((!binding.is_condition_true("Ready")).then(|| refused.clone()))
                },
            )
            .await?;
            holds_for("the definitions as they were", A_WHILE, async || {
                let now = look().await?;
                ensure!(now == before, "{before:?} became {now:?}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
}
