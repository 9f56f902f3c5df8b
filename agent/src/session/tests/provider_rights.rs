use super::*;

const CONTRACT: &str = "kube-bind-x";

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> ResourceRule {
    let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    ResourceRule {
        api_groups: Some(owned(groups)),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        resource_names: (!names.is_empty()).then(|| owned(names)),
    }
}

/// The rules of ClusterRole `kube-binder` in `deploy/`.
fn shipped() -> Vec<ResourceRule> {
    let document = include_str!("../../../../deploy/server/binder-role.yaml");
    let role: k8s_openapi::api::rbac::v1::ClusterRole = serde_saphyr::from_str(document).unwrap();
    let rules = role.rules.unwrap_or_default().into_iter();
    rules
        .map(|rule| ResourceRule {
            api_groups: rule.api_groups,
            resources: rule.resources,
            verbs: rule.verbs,
            resource_names: rule.resource_names,
        })
        .collect()
}

#[track_caller]
fn check(rules: &[ResourceRule], expect: &str) {
    assert_eq!(granting(&missing(rules, CONTRACT)), expect);
}

#[test]
fn what_the_server_grants_is_enough() {
    check(&shipped(), "");
    check(&[rule(&["*"], &["*"], &["*"], &[])], "");
}

#[test]
fn every_missing_right_is_named() {
    let reader = [rule(
        &[KUBE_BIND],
        &["apiserviceexports"],
        &["get", "list", "watch"],
        &[],
    )];
    check(
        &reader,
        "{apiGroups: [\"\"], resources: [namespaces], verbs: [get]}, \
         {apiGroups: [\"kube-bind.io\"], resources: [boundschemas, clusterbindings], verbs: [list, watch]}, \
         {apiGroups: [\"kube-bind.io\"], resources: [apiservicenamespaces], verbs: [list, watch, create, patch, delete]}, \
         {apiGroups: [\"kube-bind.io\"], resources: [apiserviceexports/status, boundschemas/status, clusterbindings/status], \
         verbs: [patch]}",
    );
}

#[test]
fn a_rule_for_other_objects_grants_nothing() {
    let without = |resource: &str| {
        let mut rules = shipped();
        for rule in &mut rules {
            rule.resources
                .iter_mut()
                .for_each(|all| all.retain(|known| known != resource));
        }
        rules
    };
    let with = |resource: &str, rule: ResourceRule| [without(resource), vec![rule]].concat();
    let namespace = |name: &str| rule(&[""], &["namespaces"], &["get"], &[name]);
    check(&with("namespaces", namespace(CONTRACT)), "");
    let lacking = "{apiGroups: [\"\"], resources: [namespaces], verbs: [get]}";
    check(&with("namespaces", namespace("kube-bind-y")), lacking);
    let record = |name: &str| rule(&[KUBE_BIND], &["clusterbindings"], &["list", "watch"], &[name]);
    check(&with("clusterbindings", record("cluster")), "");
    let lacking = "{apiGroups: [\"kube-bind.io\"], resources: [clusterbindings], verbs: [list, watch]}";
    check(&with("clusterbindings", record("other")), lacking);
    let schema = rule(
        &[KUBE_BIND],
        &["boundschemas"],
        &["list", "watch"],
        &["cowboys.wildwest.dev"],
    );
    let lacking = "{apiGroups: [\"kube-bind.io\"], resources: [boundschemas], verbs: [list, watch]}";
    check(&with("boundschemas", schema), lacking);
}

#[test]
fn a_question_names_subresource_and_object() {
    let review = access_review(WRITE_HEARTBEAT, CONTRACT);
    let asked = review.spec.resource_attributes.unwrap();
    assert_eq!(asked.resource.as_deref(), Some("clusterbindings"));
    assert_eq!(asked.subresource.as_deref(), Some("status"));
    assert_eq!(asked.name.as_deref(), Some("cluster"));
    let review = access_review(LIST_SCHEMAS, CONTRACT);
    let asked = review.spec.resource_attributes.unwrap();
    assert_eq!((asked.subresource, asked.name), (None, None));
}

#[test]
fn a_rule_for_a_subresource_of_all_resources_grants_it() {
    let every = [rule(&[KUBE_BIND], &["*/status"], &["patch"], &[])];
    let missing = missing(&every, CONTRACT);
    assert!(
        missing.iter().all(|right| !right.resource.ends_with("/status")),
        "{missing:?}"
    );
    assert!(missing.contains(&LIST_EXPORTS));
    let other = [rule(&[KUBE_BIND], &["*/scale"], &["patch"], &[])];
    check(&[&other[..], &shipped()[..]].concat(), "");
    assert!(super::missing(&other, CONTRACT).contains(&WRITE_HEARTBEAT));
}

#[test]
fn a_namespace_that_was_read_is_not_told_as_missing() {
    let read = Verification::new(Some("a".into()), vec![READ_NAMESPACE, WRITE_HEARTBEAT]);
    assert_eq!(read.missing, [WRITE_HEARTBEAT]);
    let unread = Verification::new(None, vec![WRITE_HEARTBEAT]);
    assert_eq!(unread.missing, [READ_NAMESPACE, WRITE_HEARTBEAT]);
}
