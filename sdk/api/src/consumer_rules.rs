//! The rights that a konnector needs on its own cluster for an export. Whoever binds gives them to it, by one ClusterRole per
//! binding.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::v1alpha2::GroupResource;

/// The verbs that a konnector needs on exported and claimed objects.
pub const OBJECT_VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// The verbs that a konnector needs on the status of exported objects.
pub const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The rules for an export with these resources and claims.
pub fn consumer_rules<'a>(
    resources: impl IntoIterator<Item = &'a GroupResource>,
    claims: impl IntoIterator<Item = &'a GroupResource>,
) -> Vec<PolicyRule> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in resources {
        groups.entry(&resource.group).or_default().push(&resource.resource);
    }
    let mut rules = Vec::new();
    for (group, resources) in groups {
        let statuses: Vec<_> = resources.iter().map(|resource| format!("{resource}/status")).collect();
        rules.push(rule(group, resources, &OBJECT_VERBS));
        rules.push(rule(group, statuses.iter().map(String::as_str), &STATUS_VERBS));
    }
    rules.extend(claims.into_iter().map(claim_rule));
    rules
}

/// The rule for a claimed resource. No role can say which of its objects are claimed, and a konnector may create, change and
/// delete the copies of those that the provider owns.
pub fn claim_rule(claim: &GroupResource) -> PolicyRule {
    rule(&claim.group, [claim.resource.as_str()], &OBJECT_VERBS)
}

/// A rule for resources of one group.
pub fn rule<'a>(group: &str, resources: impl IntoIterator<Item = &'a str>, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.into_iter().map(str::to_owned).collect()),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_with_their_status_and_claims_are_in_the_rules() {
        let exported = [
            GroupResource::new("wildwest.dev", "cowboys"),
            GroupResource::new("wildwest.dev", "sheriffs"),
        ];
        let rules = consumer_rules(&exported, [&GroupResource::new("", "secrets")]);
        let expect = serde_json::json!([
            { "apiGroups": ["wildwest.dev"], "resources": ["cowboys", "sheriffs"], "verbs": OBJECT_VERBS },
            { "apiGroups": ["wildwest.dev"], "resources": ["cowboys/status", "sheriffs/status"], "verbs": STATUS_VERBS },
            { "apiGroups": [""], "resources": ["secrets"], "verbs": OBJECT_VERBS },
        ]);
        assert_eq!(serde_json::to_value(rules).unwrap(), expect);
    }
}
