use super::*;
use crate::konnector::files::documents;

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
    let example = include_str!("../../../../deploy/konnector/optional/bundles.yaml");
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
