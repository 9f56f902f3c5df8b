use super::*;

#[track_caller]
fn check(scope: Scope, isolation: Option<Isolation>, default: Option<Isolation>, expect: &str, warns: bool) {
    let spec = APIServiceExportTemplateSpec {
        scope,
        isolation,
        ..APIServiceExportTemplateSpec::default()
    };
    let text = words(&spec, default);
    assert!(text.contains(expect), "{text}");
    assert_eq!(warning(&spec, default).is_some(), warns);
}

#[test]
fn sharing_is_warned_of_and_nothing_else() {
    use Isolation::{Namespaced, None as Shared, Prefixed};
    check(Scope::Namespaced, None, Some(Shared), "this cluster's alone", false);
    check(Scope::Namespaced, Some(Shared), None, "this cluster's alone", false);
    check(Scope::Cluster, None, None, "as the provider chooses", false);
    check(Scope::Cluster, None, Some(Prefixed), "CONTRACT-NAME", false);
    check(
        Scope::Cluster,
        Some(Namespaced),
        Some(Shared),
        "this cluster's alone",
        false,
    );
    check(Scope::Cluster, Some(Shared), Some(Prefixed), "same name", true);
    check(Scope::Cluster, None, Some(Shared), "same name", true);
}

#[test]
fn who_wins_is_part_of_the_warning() {
    let mut spec = APIServiceExportTemplateSpec {
        scope: Scope::Cluster,
        isolation: Some(Isolation::None),
        ..APIServiceExportTemplateSpec::default()
    };
    assert_eq!(isolation(&spec), "None,FirstWins");
    assert!(warning(&spec, None).unwrap().contains("first"));
    spec.conflict_policy = Some(ConflictPolicy::LastWins);
    assert_eq!(isolation(&spec), "None,LastWins");
    assert!(warning(&spec, None).unwrap().contains("overwrite"));
    spec.isolation = Some(Isolation::Namespaced);
    spec.cluster_scoped_namespace = Some("west".to_owned());
    assert_eq!(isolation(&spec), "Namespaced");
    assert!(words(&spec, None).contains("namespace west"));
}
