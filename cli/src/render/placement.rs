//! Where the provider keeps the objects of a template, in words.

use bindery_api::v1alpha2::{APIServiceExportTemplateSpec, ConflictPolicy, Isolation, Scope};

/// The isolation of a template in one word; for None with the policy that says which consumer wins a shared name.
pub(crate) fn isolation(spec: &APIServiceExportTemplateSpec) -> String {
    match (spec.isolation, spec.conflict_policy) {
        (None, _) => "<default>".to_owned(),
        (Some(Isolation::None), policy) => format!("None,{}", policy.unwrap_or_default()),
        (Some(isolation), _) => isolation.to_string(),
    }
}

/// Where the provider keeps the objects of a template. `default` is its isolation for templates without one.
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

/// A warning before a bind of a template whose consumers share names; none for other templates.
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
mod tests;
