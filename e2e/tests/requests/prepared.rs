//! Namespaces that a provider has made before any consumer comes: once a request has succeeded, objects can be put there.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    labels,
    v1alpha2::{APIServiceNamespace, Phase},
};
use bindery_e2e::{eventually_ok, holds_for, offer::Offer, wildwest::SOON};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::{Value, json};

use crate::{
    case::{Case, SUCCEEDED, case},
    world::A_WHILE,
};

/// A template that is offered in another way than others, and the namespaces that it asks for.
struct Prepared {
    name: &'static str,
    /// Scope of its CRD.
    scope: &'static str,
    spec: Value,
    namespaces: &'static [&'static str],
}

const SHARED: &str = "shared-by-two";

fn prepared() -> [Prepared; 5] {
    let of = |name, scope, spec, namespaces| Prepared {
        name,
        scope,
        spec,
        namespaces,
    };
    [
        of(
            "prep-one",
            "Namespaced",
            json!({"scope": "Namespaced"}),
            &["team-1", SHARED],
        ),
        of(
            "prep-two",
            "Namespaced",
            json!({"scope": "Namespaced"}),
            &[SHARED, "team-2"],
        ),
        of(
            "prep-prefixed",
            "Cluster",
            json!({"scope": "Cluster", "isolation": "Prefixed"}),
            &["team-3"],
        ),
        of(
            "prep-none",
            "Cluster",
            json!({"scope": "Cluster", "isolation": "None"}),
            &["team-4"],
        ),
        of(
            "prep-within",
            "Namespaced",
            json!({"scope": "Cluster", "isolation": "Namespaced", "clusterScopedNamespace": "team-5"}),
            &["team-5"],
        ),
    ]
}

impl Prepared {
    fn offer(&self) -> Offer {
        Offer::new(self.name)
    }

    async fn publish(&self, case: &Case<'_>) -> Result<()> {
        let offer = self.offer();
        let mut crd = offer.crd();
        crd["spec"]["scope"] = json!(self.scope);
        let mut template = offer.template();
        let names: Vec<_> = self.namespaces.iter().map(|name| json!({"name": name})).collect();
        for (key, value) in self.spec.as_object().into_iter().flatten() {
            template["spec"][key] = value.clone();
        }
        template["spec"]["namespaces"] = json!(names);
        template["metadata"]["labels"] = json!({"tier": self.name});
        let rights = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": format!("bindery-server-export-{}", self.name), "labels": {labels::AGGREGATE_TO_SERVER: "true"},
            },
            "rules": [{
                "apiGroups": [offer.group()], "resources": ["widgets"],
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            }],
        });
        let all = json!({"apiVersion": "v1", "kind": "List", "items": [rights, crd, template]});
        case.provider.plane.apply(&all.to_string()).await?;
        offer.ready(case.provider).await
    }

    /// Everything is there the moment that the request says so.
    async fn is_ready(&self, case: &Case<'_>) -> Result<()> {
        let client = case.provider.plane.client();
        let contract = case.contract();
        let export = case.exports().get(self.name).await?;
        ensure!(
            export.labels().get("tier").map(String::as_str) == Some(self.name),
            "{:?}",
            export.labels()
        );
        let mapped: Api<APIServiceNamespace> = Api::namespaced(client.clone(), &contract);
        let widget = self.offer().widget("prepared", "red");
        for name in self.namespaces {
            let mapped = mapped
                .get(name)
                .await
                .with_context(|| format!("{name} is not mapped"))?;
            let owner = mapped.labels().get(labels::OWNER).map(String::as_str);
            ensure!(owner == Some("provider"), "{name} is of {owner:?}");
            let place = mapped.status.and_then(|status| status.namespace);
            ensure!(place == Some(format!("{contract}-{name}")), "{name} is {place:?}");
            let place = place.unwrap_or_default();
            if self.scope == "Namespaced" {
                let widgets = Api::<DynamicObject>::namespaced_with(client.clone(), &place, &self.offer().resource());
                // An API that has just come may be missed for a moment.
                eventually_ok(format!("a widget in {place}"), SOON, async || {
                    Ok(widgets.create(&PostParams::default(), &widget).await?)
                })
                .await?;
            } else {
                let namespaces: Api<Namespace> = Api::all(client.clone());
                namespaces.get(&place).await?;
            }
        }
        Ok(())
    }
}

#[test]
fn what_a_template_asks_for_is_there_before_the_consumer_comes() -> Result<()> {
    case("prepared", async |_, case| {
        let all = prepared();
        for one in &all {
            one.publish(case).await.with_context(|| one.name)?;
        }
        for one in &all {
            let mut request = case.request(one.name);
            // Who is admin of the provider prepares it for the consumer.
            request["spec"]["author"] = json!("admin");
            case.provider.plane.apply(&request.to_string()).await?;
            case.comes_to(one.name, Phase::Succeeded, SUCCEEDED, &[])
                .await
                .with_context(|| one.name)?;
            one.is_ready(case).await.with_context(|| one.name)?;
        }
        // What two exports asked for does not go with one of them.
        case.exports().delete(all[0].name, &DeleteParams::default()).await?;
        eventually_ok("the export to be gone", SOON, async || {
            ensure!(case.exports().get_opt(all[0].name).await?.is_none(), "it is there");
            Ok(())
        })
        .await?;
        let mapped: Api<APIServiceNamespace> = Api::namespaced(case.provider.plane.client(), &case.contract());
        holds_for("the shared namespace stays", A_WHILE, async || {
            let kept = mapped.get(SHARED).await?;
            ensure!(kept.metadata.deletion_timestamp.is_none(), "it goes");
            Ok(())
        })
        .await
    })
}
