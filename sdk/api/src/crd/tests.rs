use serde_json::json;

use super::*;

/// Versions in words: `v1*` is stored, `-v1` is not served.
fn crd(versions: &str, webhook: bool) -> CustomResourceDefinition {
    let versions: Vec<_> = versions
        .split_whitespace()
        .map(|word| {
            json!({
                "name": word.trim_matches(['*', '-']),
                "served": !word.starts_with('-'),
                "storage": word.ends_with('*'),
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": { "type": "object" } } } },
                "subresources": { "status": {} },
                "additionalPrinterColumns": [{ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" }],
            })
        })
        .collect();
    let conversion = if webhook {
        json!({ "strategy": "Webhook", "webhook": { "conversionReviewVersions": ["v1"] } })
    } else {
        json!({ "strategy": "None" })
    };
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "cowboys.wildwest.dev" },
        "spec": {
            "group": "wildwest.dev",
            "names": { "plural": "cowboys", "singular": "cowboy", "kind": "Cowboy", "listKind": "CowboyList" },
            "scope": "Namespaced",
            "versions": versions,
            "conversion": conversion,
        },
    }))
    .unwrap()
}

fn words<'a>(versions: impl IntoIterator<Item = Listed<'a>>) -> String {
    let words = versions.into_iter().map(|version| {
        let (dash, star) = (
            if version.served { "" } else { "-" },
            if version.storage { "*" } else { "" },
        );
        format!("{dash}{}{star}", version.name)
    });
    words.collect::<Vec<_>>().join(" ")
}

fn asked(versions: &str) -> Vec<String> {
    versions.split_whitespace().map(ToOwned::to_owned).collect()
}

#[track_caller]
fn check_offer(source: &CustomResourceDefinition, versions: &str, expect: Result<&str, &str>) {
    let versions = asked(versions);
    let offer = Offer {
        versions: &versions,
        ..Offer::default()
    };
    let got = bound_schema_spec(source, &offer).map(|spec| words(spec.versions.iter().map(listed_bound)));
    assert_eq!(got.as_deref().map_err(SchemaError::reason), expect);
}

#[test]
fn served_versions_are_offered_and_one_is_stored() {
    check_offer(&crd("v1* v1beta1", false), "", Ok("v1* v1beta1"));
    check_offer(&crd("v1 -v1alpha1*", false), "", Ok("v1*"));
    check_offer(&crd("v1beta1 v1 -v2*", false), "", Ok("v1beta1 v1*"));
    check_offer(&crd("v1* v1beta1", false), "v1beta1", Ok("v1beta1*"));
    check_offer(&crd("v1* v1beta1", false), "v1beta1 v1", Ok("v1* v1beta1"));
    check_offer(&crd("v1* -v1beta1", false), "v1beta1", Err("VersionNotServed"));
    check_offer(&crd("v1*", false), "v1 v3", Err("VersionNotServed"));
    check_offer(&crd("-v1*", false), "", Err("NoVersionServed"));
}

#[test]
fn a_converting_crd_is_offered_in_one_version() {
    check_offer(&crd("v2 v1*", true), "", Ok("v1*"));
    check_offer(&crd("v2 -v1* v1beta1", true), "", Ok("v2*"));
    check_offer(&crd("v2 v1*", true), "v2", Ok("v2*"));
}

#[test]
fn scopes_are_those_of_the_offer() {
    let source = crd("v1*", false);
    let plain = bound_schema_spec(&source, &Offer::default()).unwrap();
    assert_eq!(
        (plain.scope, plain.informer_scope),
        (Scope::Namespaced, InformerScope::Namespaced)
    );
    let offer = Offer {
        informer_scope: InformerScope::Cluster,
        scope: Some(Scope::Cluster),
        versions: &[],
    };
    let converted = bound_schema_spec(&source, &offer).unwrap();
    assert_eq!(
        (converted.scope, converted.informer_scope),
        (Scope::Cluster, InformerScope::Cluster)
    );
    let installed = custom_resource_definition(&converted, None).unwrap();
    assert_eq!(installed.spec.scope, "Cluster");
}

#[test]
fn what_the_consumer_gets_is_what_the_provider_has() {
    let source = crd("v1* v1beta1", false);
    let spec = bound_schema_spec(&source, &Offer::default()).unwrap();
    let installed = custom_resource_definition(&spec, None).unwrap();
    assert_eq!(installed, source);
}

#[test]
fn both_encodings_give_the_same_crd() {
    let wrapped = bound_schema_spec(&crd("v1*", false), &Offer::default()).unwrap();
    assert!(
        wrapped.versions[0].schema.get("openAPIV3Schema").is_some(),
        "as every konnector reads it"
    );
    let mut bare = wrapped.clone();
    bare.versions[0].schema = wrapped.versions[0].json_schema_props().clone().into();
    assert_ne!(bare, wrapped);
    assert_eq!(
        custom_resource_definition(&bare, None).unwrap(),
        custom_resource_definition(&wrapped, None).unwrap()
    );
}

#[test]
fn a_crd_without_a_schema_takes_anything() {
    let mut source = crd("v1*", false);
    source.spec.versions[0].schema = None;
    let spec = bound_schema_spec(&source, &Offer::default()).unwrap();
    assert_eq!(
        spec.versions[0].json_schema_props()["x-kubernetes-preserve-unknown-fields"],
        true
    );
}

#[test]
fn a_consumer_never_converts() {
    let mut spec = bound_schema_spec(&crd("v2 v1*", false), &Offer::default()).unwrap();
    spec.conversion = Some(crate::v1alpha2::BoundSchemaConversion {
        strategy: Some(ConversionStrategy::Webhook),
        webhook: None,
    });
    let installed = custom_resource_definition(&spec, None).unwrap();
    assert_eq!(words(installed.spec.versions.iter().map(listed)), "v1*");
    assert_eq!(installed.spec.conversion.unwrap().strategy, "None");
}

#[test]
fn exactly_one_version_is_stored_whatever_the_schema_says() {
    let source = bound_schema_spec(&crd("v1* v1beta1", false), &Offer::default()).unwrap();
    for (storage, expect) in [
        ([true, true], "v1* v1beta1"),
        ([false, false], "v1* v1beta1"),
        ([false, true], "v1 v1beta1*"),
    ] {
        let mut spec = source.clone();
        for (version, storage) in spec.versions.iter_mut().zip(storage) {
            version.storage = storage;
        }
        let installed = custom_resource_definition(&spec, None).unwrap();
        assert_eq!(words(installed.spec.versions.iter().map(listed)), expect);
    }
}

#[test]
fn the_owner_is_named() {
    let spec = bound_schema_spec(&crd("v1*", false), &Offer::default()).unwrap();
    let owner = OwnerReference {
        api_version: "kube-bind.io/v1alpha2".to_owned(),
        kind: "APIServiceBinding".to_owned(),
        name: "cowboys".to_owned(),
        uid: "1-2-3".to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let installed = custom_resource_definition(&spec, Some(owner.clone())).unwrap();
    assert_eq!(installed.metadata.owner_references, Some(vec![owner]));
}

#[track_caller]
fn check_refused(change: impl FnOnce(&mut BoundSchemaSpec), reason: &str, says: &str) {
    let mut spec = bound_schema_spec(&crd("v1*", false), &Offer::default()).unwrap();
    change(&mut spec);
    let error = custom_resource_definition(&spec, None).unwrap_err();
    assert_eq!(error.reason(), reason);
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn nonsense_is_refused_by_name() {
    check_refused(|spec| spec.group.clear(), "CoreGroupNotExportable", "cowboys");
    check_refused(|spec| spec.versions.clear(), "NoVersionServed", "cowboys.wildwest.dev");
    check_refused(
        |spec| spec.versions[0].served = false,
        "NoVersionServed",
        "cowboys.wildwest.dev",
    );
    check_refused(
        |spec| spec.versions[0].schema = json!({ "openAPIV3Schema": { "type": ["object"] } }).into(),
        "InvalidSchema",
        "cowboys.wildwest.dev version v1",
    );
}
