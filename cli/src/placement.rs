//! Where the objects of a template stand on the provider, in words. Pure.

use bindery_api::v1alpha2::{APIServiceExportTemplateSpec, ConflictPolicy, Isolation, Scope};

/// The isolation of a template in one word, and who wins where consumers share names.
pub(crate) fn isolation(spec: &APIServiceExportTemplateSpec) -> String {
    match (spec.isolation, spec.conflict_policy) {
        (None, _) => "<default>".to_owned(),
        (Some(Isolation::None), policy) => format!("None,{}", policy.unwrap_or_default()),
        (Some(isolation), _) => isolation.to_string(),
    }
}

/// Where objects stand, with what the provider does where the template does not say.
pub(crate) fn words(spec: &APIServiceExportTemplateSpec, default: Option<Isolation>) -> String {
    if spec.scope == Scope::Namespaced {
        return "in namespaces that are this cluster's alone".to_owned();
    }
    match spec.isolation.or(default) {
        None => "as the provider chooses (the template has no isolation of its own)".to_owned(),
        Some(Isolation::Prefixed) => {
            "cluster-wide, as CONTRACT-NAME: nobody else can change them, but everybody who binds the template can read them"
                .to_owned()
        }
        Some(Isolation::Namespaced) => match spec.cluster_scoped_namespace.as_deref() {
            Some(namespace) if !namespace.is_empty() => {
                format!("in the namespace that stands for this cluster's namespace {namespace}")
            }
            _ => "in a namespace that is this cluster's alone".to_owned(),
        },
        Some(Isolation::None) => "cluster-wide, under the same name for every consumer".to_owned(),
    }
}

/// What to know before binding a template whose consumers share names.
pub(crate) fn warning(spec: &APIServiceExportTemplateSpec, default: Option<Isolation>) -> Option<&'static str> {
    let shared = spec.isolation.or(default) == Some(Isolation::None);
    if !shared || spec.scope == Scope::Namespaced {
        return None;
    }
    Some(match spec.conflict_policy.unwrap_or_default() {
        ConflictPolicy::FirstWins => {
            "WARNING: isolation None: other consumers read these objects and claimed ones, and a name belongs to the first \
             who used it"
        }
        ConflictPolicy::LastWins => {
            "WARNING: isolation None, LastWins: other consumers read these objects and claimed ones, and may overwrite them"
        }
    })
}

#[cfg(test)]
mod tests {
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
}
