use bindery_api::v1alpha2::{ExportResource, Isolation};
use serde_json::{Value, json};

use super::*;
use crate::consumer::{Consumer, kinds::tests::served};

/// Asks about Secret `west/permit`.
fn permit(consumer: &Consumer) -> Asked<'_> {
    let kinds = served();
    let kind = kinds.iter().find(|kind| kind.plural == "secrets").cloned().unwrap();
    Asked {
        consumer,
        kinds,
        kind,
        namespace: "west".to_owned(),
        name: "permit".to_owned(),
    }
}

/// A cluster where every list shows one cowboy, whose second reference names `permit`.
fn consumer() -> Consumer {
    let refs = json!([{ "name": "other" }, { "name": "permit" }]);
    let billy = json!({ "metadata": { "name": "billy", "namespace": "west" }, "spec": { "refs": refs } });
    Consumer::answering(&json!({ "metadata": {}, "items": [billy] }))
}

async fn check_selected(selector: Value, expect: Seen<&str>) {
    let claim = PermissionClaim {
        group_resource: GroupResource::new("", "secrets"),
        selector: serde_json::from_value(selector.clone()).unwrap(),
    };
    let labels = [("app".to_owned(), "cowboy".to_owned())].into();
    let selected = permit(&consumer()).selected(&[claim], None, &labels).await;
    assert_eq!(selected, expect.map(str::to_owned), "{selector}");
}

#[tokio::test]
async fn a_claim_selects_for_the_command_what_it_selects_for_the_konnector() {
    let labels = |operator: &str, values: &[&str]| {
        let expression = json!({ "key": "app", "operator": operator, "values": values });
        json!({ "labelSelector": { "matchExpressions": [expression] } })
    };
    check_selected(labels("In", &["cowboy"]), Seen::Is("by its labels")).await;
    // An API server refuses these two selectors, so they select nothing.
    check_selected(labels("NotIn", &[]), Seen::Absent).await;
    check_selected(labels("Exists", &["cowboy"]), Seen::Absent).await;
    let named = |namespace: &str| json!({ "namedResources": [{ "name": "permit", "namespace": namespace }] });
    check_selected(named("west"), Seen::Is("by its name")).await;
    check_selected(named("east"), Seen::Absent).await;
    let referred = |resource: &str, path: &str| json!({ "references": [{ "group": "wildwest.dev", "resource": resource, "jsonPath": { "name": path } }] });
    let billy = "because cowboys.wildwest.dev west/billy names it";
    check_selected(referred("cowboys", "spec.refs.#.name"), Seen::Is(billy)).await;
    check_selected(referred("cowboys", "spec.refs.1.name"), Seen::Is(billy)).await;
    check_selected(referred("cowboys", "spec.refs.0.name"), Seen::Absent).await;
    check_selected(referred("cowboys", "#.name"), Seen::Absent).await;
    let unknown = Seen::Unknown("this cluster does not serve horses.wildwest.dev".to_owned());
    check_selected(referred("horses", "spec.refs.#.name"), unknown).await;
}

#[tokio::test]
async fn claims_are_served_in_shared_namespaces_for_cluster_scoped_apis_without_isolation_alone() {
    let consumer = consumer();
    for (plural, isolation, expect) in [
        ("sheriffs", Isolation::None, ClaimedPlacement::Shared),
        ("sheriffs", Isolation::Prefixed, ClaimedPlacement::Mapped),
        ("sheriffs", Isolation::Namespaced, ClaimedPlacement::Mapped),
        ("cowboys", Isolation::None, ClaimedPlacement::Mapped),
    ] {
        let mut export = APIServiceExport::default();
        export.spec.isolation = isolation;
        export.spec.resources = vec![ExportResource {
            group_resource: GroupResource::new("wildwest.dev", plural),
            ..ExportResource::default()
        }];
        let placement = permit(&consumer).placement(&export);
        assert_eq!(placement, Some(expect), "{plural} {isolation}");
    }
}
