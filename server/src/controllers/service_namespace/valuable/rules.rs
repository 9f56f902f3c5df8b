//! Which resources roles show, by their rules.

use std::collections::BTreeSet;

use bindery_api::v1alpha2::GroupResource;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// Stands for all groups, resources or verbs.
const ALL: &str = "*";

/// Whether rules allow to list all objects of a resource.
pub(super) fn show(rules: &[PolicyRule], resource: &GroupResource) -> bool {
    rules.iter().any(|rule| {
        lists_all(rule)
            && has(rule.api_groups.as_deref(), &resource.group)
            && has(rule.resources.as_deref(), &resource.resource)
    })
}

/// The API groups of what rules allow to list; `None` for all groups.
pub(super) fn groups(rules: &[PolicyRule]) -> Option<BTreeSet<&str>> {
    let listing = rules.iter().filter(|rule| lists_all(rule));
    let groups: BTreeSet<_> = listing
        .flat_map(|rule| rule.api_groups.iter().flatten())
        .map(String::as_str)
        .collect();
    (!groups.contains(ALL)).then_some(groups)
}

fn lists_all(rule: &PolicyRule) -> bool {
    let is_of_some = rule.resource_names.as_ref().is_some_and(|names| !names.is_empty());
    !is_of_some && has(Some(&rule.verbs), "list")
}

fn has(all: Option<&[String]>, wanted: &str) -> bool {
    all.unwrap_or_default().iter().any(|one| one == ALL || one == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
        let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        PolicyRule {
            api_groups: Some(texts(groups)),
            resources: Some(texts(resources)),
            verbs: texts(verbs),
            ..PolicyRule::default()
        }
    }

    #[track_caller]
    fn check(rule: &PolicyRule, (group, resource): (&str, &str), expect: bool) {
        let shown = show(std::slice::from_ref(rule), &GroupResource::new(group, resource));
        assert_eq!(shown, expect, "{rule:?}");
    }

    #[test]
    fn rules_show_what_they_allow_to_list() {
        let view = rule(&["apps"], &["deployments", "replicasets"], &["get", "list"]);
        check(&view, ("apps", "deployments"), true);
        check(&view, ("apps", "statefulsets"), false);
        check(&view, ("", "deployments"), false);
        check(
            &rule(&["apps"], &["deployments"], &["get"]),
            ("apps", "deployments"),
            false,
        );
        check(&rule(&["*"], &["*"], &["*"]), ("bank.dev", "safes"), true);
        let mut named = rule(&[""], &["configmaps"], &["list"]);
        named.resource_names = Some(vec!["cluster-info".to_owned()]);
        check(&named, ("", "configmaps"), false);
    }

    #[test]
    fn groups_are_those_of_what_can_be_listed() {
        let one = rule(&["", "apps"], &["pods"], &["list"]);
        let unlisted = rule(&["batch"], &["jobs"], &["get"]);
        assert_eq!(groups(&[one.clone(), unlisted]), Some(["", "apps"].into()));
        assert_eq!(groups(&[one, rule(&["*"], &["pods"], &["*"])]), None);
        assert_eq!(groups(&[]), Some(BTreeSet::new()));
    }
}
