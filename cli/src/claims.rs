//! Claims: which other objects of the consumer a provider asks for, in words, and which of them are accepted.

mod consent;
mod decision;
mod record;
pub(crate) mod rules;
mod state;

use bindery_api::v1alpha2::{GroupResource, NamedResource, PermissionClaim, SelectorReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

pub(crate) use consent::{Question, Verdict, is_plain_yes, is_yes, question, question_of, verdict};
pub(crate) use decision::{Decision, Unclaimed, check_rejected, decide};
pub(crate) use record::{news, record_after};
pub(crate) use state::{Claim, ClaimState, Known, states};

/// What accepting a claim means.
const MEANING: &str = "both ways: your objects that it selects are copied to the provider, which reads them; the provider's are copied here";

/// A claim for people, in lines: its resource, what it selects, and what accepting it means.
pub(crate) fn explained(claim: &PermissionClaim) -> Vec<String> {
    let resource = &claim.group_resource;
    let parts = parts(claim);
    let mut lines = match parts.as_slice() {
        _ if claim.selector.selects_all() => vec![format!("{resource}: EVERY {} of this cluster", one_of(resource))],
        [part] => vec![format!("{resource}: {part}")],
        _ => vec![format!("{resource}:")],
    };
    if lines[0].ends_with(':') {
        lines.extend(parts.iter().map(|part| format!("  {part}")));
    }
    lines.push(MEANING.to_owned());
    lines
}

/// Which objects a claim selects, in one line.
pub(crate) fn selection(claim: &PermissionClaim) -> String {
    join(parts(claim), "; ")
}

/// Which objects a claim selects, a text for each part of its selector.
fn parts(claim: &PermissionClaim) -> Vec<String> {
    let selector = &claim.selector;
    if selector.selects_all() {
        return vec![format!("EVERY {}", one_of(&claim.group_resource))];
    }
    let named = (!selector.named_resources.is_empty())
        .then(|| join(selector.named_resources.iter().map(by_name), ", "))
        .map(|names| format!("those named {names}"));
    let parts: Vec<_> = selector
        .references
        .iter()
        .map(by_reference)
        .chain(selector.label_selector.iter().map(by_labels))
        .chain(named)
        .collect();
    if parts.is_empty() {
        return vec!["none, for its selector is empty".to_owned()];
    }
    parts
}

/// The kind of a claimable resource, such as Secret, or else "object of RESOURCE".
fn one_of(resource: &GroupResource) -> String {
    match (resource.is_core(), resource.resource.as_str()) {
        (true, "secrets") => "Secret".to_owned(),
        (true, "configmaps") => "ConfigMap".to_owned(),
        (true, "serviceaccounts") => "ServiceAccount".to_owned(),
        _ => format!("object of {resource}"),
    }
}

fn by_name(named: &NamedResource) -> String {
    match named.namespace.as_deref() {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{}", named.name),
        _ => format!("{} in any namespace", named.name),
    }
}

fn by_reference(reference: &SelectorReference) -> String {
    let path = &reference.json_path;
    let place = match path.namespace.as_deref() {
        Some(namespace) if !namespace.is_empty() => format!("in the namespace that it names at {namespace}"),
        _ => "in the same namespace, or in any if it has none".to_owned(),
    };
    format!(
        "those that an object of {} names at {}, {place}",
        reference.group_resource, path.name
    )
}

fn by_labels(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten();
    let parts = equal
        .map(|(key, value)| format!("{key}={value}"))
        .chain(selector.match_expressions.iter().flatten().map(requirement));
    format!("those labelled {}", join(parts, ", "))
}

fn requirement(requirement: &LabelSelectorRequirement) -> String {
    let (key, values) = (&requirement.key, join(requirement.values.iter().flatten(), ","));
    match requirement.operator.as_str() {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} not in ({values})"),
        "Exists" => key.clone(),
        "DoesNotExist" => format!("not {key}"),
        other => format!("{key} {other} ({values})"),
    }
}

fn join<T: ToString>(parts: impl IntoIterator<Item = T>, between: &str) -> String {
    let parts: Vec<_> = parts.into_iter().map(|part| part.to_string()).collect();
    parts.join(between)
}

#[cfg(test)]
pub(crate) mod tests;
