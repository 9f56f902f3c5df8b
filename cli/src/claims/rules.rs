//! The rules that give the konnector rights on bound and claimed resources.

use bindery_api::{
    consumer_rules::{OBJECT_VERBS, STATUS_VERBS, claim_rule, consumer_rules},
    v1alpha2::GroupResource,
};
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The rules for what bundles bind: exported resources, and claimed core resources, which have no status to write.
pub(crate) fn bundle_rules<'a>(resources: impl IntoIterator<Item = &'a GroupResource>) -> Vec<PolicyRule> {
    let (claimed, exported): (Vec<_>, Vec<_>) = resources.into_iter().partition(|resource| resource.is_core());
    consumer_rules(exported, claimed)
}

/// Whether the rules give all rights that a bundle needs on a resource.
pub(crate) fn holds_bundled(rules: &[PolicyRule], resource: &GroupResource) -> bool {
    let status = GroupResource::new(&resource.group, format!("{}/status", resource.resource));
    holds(rules, resource, &OBJECT_VERBS) && (resource.is_core() || holds(rules, &status, &STATUS_VERBS))
}

/// Whether the rules give all rights that a claim needs on a resource.
pub(crate) fn holds_claim(rules: &[PolicyRule], claim: &GroupResource) -> bool {
    holds(rules, claim, &OBJECT_VERBS)
}

fn holds(rules: &[PolicyRule], resource: &GroupResource, verbs: &[&str]) -> bool {
    verbs.iter().all(|verb| {
        let mut on_it = rules.iter().filter(|rule| is_on(rule, resource));
        on_it.any(|rule| rule.verbs.iter().any(|held| held == verb))
    })
}

/// The rules, with rights on a claimed resource added.
pub(crate) fn with_claim(rules: &[PolicyRule], claim: &GroupResource) -> Vec<PolicyRule> {
    let mut with = without_claim(rules, claim);
    with.push(claim_rule(claim));
    with
}

/// The rules, without any right on a claimed resource.
pub(crate) fn without_claim(rules: &[PolicyRule], claim: &GroupResource) -> Vec<PolicyRule> {
    let mut without = rules.to_vec();
    for rule in without.iter_mut().filter(|rule| is_on(rule, claim)) {
        if let Some(resources) = &mut rule.resources {
            resources.retain(|resource| *resource != claim.resource);
        }
    }
    without.retain(|rule| rule.resources.as_ref().is_none_or(|resources| !resources.is_empty()));
    without
}

/// Whether a rule is for this group alone, includes the resource, and is for all its objects.
fn is_on(rule: &PolicyRule, claim: &GroupResource) -> bool {
    let holds = |list: Option<&Vec<String>>, item: &String| list.is_some_and(|list| list.contains(item));
    rule.api_groups.as_deref() == Some(std::slice::from_ref(&claim.group))
        && holds(rule.resources.as_ref(), &claim.resource)
        && rule.resource_names.as_ref().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests;
