//! The templates that are granted to a contract, and who bound each of them. A bind grants a template, and the end of its last export
//! takes the grant.

use std::collections::BTreeMap;

use bindery_api::annotations;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::principal::Principal;

/// Bytes of the names of a caller's groups that are recorded, for the size of annotations is limited. Of a caller with more groups the
/// first are recorded.
const GROUPS_BYTES_MAX: usize = 8 * 1024;

/// A principal that bound a template, with the groups that it had then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granter {
    /// The principal.
    #[serde(flatten)]
    pub principal: Principal,
    /// Its groups, by which the provider's RBAC may give it the right to bind. Of the author of a request made as a resource they are not
    /// known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

// === impl Granter ===

impl Granter {
    /// A principal with these groups.
    pub fn new(principal: Principal, groups: &[String]) -> Self {
        Self {
            principal,
            groups: recorded_groups(groups),
        }
    }
}

/// The groups of a caller that are recorded.
pub fn recorded_groups(groups: &[String]) -> Vec<String> {
    let mut bytes_left = GROUPS_BYTES_MAX;
    let fitting = groups.iter().map_while(|group| {
        bytes_left = bytes_left.checked_sub(group.len())?;
        Some(group.clone())
    });
    fitting.collect()
}

/// The templates granted to a contract, by name.
pub fn granted_templates(namespace: &Namespace) -> Vec<String> {
    let json = namespace.annotations().get(annotations::GRANTED_TEMPLATES);
    json.and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// Those who may have an export of a template made anew, if they may still bind it: who bound it last, or, where no server recorded that
/// or the contract is no longer theirs, its owners.
pub fn granters(namespace: &Namespace, template: &str) -> Vec<Granter> {
    let recorded = granted_by(namespace).remove(template);
    // The admin may have given the contract to somebody else since.
    if let Some(granter) = recorded.filter(|it| super::may_use(namespace, &it.principal, &it.groups)) {
        return vec![granter];
    }
    let owners = super::owners(namespace).into_iter();
    owners.map(|owner| Granter::new(owner, &[])).collect()
}

fn granted_by(namespace: &Namespace) -> BTreeMap<String, Granter> {
    let json = namespace.annotations().get(annotations::GRANTED_BY);
    json.and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// The patch that grants a template to a contract and records who bound it; none if both are so already.
pub fn grant(namespace: &Namespace, template: &str, granter: &Granter) -> Option<Value> {
    let mut templates = granted_templates(namespace);
    let mut by = granted_by(namespace);
    let is_granted = templates.iter().any(|name| name == template);
    if is_granted && by.get(template) == Some(granter) {
        return None;
    }
    if !is_granted {
        templates.push(template.to_owned());
        templates.sort_unstable();
    }
    by.insert(template.to_owned(), granter.clone());
    Some(patch(namespace, &templates, &by))
}

/// The patch that takes the grant of a template from a contract; none if the template is not granted.
pub fn withdraw(namespace: &Namespace, template: &str) -> Option<Value> {
    let mut granted = granted_templates(namespace);
    let before = granted.len();
    granted.retain(|name| name != template);
    if granted.len() == before {
        return None;
    }
    let mut by = granted_by(namespace);
    by.remove(template);
    Some(patch(namespace, &granted, &by))
}

fn patch(namespace: &Namespace, granted: &[String], by: &BTreeMap<String, Granter>) -> Value {
    json!({
        "metadata": {
            "uid": namespace.metadata.uid,
            "resourceVersion": namespace.metadata.resource_version,
            "annotations": {
                annotations::GRANTED_TEMPLATES: json!(granted).to_string(),
                annotations::GRANTED_BY: json!(by).to_string(),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granter(name: &str, groups: &[&str]) -> Granter {
        let groups: Vec<_> = groups.iter().map(|group| (*group).to_owned()).collect();
        Granter::new(Principal::named(name), &groups)
    }

    fn apply(namespace: &mut Namespace, patch: &Value) {
        for key in [annotations::GRANTED_TEMPLATES, annotations::GRANTED_BY] {
            let value = patch["metadata"]["annotations"][key].as_str().unwrap().to_owned();
            namespace.annotations_mut().insert(key.to_owned(), value);
        }
    }

    #[test]
    fn a_bind_grants_and_the_end_of_the_export_takes_the_grant() {
        let mut namespace = Namespace::default();
        let owners = json!([Principal::named("jane")]).to_string();
        namespace
            .annotations_mut()
            .extend([(annotations::OWNERS.to_owned(), owners)]);
        let jane = granter("jane", &["riders"]);
        for template in ["sheriffs", "cowboys"] {
            let patch = grant(&namespace, template, &jane).unwrap();
            apply(&mut namespace, &patch);
        }
        assert_eq!(granted_templates(&namespace), ["cowboys", "sheriffs"]);
        assert_eq!(grant(&namespace, "cowboys", &jane), None);
        let patch = withdraw(&namespace, "cowboys").unwrap();
        apply(&mut namespace, &patch);
        assert_eq!(granted_templates(&namespace), ["sheriffs"]);
        assert_eq!(withdraw(&namespace, "cowboys"), None);
        assert_eq!(granters(&namespace, "sheriffs"), [jane]);
    }

    #[test]
    fn who_bound_last_is_asked_about_and_without_a_record_each_owner() {
        let mut namespace = Namespace::default();
        let owners = json!([Principal::named("jane"), Principal::named("john")]).to_string();
        let entries = [
            (annotations::OWNERS.to_owned(), owners),
            (
                annotations::GRANTED_TEMPLATES.to_owned(),
                json!(["cowboys"]).to_string(),
            ),
        ];
        namespace.annotations_mut().extend(entries);
        assert_eq!(
            granters(&namespace, "cowboys"),
            [granter("jane", &[]), granter("john", &[])]
        );
        let patch = grant(&namespace, "cowboys", &granter("john", &["riders"])).expect("the record is missing");
        apply(&mut namespace, &patch);
        assert_eq!(granters(&namespace, "cowboys"), [granter("john", &["riders"])]);
        let owners = json!([Principal::named("jane")]).to_string();
        namespace
            .annotations_mut()
            .extend([(annotations::OWNERS.to_owned(), owners)]);
        assert_eq!(
            granters(&namespace, "cowboys"),
            [granter("jane", &[])],
            "the contract is John's no longer"
        );
    }

    #[test]
    fn records_of_groups_have_an_end() {
        let groups: Vec<_> = (0..10_000).map(|number| format!("group-{number}")).collect();
        let recorded = recorded_groups(&groups);
        assert!(!recorded.is_empty() && json!(recorded).to_string().len() < 2 * GROUPS_BYTES_MAX);
    }
}
