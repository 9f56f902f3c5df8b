use bindery_api::v1alpha2::{BoundSchema, BoundSchemaSpec, ExportResource, Isolation, PermissionClaim, Scope};
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef};
use proptest::{collection::vec, prelude::*};

use super::*;

const CONTRACT: &str = "kube-bind-a";

fn export(name: &str, claimed: &[&str]) -> APIServiceExport {
    let claim = |resource: &&str| {
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        PermissionClaim {
            group_resource: GroupResource::new(group, resource),
            ..PermissionClaim::default()
        }
    };
    let spec = APIServiceExportSpec {
        resources: vec![ExportResource {
            group_resource: GroupResource::new("wildwest.dev", "sheriffs"),
            versions: Vec::new(),
        }],
        permission_claims: claimed.iter().map(claim).collect(),
        ..APIServiceExportSpec::default()
    };
    APIServiceExport::new(name, spec)
}

fn cluster(mut export: APIServiceExport) -> APIServiceExport {
    export.spec.informer_scope = InformerScope::Cluster;
    export
}

fn marked(mut export: APIServiceExport) -> APIServiceExport {
    let mark = (
        annotations::CLUSTER_WIDE_SECRETS.to_owned(),
        annotations::TRUE.to_owned(),
    );
    export.annotations_mut().extend([mark]);
    export
}

fn contract() -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(CONTRACT.to_owned());
    namespace.metadata.uid = Some("1".to_owned());
    namespace
}

fn said(rule: &PolicyRule) -> String {
    let words = |words: &Option<Vec<String>>| words.iter().flatten().cloned().collect::<Vec<_>>().join(",");
    format!(
        "{}/{}: {}",
        words(&rule.api_groups),
        words(&rule.resources),
        rule.verbs.join(",")
    )
}

#[track_caller]
fn check_rights(claimed: &[&str], served: ClaimedPlacement, expect: &[(&str, &str, Option<&str>)]) {
    let rights = rights(CONTRACT, &export("cowboys", claimed), "team1", served);
    let seen: Vec<_> = rights
        .iter()
        .map(|Right { role, binding }| {
            assert_eq!(binding.metadata.namespace.as_deref(), Some("team1"));
            assert_eq!(
                binding.metadata.labels,
                Some(crate::rbac::export_labels(CONTRACT, "cowboys"))
            );
            assert_eq!(binding.subjects, Some(vec![account(CONTRACT)]));
            let rules = role.as_ref().map(|role| {
                assert_eq!(role.metadata, binding.metadata);
                role.rules.iter().flatten().map(said).collect::<Vec<_>>().join("; ")
            });
            let RoleRef { kind, name, .. } = &binding.role_ref;
            (binding.name_any(), format!("{kind} {name}"), rules)
        })
        .collect();
    let expect: Vec<_> = expect
        .iter()
        .map(|(name, bound, rules)| ((*name).to_owned(), (*bound).to_owned(), rules.map(ToOwned::to_owned)))
        .collect();
    assert_eq!(seen, expect);
}

#[test]
fn core_claims_are_bindings_of_shipped_roles_and_others_have_a_role_of_their_own() {
    check_rights(&[], ClaimedPlacement::Mapped, &[]);
    let (secrets, maps) = (
        "ClusterRole kube-binder-claims-secrets",
        "ClusterRole kube-binder-claims-configmaps",
    );
    check_rights(
        &["secrets", "configmaps"],
        ClaimedPlacement::Mapped,
        &[
            ("kube-binder-claims-cowboys:configmaps", maps, None),
            ("kube-binder-claims-cowboys:secrets", secrets, None),
        ],
    );
    let all = "create,delete,get,list,patch,update,watch";
    let rules = format!("bank.dev/safes: {all}; wildwest.dev/cows,horses: {all}");
    check_rights(
        &["horses.wildwest.dev", "secrets", "safes.bank.dev", "cows.wildwest.dev"],
        ClaimedPlacement::Mapped,
        &[
            ("kube-binder-claims-cowboys:secrets", secrets, None),
            (
                "kube-binder-claims-cowboys",
                "Role kube-binder-claims-cowboys",
                Some(&rules),
            ),
        ],
    );
}

#[test]
fn where_contracts_share_a_namespace_names_hold_the_contract() {
    let all = "create,delete,get,list,patch,update,watch";
    check_rights(
        &["secrets", "safes.bank.dev"],
        ClaimedPlacement::Shared,
        &[
            (
                "kube-binder-claims-kube-bind-a-cowboys:secrets",
                "ClusterRole kube-binder-claims-secrets",
                None,
            ),
            (
                "kube-binder-claims-kube-bind-a-cowboys",
                "Role kube-binder-claims-kube-bind-a-cowboys",
                Some(&format!("bank.dev/safes: {all}")),
            ),
        ],
    );
}

#[test]
fn only_cluster_scoped_exports_without_isolation_share() {
    let schema = |scope| {
        let mut spec = BoundSchemaSpec {
            group: "wildwest.dev".to_owned(),
            scope,
            ..BoundSchemaSpec::default()
        };
        "sheriffs".clone_into(&mut spec.names.plural);
        BoundSchema::new("sheriffs.wildwest.dev", spec)
    };
    for (scope, isolation, expect) in [
        (Scope::Cluster, Isolation::None, ClaimedPlacement::Shared),
        (Scope::Cluster, Isolation::Prefixed, ClaimedPlacement::Mapped),
        (Scope::Cluster, Isolation::Namespaced, ClaimedPlacement::Mapped),
        (Scope::Namespaced, Isolation::None, ClaimedPlacement::Mapped),
        (Scope::Namespaced, Isolation::Prefixed, ClaimedPlacement::Mapped),
    ] {
        let mut spec = export("sheriffs", &["secrets"]).spec;
        spec.isolation = isolation;
        let scopes = std::iter::once(&schema(scope)).collect();
        assert_eq!(placement(&spec, &scopes), Some(expect), "{scope} {isolation}");
        let unknown = (isolation != Isolation::None).then_some(ClaimedPlacement::Mapped);
        assert_eq!(placement(&spec, &Scopes::default()), unknown, "{isolation}");
    }
}

#[track_caller]
fn check_cluster_wide(export: &APIServiceExport, secrets: bool, expect: Option<&[&str]>) {
    let made = cluster_wide(&contract(), export, secrets);
    let rules = made.as_ref().map(|(role, binding)| {
        assert_eq!(role.name_any(), "kube-binder-claims-kube-bind-a-cowboys");
        assert_eq!(binding.role_ref.name, role.name_any());
        assert_eq!(binding.subjects, Some(vec![account(CONTRACT)]));
        role.rules.iter().flatten().map(said).collect::<Vec<_>>()
    });
    let expect = expect.map(|rules| rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>());
    assert_eq!(rules, expect);
}

#[test]
fn cluster_wide_claims_are_read_and_secrets_only_where_the_operator_said_so_twice() {
    let all = ["secrets", "configmaps", "safes.bank.dev"];
    let without = ["/configmaps: get,list,watch", "bank.dev/safes: get,list,watch"];
    let with = ["/configmaps,secrets: get,list,watch", without[1]];
    check_cluster_wide(&export("cowboys", &all), true, None);
    check_cluster_wide(&cluster(export("cowboys", &["secrets"])), false, None);
    check_cluster_wide(&cluster(export("cowboys", &all)), false, Some(&without));
    // An export from before the flag was set has not the mark, and one from before it was taken back has it still.
    check_cluster_wide(&cluster(export("cowboys", &all)), true, Some(&without));
    check_cluster_wide(&marked(cluster(export("cowboys", &all))), false, Some(&without));
    check_cluster_wide(&marked(cluster(export("cowboys", &all))), true, Some(&with));
    for (export, secrets, expect) in [
        (cluster(export("cowboys", &all)), true, true),
        (cluster(export("cowboys", &all)), false, false),
        (cluster(export("cowboys", &["configmaps"])), true, false),
        (export("cowboys", &all), true, false),
    ] {
        assert_eq!(marks_secrets(&export.spec, secrets), expect);
    }
}

#[test]
fn the_server_holds_what_no_shipped_role_gives() {
    let held = |export: &APIServiceExport, secrets| {
        let held = held(&export.spec, secrets).into_iter();
        held.map(|(resource, verbs)| format!("{resource} {}", verbs.len()))
            .collect::<Vec<_>>()
    };
    let claims = export("cowboys", &["secrets", "configmaps", "safes.bank.dev"]);
    assert_eq!(held(&claims, true), ["safes.bank.dev 7"]);
    let claims = cluster(claims);
    assert_eq!(held(&claims, false), ["safes.bank.dev 7", "configmaps 3"]);
    assert_eq!(held(&claims, true), ["safes.bank.dev 7", "configmaps 3", "secrets 3"]);
}

#[test]
fn the_servers_own_binding_is_of_its_shipped_role_and_no_contracts() {
    let subject = Subject {
        kind: "User".to_owned(),
        name: "server".to_owned(),
        ..Subject::default()
    };
    let binding = server("team1", subject.clone());
    assert_eq!(
        (binding.role_ref.kind.as_str(), binding.role_ref.name.as_str()),
        ("ClusterRole", SERVER_ROLE)
    );
    assert_eq!(binding.subjects, Some(vec![subject]));
    assert_eq!(crate::contract::of(&binding), None);
}

fn claims() -> impl Strategy<Value = Vec<String>> {
    let resource = prop_oneof![
        Just("secrets".to_owned()),
        Just("configmaps".to_owned()),
        Just("serviceaccounts".to_owned()),
        "[a-z]{2,6}\\.[a-z]{1,5}\\.dev",
    ];
    vec(resource, 0..6)
}

proptest! {
    /// Whatever is claimed: no wildcard, nobody but the contract's own account, and no Role with a core resource in it, so
    /// that core rights are those of the shipped roles alone.
    #[test]
    fn rights_hold_no_wildcard_and_name_one_account(claimed in claims(), shared: bool, wide: bool, secrets: bool) {
        let claimed: Vec<_> = claimed.iter().map(String::as_str).collect();
        let mut export = marked(export("cowboys", &claimed));
        if wide {
            export = cluster(export);
        }
        let served = if shared { ClaimedPlacement::Shared } else { ClaimedPlacement::Mapped };
        let given = rights(CONTRACT, &export, "team1", served);
        let mut named = BTreeSet::new();
        for Right { role, binding } in &given {
            prop_assert!(named.insert(binding.name_any()), "one name twice");
            prop_assert_eq!(binding.subjects.as_deref(), Some(&[account(CONTRACT)][..]));
            for rule in role.iter().flat_map(|role| role.rules.iter().flatten()) {
                prop_assert!(!said(rule).contains('*'));
                prop_assert!(rule.api_groups.iter().flatten().all(|group| !group.is_empty()));
            }
        }
        if let Some((role, binding)) = cluster_wide(&contract(), &export, secrets) {
            prop_assert!(wide);
            prop_assert_eq!(binding.subjects, Some(vec![account(CONTRACT)]));
            for rule in role.rules.iter().flatten() {
                prop_assert!(!said(rule).contains('*'));
                prop_assert_eq!(&rule.verbs, &READ_VERBS);
                let names_secrets = rule.resources.iter().flatten().any(|resource| resource == SECRETS);
                prop_assert!(secrets || !names_secrets, "Secrets without the flag");
            }
        }
    }

    /// In a namespace that contracts share, no right of one is another's, whatever exports are called.
    #[test]
    fn contracts_do_not_meet_in_a_shared_namespace(
        one in ("[0-9a-z]{1,13}", "[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?"),
        other in ("[0-9a-z]{1,13}", "[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?"),
    ) {
        prop_assume!(one != other);
        let names = |(hash, name): &(String, String)| {
            let export = export(name, &["secrets", "configmaps", "safes.bank.dev"]);
            let rights = rights(&format!("kube-bind-{hash}"), &export, "team1", ClaimedPlacement::Shared).into_iter();
            rights.map(|right| right.binding.name_any()).collect::<BTreeSet<_>>()
        };
        prop_assert!(names(&one).is_disjoint(&names(&other)));
    }
}
