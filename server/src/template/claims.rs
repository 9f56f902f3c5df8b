//! Checks that a template's permission claims can be served.

use std::collections::BTreeSet;

use bindery_api::{
    claims::{CORE_PLURALS, is_claimable_core, is_reference_path},
    label_evaluator, names,
    v1alpha2::{
        APIServiceExportTemplateSpec, ExportResource, GroupResource, Isolation, NamedResource, PermissionClaim,
        ReferencePath, Scope, SelectorReference,
    },
};

use super::Refusal;

/// The longest path of a reference, in bytes.
const PATH_LENGTH_MAX: usize = 256;

/// Looks up the scope of resources that may be claimed beside core resources.
pub trait ClaimableScopes {
    /// The scope of a claimable resource; `None` if it is not served.
    fn claimable(&self, resource: &GroupResource) -> Option<Scope>;
}

/// Checks all claims of a template. `allowed` is what may be claimed beside core resources.
pub(super) fn check(
    template: &APIServiceExportTemplateSpec,
    isolation: Isolation,
    allowed: &BTreeSet<GroupResource>,
    scopes: &impl ClaimableScopes,
) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for claim in &template.permission_claims {
        let resource = &claim.group_resource;
        if !seen.insert(resource) {
            return Err(Refusal::DuplicatePermissionClaim {
                resource: resource.clone(),
            });
        }
        check_resource(resource, &template.resources, allowed, scopes)
            .and_then(|()| check_selector(claim, &template.resources, isolation))
            .map_err(|message| Refusal::InvalidPermissionClaim {
                resource: resource.clone(),
                message,
            })?;
    }
    Ok(())
}

fn check_resource(
    resource: &GroupResource,
    offered: &[ExportResource],
    allowed: &BTreeSet<GroupResource>,
    scopes: &impl ClaimableScopes,
) -> Result<(), String> {
    if offered.iter().any(|offered| offered.group_resource == *resource) {
        return Err(
            "the template offers the resource itself, and its objects are synced already; drop the claim".into(),
        );
    }
    if is_claimable_core(resource) {
        return Ok(());
    }
    if let Some(owner) = names::owner_of_group(&resource.group) {
        let core = CORE_PLURALS.join(", ");
        return Err(format!(
            "it belongs to {owner}, of which only {core} can be claimed; drop the claim"
        ));
    }
    if !allowed.contains(resource) {
        return Err(format!(
            "the provider does not allow it; drop the claim, or start the server with --claimable-resources={resource}"
        ));
    }
    match scopes.claimable(resource) {
        Some(Scope::Namespaced) => Ok(()),
        Some(Scope::Cluster) => {
            Err("it is cluster-scoped, and only namespaced resources can be claimed; drop the claim".into())
        }
        None => Err("the provider's API server does not serve it; install its CustomResourceDefinition".into()),
    }
}

fn check_selector(claim: &PermissionClaim, offered: &[ExportResource], isolation: Isolation) -> Result<(), String> {
    let selector = &claim.selector;
    if let Some(labels) = &selector.label_selector {
        label_evaluator(labels).map_err(|error| error.to_string())?;
    }
    for NamedResource { name, namespace } in &selector.named_resources {
        if !names::is_subdomain(name) {
            return Err(format!("object {name:?} has an invalid name; write a DNS subdomain"));
        }
        let namespace = namespace.as_deref().unwrap_or_default();
        if !namespace.is_empty() && !names::is_label(namespace) {
            return Err(format!(
                "namespace {namespace:?} has an invalid name; write a DNS label"
            ));
        }
    }
    for reference in &selector.references {
        let resource = &reference.group_resource;
        let is_offered = offered.iter().any(|offered| offered.group_resource == *resource);
        if !is_offered && isolation != Isolation::None {
            return Err(format!(
                "{resource} refers to claimed objects and is not among the template's resources; add it to them"
            ));
        }
        check_reference(reference)?;
    }
    Ok(())
}

fn check_reference(reference: &SelectorReference) -> Result<(), String> {
    let ReferencePath { name, namespace } = &reference.json_path;
    for path in std::iter::once(name).chain(namespace) {
        if path.len() > PATH_LENGTH_MAX || !is_reference_path(path) {
            return Err(format!(
                "{path:?} is not a valid path; write names, dots and #, such as spec.secretRefs.#.name"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
