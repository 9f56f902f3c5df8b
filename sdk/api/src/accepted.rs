//! The claims that the user has accepted: those of the export when it was bound, which an annotation of the binding records. A
//! claim that the provider adds later has no effect until it is accepted.

use std::collections::BTreeMap;

use crate::{
    annotations::ACCEPTED_CLAIMS,
    v1alpha2::{APIServiceBinding, GroupResource, NamedResource, PermissionClaim, SelectorReference},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;

/// The accepted claims of a binding.
#[derive(Clone, Debug, PartialEq)]
pub enum Accepted {
    /// The annotation is missing: the present claims of the export are accepted.
    Unrecorded,
    /// Only these claims are accepted.
    Claims(Vec<PermissionClaim>),
    /// The annotation cannot be parsed: no claim is accepted.
    Unreadable,
}

impl Accepted {
    /// Reads the annotation of a binding.
    pub fn of(binding: &APIServiceBinding) -> Self {
        match binding.annotations().get(ACCEPTED_CLAIMS) {
            None => Self::Unrecorded,
            Some(text) => serde_json::from_str(text).map_or(Self::Unreadable, Self::Claims),
        }
    }

    /// Returns the accepted claims on a resource.
    pub fn on<'a>(&'a self, resource: &'a GroupResource) -> impl Iterator<Item = &'a PermissionClaim> {
        let claims = match self {
            Self::Claims(claims) => claims.as_slice(),
            Self::Unrecorded | Self::Unreadable => &[],
        };
        claims.iter().filter(move |claim| claim.group_resource == *resource)
    }

    /// Whether accepted claims select everything that a claim selects.
    pub fn covers(&self, claim: &PermissionClaim) -> bool {
        let wanted = &claim.selector;
        let accepted: Vec<_> = self.on(&claim.group_resource).map(|claim| &claim.selector).collect();
        if accepted.is_empty() {
            return false;
        }
        let labels = |wanted: &LabelSelector| {
            let labels = accepted.iter().filter_map(|accepted| accepted.label_selector.as_ref());
            labels.map(requirements).any(|known| known == requirements(wanted))
        };
        let named = |wanted: &NamedResource| {
            let mut named = accepted.iter().flat_map(|accepted| &accepted.named_resources);
            named.any(|known| place(known) == place(wanted))
        };
        let referred = |wanted: &SelectorReference| {
            let mut references = accepted.iter().flat_map(|accepted| &accepted.references);
            references.any(|known| path(known) == path(wanted))
        };
        accepted.iter().any(|accepted| accepted.selects_all())
            || (wanted.label_selector.iter().all(labels)
                && wanted.named_resources.iter().all(named)
                && wanted.references.iter().all(referred))
    }
}

type Requirements<'a> = (BTreeMap<&'a str, &'a str>, Vec<(&'a str, &'a str, &'a [String])>);

/// Normalizes a label selector, so that absent and empty parts are equal.
fn requirements(selector: &LabelSelector) -> Requirements<'_> {
    let labels = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    (
        labels.map(|(key, value)| (key.as_str(), value.as_str())).collect(),
        expressions
            .map(|expression| {
                let values = expression.values.as_deref().unwrap_or_default();
                (expression.key.as_str(), expression.operator.as_str(), values)
            })
            .collect(),
    )
}

fn place(named: &NamedResource) -> (&str, &str) {
    (&named.name, named.namespace.as_deref().unwrap_or_default())
}

fn path(reference: &SelectorReference) -> (&GroupResource, &[String], &str, &str) {
    (
        &reference.group_resource,
        &reference.versions,
        &reference.json_path.name,
        reference.json_path.namespace.as_deref().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use crate::v1alpha2::APIServiceBindingSpec;
    use serde_json::{Value, json};

    use super::*;

    fn accepted(text: Option<&str>) -> Accepted {
        let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
        if let Some(text) = text {
            let annotations = binding.annotations_mut();
            annotations.insert(ACCEPTED_CLAIMS.to_owned(), text.to_owned());
        }
        Accepted::of(&binding)
    }

    #[track_caller]
    fn check(known: &[&Value], wanted: &Value, expect: bool) {
        let claim = |selector: &Value| json!({"resource": "secrets", "selector": selector});
        let known: Vec<_> = known.iter().map(|selector| claim(selector)).collect();
        let accepted = accepted(Some(&json!(known).to_string()));
        let wanted = serde_json::from_value(claim(wanted)).unwrap();
        assert_eq!(accepted.covers(&wanted), expect);
    }

    #[test]
    fn what_selects_no_more_than_was_accepted_is_accepted() {
        let (nothing, all) = (json!({}), json!({"labelSelector": {}}));
        let labelled = json!({"labelSelector": {"matchLabels": {"app": "west"}}});
        let named = json!({"namedResources": [{"name": "a"}, {"name": "b", "namespace": "x"}]});
        let reference = json!({"group": "wildwest.dev", "resource": "cowboys", "jsonPath": {"name": "spec.ref"}});
        let referred = json!({"references": [reference]});
        for selector in [&all, &labelled, &named, &referred, &nothing] {
            check(&[selector], selector, true);
            check(&[&all], selector, true);
            check(&[], selector, false);
            check(&[&nothing], selector, *selector == nothing);
        }
        let other = json!({"labelSelector": {"matchLabels": {"app": "east"}}});
        for wider in [&all, &named, &referred, &other] {
            check(&[&labelled], wider, false);
        }
        check(
            &[&named],
            &json!({"namedResources": [{"name": "a", "namespace": ""}]}),
            true,
        );
        check(&[&named], &json!({"namedResources": [{"name": "b"}]}), false);
        let mut both = named.clone();
        both["labelSelector"] = json!({"matchLabels": {"app": "west"}, "matchExpressions": []});
        check(&[&labelled, &named], &both, true);
        check(&[&labelled], &both, false);
    }

    #[test]
    fn an_annotation_that_is_no_list_accepts_nothing() {
        assert_eq!(accepted(None), Accepted::Unrecorded);
        assert_eq!(accepted(Some("[]")), Accepted::Claims(vec![]));
        for text in ["", "yes", "{}", "[1]"] {
            assert_eq!(accepted(Some(text)), Accepted::Unreadable, "{text}");
        }
    }
}
