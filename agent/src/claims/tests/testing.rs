//! Rules and objects for tests.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    placement::ClaimedPlacement,
    v1alpha2::{GroupResource, InformerScope, PermissionClaim},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::{
    Wanted,
    rules::{ClaimRules, ClaimTerms},
};
use crate::{
    model::object::Object,
    references::{ClaimKey, References},
};

pub(crate) fn claim_key(resource: &str) -> ClaimKey {
    ClaimKey {
        resource: GroupResource::new("", resource),
        placement: ClaimedPlacement::Mapped,
    }
}

/// The resource that the bindings of tests bind.
pub(crate) fn bound_resource() -> GroupResource {
    GroupResource::new("wildwest.dev", "cowboys")
}

/// What a binding wants that claims Secrets by these selectors.
pub(crate) fn wanted(selectors: &[Value]) -> Wanted {
    let claim = |selector: &Value| PermissionClaim {
        group_resource: GroupResource::new("", "secrets"),
        selector: serde_json::from_value(selector.clone()).unwrap(),
    };
    Wanted {
        export: OwnerReference {
            name: "cowboys".to_owned(),
            uid: "export-uid".to_owned(),
            ..OwnerReference::default()
        },
        placement: ClaimedPlacement::Mapped,
        informer_scope: InformerScope::Namespaced,
        cluster_wide_secrets: false,
        cluster_scoped_namespace: None,
        claim_namespaces: None,
        watched_namespaces: None,
        claim_secret_types: Vec::new(),
        bound: vec![bound_resource()],
        accepted: selectors.iter().map(claim).collect(),
        withdrawn: Vec::new(),
        dropped: Vec::new(),
        kept: BTreeMap::new(),
        paused: false,
        relink: false,
    }
}

pub(crate) fn terms(wanted: &[Wanted]) -> ClaimTerms {
    let names = (0..).map(|at| Arc::from(format!("binding-{at}")));
    let bindings: BTreeMap<_, _> = names.zip(wanted).collect();
    ClaimTerms::of(&claim_key("secrets"), &bindings)
}

/// The claim rules of Secrets.
pub(crate) fn rules(wanted: &[Wanted], references: &References) -> Arc<ClaimRules> {
    Arc::new(ClaimRules::new(
        claim_key("secrets"),
        ("kube-bind-x".into(), "contract-uid".into()),
        "kube-bind".into(),
        references.clone(),
        terms(wanted),
    ))
}

pub(crate) fn object(value: &Value) -> Object {
    serde_json::from_str(&value.to_string()).unwrap()
}

/// A Secret that no konnector made.
pub(crate) fn secret(namespace: &str, name: &str, uid: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "djE="},
        "metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": version.to_string()},
    })
}
