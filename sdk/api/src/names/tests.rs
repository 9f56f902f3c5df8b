use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const CONTRACT: &str = "kube-bind-37p3oxx6sh4fd";

#[test]
fn identity_hashes_are_those_of_the_wire() {
    let vectors = [
        ("test-id-123", "37p3oxx6sh4fd"),
        ("http://127.0.0.1:8080/oidc/kube-bind-embedded-user", "3lw6gg1eo1i0m"),
        ("6b1f1c0e-0000-4000-8000-000000000001", "9qzbns3ttrj9"),
    ];
    for (identity, hash) in vectors {
        assert_eq!(identity_hash(identity), hash, "{identity}");
    }
    assert_eq!(contract_namespace("kube-bind-", "test-id-123"), CONTRACT);
}

#[test]
fn leading_zero_bytes_show() {
    assert_eq!(base36([0; 8]), "00000000");
    assert_eq!(base36([0, 0, 0, 0, 0, 0, 0, 36]), "000000010");
    assert_eq!(base36([0xff; 8]), "3w5e11264sgsf");
}

#[test]
fn names_that_fit_are_plain() {
    assert_eq!(provider_namespace(CONTRACT, "team1"), "kube-bind-37p3oxx6sh4fd-team1");
    assert_eq!(
        prefixed_name(CONTRACT, "lucky.luke"),
        "kube-bind-37p3oxx6sh4fd-lucky.luke"
    );
    assert_eq!(
        resources_cluster_role(CONTRACT, "mangodb"),
        "kube-binder-resources-kube-bind-37p3oxx6sh4fd-mangodb"
    );
    assert_eq!(resources_role("mangodb"), "kube-binder-resources-mangodb");
    assert_eq!(claims_role("mangodb"), "kube-binder-claims-mangodb");
    assert_eq!(
        core_claim_role_binding("mangodb", "secrets"),
        "kube-binder-claims-mangodb:secrets"
    );
    assert_eq!(response_secret("mangodb"), "mangodb-binding-response");
}

#[test]
fn bound_schemas_of_the_core_group_say_so() {
    assert_eq!(
        bound_schema(&GroupResource::new("wildwest.dev", "cowboys")),
        "cowboys.wildwest.dev"
    );
    assert_eq!(bound_schema(&GroupResource::new("", "secrets")), "secrets.core");
}

#[test]
fn long_names_stay_valid_names() {
    for beginning in 20..30 {
        let long = provider_namespace(
            CONTRACT,
            &format!("{}-{}", "a".repeat(beginning), "b".repeat(62 - beginning)),
        );
        assert!(long.starts_with("kube-bind-37p3oxx6sh4fd--aaaa"), "{long}");
        assert!(is_label(&long), "{long}");
        assert!(
            !long[CONTRACT.len() + 2..].contains("--"),
            "the dash at the cut is not doubled: {long}"
        );
    }
}

#[test]
fn a_prefixed_name_tells_whose_it_is() {
    let long = "x".repeat(NAME_LENGTH_MAX);
    let short = prefixed_name(CONTRACT, &long);
    for (name, noted, expect) in [
        ("kube-bind-37p3oxx6sh4fd-wyatt", None, Some("wyatt")),
        ("kube-bind-37p3oxx6sh4fd-wyatt", Some("doc"), Some("wyatt")),
        (&*short, Some(&*long), Some(&*long)),
        (&*short, None, None),
        (&*short, Some("doc"), None),
        ("kube-bind-37p3oxx6sh4fd", None, None),
        ("kube-bind-37p3oxx6sh4fd-", None, None),
        ("kube-bind-37p3oxx6sh4f-wyatt", None, None),
        ("wyatt", None, None),
    ] {
        assert_eq!(unprefixed_name(CONTRACT, name, noted), expect, "{name}");
    }
}

#[test]
fn requests_differ_where_any_part_differs() {
    let name = bind_request("alice", "cluster", "mangodb");
    assert_eq!(name, bind_request("alice", "cluster", "mangodb"));
    for other in [
        bind_request("alic", "ecluster", "mangodb"),
        bind_request("alice", "clusterm", "angodb"),
        bind_request("bob", "cluster", "mangodb"),
    ] {
        assert_ne!(name, other);
    }
    assert_eq!(name.len(), "bind-".len() + 40);
}

proptest! {
    #[test]
    fn namespaces_fit_and_stay_apart(
        names in prop::collection::btree_set("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", 1..40),
        identities in prop::collection::btree_set("[a-f0-9]{8}", 1..4),
    ) {
        let mut taken = BTreeMap::new();
        for identity in &identities {
            let contract = contract_namespace(NAMESPACE_PREFIX, identity);
            for name in &names {
                let mapped = provider_namespace(&contract, name);
                prop_assert!(mapped.len() <= NAMESPACE_LENGTH_MAX);
                prop_assert!(is_label(&mapped), "{mapped}");
                let own_prefix = format!("{contract}-");
                prop_assert!(mapped.starts_with(&own_prefix), "{mapped} is not under {own_prefix}");
                if contract.len() + 1 + name.len() <= NAMESPACE_LENGTH_MAX {
                    prop_assert_eq!(&mapped, &format!("{contract}-{name}"));
                }
                let before = taken.insert(mapped, (identity, name));
                prop_assert_eq!(before, None);
            }
        }
    }

    /// Contracts of one server begin alike and hold no dash beyond that, so that one may well begin with another's name.
    #[test]
    fn object_names_fit_stay_apart_and_lead_back(
        contracts in prop::collection::btree_set("kube-bind-a{0,3}[a-z0-9]{1,3}", 1..5),
        names in prop::collection::btree_set("a{0,2}-{0,2}[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", 1..20),
    ) {
        let names: Vec<_> = names.iter().map(|name| name.trim_start_matches('-')).collect();
        let mut taken = BTreeMap::new();
        for contract in &contracts {
            for name in names.iter().filter(|name| is_subdomain(name)) {
                let mapped = prefixed_name(contract, name);
                prop_assert!(is_subdomain(&mapped), "{mapped}");
                prop_assert!(mapped.starts_with(&format!("{contract}-")), "{mapped}");
                prop_assert_eq!(unprefixed_name(contract, &mapped, Some(name)), Some(*name));
                if let Some(other) = taken.insert(mapped.clone(), (contract, name)) {
                    prop_assert_eq!(other, (contract, name), "{}", mapped);
                }
                for other in contracts.iter().filter(|other| *other != contract) {
                    prop_assert_eq!(unprefixed_name(other, &mapped, Some(name)), None, "{}", mapped);
                }
            }
        }
    }

    #[test]
    fn any_text_is_fitted(text in ".{0,400}", max in 20_usize..300) {
        prop_assert!(fit(text, max).len() <= max);
    }
}

#[track_caller]
fn check_form(name: &str, label: bool, subdomain: bool) {
    assert_eq!((is_label(name), is_subdomain(name)), (label, subdomain), "{name:?}");
}

#[test]
fn labels_and_subdomains_are_told_from_other_names() {
    check_form("team-1", true, true);
    check_form(&"x".repeat(63), true, true);
    check_form("cowboys.wildwest.dev", false, true);
    check_form(&"x".repeat(64), false, true);
    for bad in ["", "-a", "a-", "A", "a..b", "a_b", "a/b", &"x".repeat(254)] {
        check_form(bad, false, false);
    }
}

#[test]
fn groups_of_kubernetes_and_kube_bind_are_nobody_elses() {
    for (group, expect) in [
        ("", Some("Kubernetes itself")),
        ("apps", Some("Kubernetes itself")),
        ("rbac.authorization.k8s.io", Some("Kubernetes itself")),
        ("kube-bind.io", Some("kube-bind itself")),
        ("x.kubebind.io", Some("kube-bind itself")),
        ("notkube-bind.io", None),
        ("wildwest.dev", None),
    ] {
        assert_eq!(owner_of_group(group), expect, "{group}");
    }
}
