use bindery_api::v1alpha2::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use proptest::prelude::*;

use super::*;
use crate::{
    settings::{Settings, tests::settings},
    template::{
        assess,
        tests::{cowboys, definition, offered},
    },
};

/// An operator who allows three resources, of which one is cluster-scoped and one not there.
fn allowing() -> Settings {
    let allowed = ["horses", "sheriffs", "wagons"].map(|plural| GroupResource::new("wildwest.dev", plural));
    Settings {
        claimable_resources: allowed.into(),
        ..settings()
    }
}

fn claim(resource: &str, selector: Selector) -> PermissionClaim {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    PermissionClaim {
        group_resource: GroupResource::new(group, resource),
        selector,
    }
}

fn referring(resource: &str, name: &str, namespace: Option<&str>) -> Selector {
    Selector {
        references: vec![SelectorReference {
            group_resource: GroupResource::new("wildwest.dev", resource),
            versions: Vec::new(),
            json_path: ReferencePath {
                name: name.to_owned(),
                namespace: namespace.map(ToOwned::to_owned),
            },
        }],
        ..Selector::default()
    }
}

fn named(name: &str, namespace: Option<&str>) -> Selector {
    Selector {
        named_resources: vec![NamedResource {
            name: name.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
        }],
        ..Selector::default()
    }
}

fn labelled(operator: &str, values: &[&str]) -> Selector {
    Selector {
        label_selector: Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "app".to_owned(),
                operator: operator.to_owned(),
                values: (!values.is_empty()).then(|| values.iter().map(|value| (*value).to_owned()).collect()),
            }]),
            match_labels: None,
        }),
        ..Selector::default()
    }
}

/// `expect` is a part of the message, which must also name the claim.
#[track_caller]
fn check(claims: &[PermissionClaim], expect: Result<(), (&str, &str)>) {
    let mut template = cowboys();
    template.spec.permission_claims = claims.to_vec();
    let verdict = assess(&template, &offered(), &allowing()).map(|_| ());
    match (&verdict, expect) {
        (Ok(()), Ok(())) => {}
        (Err(refusal), Err((reason, words))) => {
            let message = refusal.to_string();
            assert_eq!(refusal.reason(), reason, "{message}");
            assert!(message.contains(words), "{message}");
            let claim = claims.last().unwrap();
            assert!(message.contains(&claim.group_resource.to_string()), "{message}");
        }
        _ => panic!("{verdict:?}"),
    }
}

#[track_caller]
fn check_resource(resource: &str, expect: Result<(), &str>) {
    let expect = expect.map_err(|words| ("InvalidPermissionClaim", words));
    check(&[claim(resource, Selector::default())], expect);
}

#[track_caller]
fn check_selector(selector: Selector, expect: Result<(), &str>) {
    let expect = expect.map_err(|words| ("InvalidPermissionClaim", words));
    check(&[claim("secrets", selector)], expect);
}

#[test]
fn what_may_be_claimed_is_core_or_allowed_and_namespaced() {
    for core in CORE_PLURALS {
        check_resource(core, Ok(()));
    }
    check_resource("horses.wildwest.dev", Ok(()));
    check_resource("cowboys.wildwest.dev", Err("offers the resource itself"));
    check_resource("pods", Err("belongs to Kubernetes itself"));
    check_resource("deployments.apps", Err("belongs to Kubernetes itself"));
    check_resource("leases.coordination.k8s.io", Err("belongs to Kubernetes itself"));
    check_resource("apiserviceexports.kube-bind.io", Err("belongs to kube-bind itself"));
    check_resource("secrets.bank.dev", Err("--claimable-resources=secrets.bank.dev"));
    check_resource("sheriffs.wildwest.dev", Err("cluster-scoped"));
    check_resource("wagons.wildwest.dev", Err("install its CustomResourceDefinition"));
}

#[test]
fn a_resource_is_claimed_once() {
    let twice = vec![claim("secrets", Selector::default()); 2];
    check(&twice, Err(("DuplicatePermissionClaim", "claimed twice")));
    check(
        &[
            claim("secrets", Selector::default()),
            claim("configmaps", Selector::default()),
        ],
        Ok(()),
    );
}

#[test]
fn names_are_names() {
    check_selector(Selector::default(), Ok(()));
    check_selector(named("colt-45.permit", None), Ok(()));
    check_selector(named("permit", Some("")), Ok(()));
    check_selector(named("permit", Some("wild-west")), Ok(()));
    check_selector(named("", None), Err("has an invalid name; write a DNS subdomain"));
    check_selector(named("Permit", None), Err("has an invalid name; write a DNS subdomain"));
    check_selector(
        named("permit", Some("wild.west")),
        Err("has an invalid name; write a DNS label"),
    );
}

#[test]
fn label_selectors_can_match() {
    check_selector(labelled("In", &["a"]), Ok(()));
    check_selector(labelled("Exists", &[]), Ok(()));
    check_selector(labelled("NotIn", &[]), Err("needs values"));
    check_selector(labelled("DoesNotExist", &["a"]), Err("has values"));
    check_selector(labelled("in", &["a"]), Err("no operator"));
}

#[test]
fn references_are_paths_from_what_the_template_offers() {
    check_selector(referring("cowboys", "spec.secretRefs.#.name", None), Ok(()));
    check_selector(
        referring("cowboys", "spec.ref.name", Some("spec.ref.namespace")),
        Ok(()),
    );
    check_selector(
        referring("horses", "spec.name", None),
        Err("not among the template's resources"),
    );
    for path in [
        "",
        "spec..name",
        "#.name",
        "spec.*",
        "spec.refs[0]",
        "spec.refs.#(name==\"x\")",
        "a b",
    ] {
        check_selector(referring("cowboys", path, None), Err("is not a valid path"));
        check_selector(
            referring("cowboys", "spec.name", Some(path)),
            Err("is not a valid path"),
        );
    }
}

#[test]
fn a_claim_on_what_was_not_served_is_good_once_it_is() {
    let mut template = cowboys();
    template.spec.permission_claims = vec![claim("wagons.wildwest.dev", Selector::default())];
    assert!(assess(&template, &offered(), &allowing()).is_err());
    let with = offered().with(definition("wildwest.dev", "wagons", "Namespaced"));
    assert!(assess(&template, &with, &allowing()).is_ok());
}

proptest! {
    /// Nothing of a protected group but the three is ever claimed, whatever the operator allows.
    #[test]
    fn protected_groups_stay_protected(
        resource in "[a-z]{2,12}",
        group in prop_oneof![Just(String::new()), "[a-z]{1,8}", "[a-z]{1,5}\\.k8s\\.io", "[a-z]{1,5}\\.kube-bind\\.io"],
    ) {
        let resource = GroupResource::new(group, resource);
        prop_assume!(!is_claimable_core(&resource));
        let mut settings = settings();
        settings.claimable_resources.insert(resource.clone());
        let mut template = cowboys();
        let claimed = PermissionClaim { group_resource: resource, selector: Selector::default() };
        template.spec.permission_claims = vec![claimed];
        prop_assert_eq!(assess(&template, &offered(), &settings).unwrap_err().reason(), "InvalidPermissionClaim");
    }
}
