use proptest::prelude::*;

use super::*;
use crate::{
    contract::{self, NewContract},
    principal::Principal,
};

fn grant(resources: &[GroupResource]) -> Grant<'_> {
    Grant {
        contract: "kube-bind-a",
        export: "cowboys",
        resources,
    }
}

fn contract_namespace() -> Namespace {
    contract::namespace(&NewContract {
        name: "kube-bind-a",
        identity: "cluster-a",
        pretty_name: "Ranch",
        owner: &Principal::named("jane"),
        owner_groups: &[],
        template: "cowboys",
    })
}

#[test]
fn a_namespaces_role_names_the_resources_and_nothing_of_their_status() {
    let resources = [
        GroupResource::new("wildwest.dev", "horses"),
        GroupResource::new("bank.dev", "safes"),
        GroupResource::new("wildwest.dev", "cowboys"),
    ];
    let role = namespace_role(grant(&resources), "kube-bind-a-ranch");
    assert_eq!(role.metadata.name.as_deref(), Some("kube-binder-resources-cowboys"));
    assert_eq!(role.metadata.namespace.as_deref(), Some("kube-bind-a-ranch"));
    let said: Vec<_> = role
        .rules
        .unwrap()
        .into_iter()
        .map(|rule| (rule.api_groups.unwrap(), rule.resources.unwrap(), rule.verbs))
        .collect();
    let verbs: Vec<String> = WRITE_VERBS.map(ToOwned::to_owned).into();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        said,
        [
            (words(&["bank.dev"]), words(&["safes"]), verbs.clone()),
            (words(&["wildwest.dev"]), words(&["cowboys", "horses"]), verbs),
        ]
    );
}

#[test]
fn a_cluster_role_goes_with_its_contract() {
    let resources = [GroupResource::new("wildwest.dev", "cowboys")];
    let role = cluster_role(grant(&resources), &contract_namespace(), rules(&resources, &READ_VERBS));
    assert_eq!(
        role.metadata.name.as_deref(),
        Some("kube-binder-resources-kube-bind-a-cowboys")
    );
    assert_eq!(role.rules.unwrap()[0].verbs, READ_VERBS);
    assert_eq!(role.metadata.owner_references.unwrap()[0].name, "kube-bind-a");
    let binding = cluster_role_binding(grant(&resources), &contract_namespace());
    assert_eq!(binding.role_ref.name, role.metadata.name.unwrap());
}

#[test]
fn rules_are_within_others_that_hold_each_right_of_theirs() {
    let (cowboys, sheriffs) = (
        GroupResource::new("wildwest.dev", "cowboys"),
        GroupResource::new("wildwest.dev", "sheriffs"),
    );
    let read = rules(std::slice::from_ref(&cowboys), &READ_VERBS);
    let write = rules(std::slice::from_ref(&cowboys), &WRITE_VERBS);
    let both = rules(&[cowboys, sheriffs], &READ_VERBS);
    let within = |some: &[PolicyRule], others: &[PolicyRule]| are_within(Some(some), Some(others));
    assert!(within(&read, &write) && within(&read, &both) && within(&write, &write));
    assert!(!within(&write, &read) && !within(&both, &write));
    assert!(are_within(None, Some(&read)) && !are_within(Some(&read), None));
}

#[test]
fn every_binding_names_one_account_of_one_contract() {
    let resources = [GroupResource::new("wildwest.dev", "cowboys")];
    let bindings = [
        kube_binder("kube-bind-a").subjects,
        namespace_role_binding(grant(&resources), "kube-bind-a-ranch").subjects,
        cluster_role_binding(grant(&resources), &contract_namespace()).subjects,
    ];
    for subjects in bindings {
        assert_eq!(subjects, Some(vec![account("kube-bind-a")]));
    }
}

#[test]
fn a_binding_is_compared_by_what_it_gives_to_whom() {
    let wanted = kube_binder("kube-bind-a");
    let mut existing = wanted.clone();
    existing.subjects.as_mut().unwrap()[0].api_group = Some(String::new());
    assert!(binds_the_same(&existing, &wanted));
    existing.subjects.as_mut().unwrap().push(account("kube-bind-b"));
    assert!(!binds_the_same(&existing, &wanted));
    assert!(!binds_the_same(&kube_binder("kube-bind-b"), &wanted));
}

proptest! {
    #[test]
    fn labels_of_exports_fit_and_tell_them_apart(one in "[a-z0-9]{1,120}", other in "[a-z0-9]{1,120}") {
        let (a, b) = (export_label(&one), export_label(&other));
        prop_assert!(a.len() <= 63);
        prop_assert_eq!(a == b, one == other);
    }

    #[test]
    fn no_rule_holds_a_wildcard(resources in proptest::collection::vec(("[a-z]{1,5}\\.dev", "[a-z]{2,6}"), 1..5)) {
        let resources: Vec<_> = resources.iter().map(|(group, plural)| GroupResource::new(group, plural)).collect();
        for rule in rules(&resources, &WRITE_VERBS) {
            let words = rule.api_groups.iter().chain(&rule.resources).flatten().chain(&rule.verbs);
            prop_assert!(words.into_iter().all(|word| !word.contains('*')));
        }
        let given: usize = rules(&resources, &READ_VERBS).iter().filter_map(|rule| rule.resources.as_ref()).map(Vec::len).sum();
        let wanted: std::collections::BTreeSet<_> = resources.iter().collect();
        prop_assert_eq!(given, wanted.len());
    }
}
