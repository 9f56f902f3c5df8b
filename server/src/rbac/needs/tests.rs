use bindery_api::v1alpha2::{BoundSchemaSpec, ExportResource, PermissionClaim};
use proptest::prelude::*;

use super::*;

const SHERIFFS: &str = "sheriffs.wildwest.dev";
const COWBOYS: &str = "cowboys.wildwest.dev";
const SEVEN: &str = "create,delete,get,list,patch,update,watch";

fn resource(name: &str) -> GroupResource {
    let (plural, group) = name.split_once('.').unwrap();
    GroupResource::new(group, plural)
}

fn export(isolation: Isolation, informer_scope: InformerScope, resources: &[&str]) -> APIServiceExportSpec {
    let resource = |name: &&str| ExportResource {
        group_resource: resource(name),
        versions: Vec::new(),
    };
    APIServiceExportSpec {
        resources: resources.iter().map(resource).collect(),
        isolation,
        informer_scope,
        ..APIServiceExportSpec::default()
    }
}

fn last_wins(mut export: APIServiceExportSpec) -> APIServiceExportSpec {
    export.conflict_policy = Some(ConflictPolicy::LastWins);
    export
}

fn within(mut export: APIServiceExportSpec, namespace: &str) -> APIServiceExportSpec {
    export.cluster_scoped_namespace = Some(namespace.to_owned());
    export
}

fn scopes(bound: &[(&str, Scope)]) -> Scopes {
    let schema = |(name, scope): &(&str, Scope)| {
        let GroupResource { group, resource } = resource(name);
        let mut spec = BoundSchemaSpec {
            group,
            scope: *scope,
            ..BoundSchemaSpec::default()
        };
        spec.names.plural = resource;
        BoundSchema::new(name, spec)
    };
    let schemas: Vec<_> = bound.iter().map(schema).collect();
    schemas.iter().collect()
}

fn names(resources: &[GroupResource]) -> Vec<String> {
    resources.iter().map(ToString::to_string).collect()
}

fn said(rules: &[PolicyRule]) -> Vec<String> {
    let say = |rule: &PolicyRule| {
        let words = |words: &Option<Vec<String>>| words.as_deref().unwrap_or_default().join(",");
        format!(
            "{}.{}: {}",
            words(&rule.resources),
            words(&rule.api_groups),
            rule.verbs.join(",")
        )
    };
    rules.iter().map(say).collect()
}

/// What an export may write in a mapped namespace of the name `ranch`, in the contract namespace, and what its ClusterRole
/// holds.
#[track_caller]
fn check(export: &APIServiceExportSpec, scope: Scope, ranch: bool, contract: bool, cluster: Option<&str>) {
    let bound: Vec<_> = export
        .resources
        .iter()
        .map(|resource| (resource.group_resource.to_string(), scope))
        .collect();
    let bound: Vec<_> = bound.iter().map(|(name, scope)| (name.as_str(), *scope)).collect();
    let scopes = scopes(&bound);
    let all: Vec<_> = bound.iter().map(|(name, _)| (*name).to_owned()).collect();
    let expect = |is_there: bool| if is_there { all.clone() } else { Vec::new() };
    assert_eq!(names(&namespaced_resources(export, &scopes, "ranch")), expect(ranch));
    assert_eq!(names(&contract_resources(export, &scopes)), expect(contract));
    let rules = said(&cluster_rules(export, &scopes));
    assert_eq!(rules, cluster.map(|verbs| format!("{SHERIFFS}: {verbs}")).as_slice());
    // Before the schema is there, nothing is given.
    let unknown = Scopes::default();
    assert!(!unknown.know(export) && scopes.know(export));
    assert!(namespaced_resources(export, &unknown, "ranch").is_empty());
    assert!(contract_resources(export, &unknown).is_empty() && cluster_rules(export, &unknown).is_empty());
}

#[test]
fn rights_are_given_where_the_objects_stand() {
    use InformerScope::{Cluster, Namespaced};
    let of = |isolation, informer_scope| export(isolation, informer_scope, &[SHERIFFS]);
    let reads = Some("get,list,watch");
    for isolation in [Isolation::Prefixed, Isolation::Namespaced, Isolation::None] {
        check(&of(isolation, Namespaced), Scope::Namespaced, true, false, None);
        check(&of(isolation, Cluster), Scope::Namespaced, true, false, reads);
    }
    for informer_scope in [Namespaced, Cluster] {
        for isolation in [Isolation::Prefixed, Isolation::None] {
            check(
                &of(isolation, informer_scope),
                Scope::Cluster,
                false,
                false,
                Some(SEVEN),
            );
        }
        let shared = last_wins(of(Isolation::None, informer_scope));
        let overwrites = format!("{SEVEN},overwrite");
        check(&shared, Scope::Cluster, false, false, Some(&overwrites));
        let converted = of(Isolation::Namespaced, informer_scope);
        check(&converted, Scope::Cluster, false, true, None);
        check(&within(converted.clone(), "ranch"), Scope::Cluster, true, false, None);
        check(&within(converted, "town"), Scope::Cluster, false, false, None);
    }
}

#[test]
fn each_resource_has_its_own_place() {
    let export = export(Isolation::Prefixed, InformerScope::Cluster, &[COWBOYS, SHERIFFS]);
    let scopes = scopes(&[(COWBOYS, Scope::Namespaced), (SHERIFFS, Scope::Cluster)]);
    assert_eq!(names(&namespaced_resources(&export, &scopes, "ranch")), [COWBOYS]);
    assert_eq!(names(&cluster_resources(&export, &scopes)), [SHERIFFS]);
    assert_eq!(
        said(&cluster_rules(&export, &scopes)),
        [format!("{SHERIFFS}: {SEVEN}"), format!("{COWBOYS}: get,list,watch"),]
    );
}

#[test]
fn the_server_must_hold_what_it_hands_out() {
    let verbs = |export: &APIServiceExportSpec| granted_rights(export, false)[&resource(SHERIFFS)].join(",");
    let none = export(Isolation::None, InformerScope::Namespaced, &[SHERIFFS]);
    assert_eq!(verbs(&none), SEVEN);
    assert_eq!(verbs(&last_wins(none)), format!("{SEVEN},overwrite"));
    // Elsewhere nobody asks for it.
    let prefixed = last_wins(export(Isolation::Prefixed, InformerScope::Namespaced, &[SHERIFFS]));
    assert_eq!(verbs(&prefixed), SEVEN);
}

#[test]
fn core_resources_are_claimed_by_shipped_roles() {
    let mut export = export(Isolation::Prefixed, InformerScope::Namespaced, &[SHERIFFS]);
    let claim = |group_resource| PermissionClaim {
        group_resource,
        ..PermissionClaim::default()
    };
    let claimed = [GroupResource::new("", "secrets"), resource("badges.wildwest.dev")];
    export.permission_claims = claimed.map(claim).into();
    let held: Vec<_> = granted_rights(&export, false).into_keys().collect();
    assert_eq!(names(&held), ["badges.wildwest.dev", SHERIFFS]);
}

fn isolations() -> impl Strategy<Value = Isolation> {
    prop_oneof![
        Just(Isolation::Prefixed),
        Just(Isolation::Namespaced),
        Just(Isolation::None)
    ]
}

prop_compose! {
    fn exports()(
        isolation in isolations(),
        everywhere in any::<bool>(),
        last in any::<bool>(),
        within in proptest::option::of("[a-z]{1,6}"),
        plurals in proptest::collection::btree_set("[a-z]{2,6}", 1..5),
    ) -> APIServiceExportSpec {
        let names: Vec<_> = plurals.iter().map(|plural| format!("{plural}.example.dev")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let informer_scope = if everywhere { InformerScope::Cluster } else { InformerScope::Namespaced };
        APIServiceExportSpec {
            conflict_policy: last.then_some(ConflictPolicy::LastWins),
            cluster_scoped_namespace: within,
            ..export(isolation, informer_scope, &names)
        }
    }
}

proptest! {
    #[test]
    fn no_role_holds_a_wildcard_or_what_is_kubernetes_own(export in exports(), cluster in any::<bool>(), ranch in "[a-z]{1,6}") {
        let scope = if cluster { Scope::Cluster } else { Scope::Namespaced };
        let names: Vec<_> = export.resources.iter().map(|resource| resource.group_resource.to_string()).collect();
        let bound: Vec<_> = names.iter().map(|name| (name.as_str(), scope)).collect();
        let scopes = scopes(&bound);
        let mut all = cluster_rules(&export, &scopes);
        all.extend(rules(&namespaced_resources(&export, &scopes, &ranch), &WRITE_VERBS));
        all.extend(rules(&contract_resources(&export, &scopes), &WRITE_VERBS));
        for rule in &all {
            let words = rule.api_groups.iter().chain(&rule.resources).flatten().chain(&rule.verbs);
            prop_assert!(words.into_iter().all(|word| !word.contains('*')));
            prop_assert!(rule.api_groups.iter().flatten().all(|group| group.contains('.')));
            prop_assert!(rule.non_resource_urls.is_none());
        }
    }

    /// What is given in one place is given in no other, save that one watch over all mapped namespaces reads them all.
    #[test]
    fn each_resource_is_written_in_one_kind_of_place(export in exports(), cluster in any::<bool>(), ranch in "[a-z]{1,6}") {
        let scope = if cluster { Scope::Cluster } else { Scope::Namespaced };
        let names: Vec<_> = export.resources.iter().map(|resource| resource.group_resource.to_string()).collect();
        let bound: Vec<_> = names.iter().map(|name| (name.as_str(), scope)).collect();
        let scopes = scopes(&bound);
        let here = !namespaced_resources(&export, &scopes, &ranch).is_empty();
        let contract = !contract_resources(&export, &scopes).is_empty();
        let everywhere = !cluster_resources(&export, &scopes).is_empty();
        prop_assert!(u8::from(here) + u8::from(contract) + u8::from(everywhere) <= 1);
        let overwrites = cluster_rules(&export, &scopes).iter().any(|rule| rule.verbs.iter().any(|verb| verb == OVERWRITE));
        let shares = cluster && export.isolation == Isolation::None && export.conflict_policy.is_some();
        prop_assert_eq!(overwrites, shares);
    }
}
