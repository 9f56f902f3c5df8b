//! What the konnector may do with the APIs that bundles bind: their bindings come without a role of their own.

use std::collections::BTreeSet;

pub(crate) use bindery_api::names::{KONNECTOR_ADOPTION_ROLE as ADOPTION_ROLE, KONNECTOR_BUNDLES_ROLE as BUNDLES_ROLE};
use bindery_api::{names, v1alpha2::GroupResource};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use crate::{
    claims::CLAIMABLE,
    errors::Failure,
    manifests::{bundle_rules, holds_bundled},
};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Whether a provider can export or claim a resource at all.
pub(crate) fn check(resource: &GroupResource) -> Result<(), Failure> {
    if resource.is_core() && CLAIMABLE.contains(&resource.resource.as_str()) {
        return Ok(());
    }
    match names::owner_of_group(&resource.group) {
        None => Ok(()),
        Some(owner) => Err(Failure::Usage(format!(
            "--bundle-resource {resource}: it belongs to {owner}, and no provider can bind it; write the resource of an \
             export, such as cowboys.wildwest.dev, or of a claim: {}",
            CLAIMABLE.join(", ")
        ))),
    }
}

/// Rules with rights on these resources too, and those on which there were none. No right is taken away.
pub(crate) fn merge(
    seen: &[PolicyRule],
    wanted: &BTreeSet<GroupResource>,
) -> (Vec<PolicyRule>, BTreeSet<GroupResource>) {
    let missing = wanted.iter().filter(|resource| !holds_bundled(seen, resource));
    let missing: BTreeSet<_> = missing.cloned().collect();
    let mut rules = seen.to_vec();
    rules.extend(bundle_rules(&missing));
    (rules, missing)
}

/// The role with these rules, for the konnector.
pub(super) fn manifests(rules: &[PolicyRule]) -> Result<Vec<Value>, Failure> {
    let rules = serde_json::to_value(rules).map_err(|error| Failure::Format(error.to_string()))?;
    Ok(vec![
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
            "metadata": { "name": BUNDLES_ROLE }, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": BUNDLES_ROLE },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": BUNDLES_ROLE },
            "subjects": [{ "kind": "ServiceAccount", "name": names::KONNECTOR, "namespace": names::KUBE_BIND_NAMESPACE }],
        }),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::files::documents;

    fn set(words: &[&str]) -> BTreeSet<GroupResource> {
        let split = |word: &&str| {
            word.split_once('.').map_or_else(
                || GroupResource::new("", *word),
                |(resource, group)| GroupResource::new(group, resource),
            )
        };
        words.iter().map(split).collect()
    }

    #[test]
    fn the_example_is_what_is_installed() {
        let example = include_str!("../../../deploy/konnector/optional/bundles.yaml");
        let (rules, _) = merge(&[], &set(&["cowboys.wildwest.dev"]));
        assert_eq!(
            documents(("bundles.yaml", example)).unwrap(),
            manifests(&rules).unwrap()
        );
    }

    /// Resources of each run, one after the other; those that the last one adds.
    #[track_caller]
    fn check_merge(runs: &[&[&str]], expect: &[&str]) {
        let mut rules = Vec::new();
        let mut missing = BTreeSet::new();
        for run in runs {
            let before = rules.clone();
            (rules, missing) = merge(&before, &set(run));
            assert!(rules.starts_with(&before), "a right was taken away: {rules:?}");
            assert!(set(run).iter().all(|resource| holds_bundled(&rules, resource)));
        }
        assert_eq!(missing, set(expect));
    }

    #[test]
    fn more_resources_are_added_and_none_taken() {
        check_merge(&[&["cowboys.wildwest.dev"]], &["cowboys.wildwest.dev"]);
        check_merge(&[&["cowboys.wildwest.dev"], &["cowboys.wildwest.dev"]], &[]);
        check_merge(
            &[&["cowboys.wildwest.dev"], &["sheriffs.wildwest.dev", "secrets"]],
            &["sheriffs.wildwest.dev", "secrets"],
        );
        check_merge(
            &[
                &["cowboys.wildwest.dev", "secrets"],
                &["cowboys.wildwest.dev"],
                &["secrets"],
            ],
            &[],
        );
    }

    #[test]
    fn no_provider_gets_what_belongs_to_kubernetes() {
        for (good, resource) in [
            (true, "cowboys.wildwest.dev"),
            (true, "secrets"),
            (true, "configmaps"),
            (false, "pods"),
            (false, "deployments.apps"),
            (false, "clusterroles.rbac.authorization.k8s.io"),
            (false, "apiservicebindings.kube-bind.io"),
        ] {
            for resource in set(&[resource]) {
                assert_eq!(check(&resource).is_ok(), good, "{resource}");
            }
        }
    }
}
