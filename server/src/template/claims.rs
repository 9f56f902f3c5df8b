//! Whether a template's permission claims can be served.

use std::collections::BTreeSet;

use bindery_api::{
    names,
    v1alpha2::{ExportResource, GroupResource, Isolation, PermissionClaim, ReferencePath, SelectorReference},
};

use super::Refusal;

/// The core resources that may be claimed.
const CLAIMABLE: [&str; 3] = ["configmaps", "secrets", "serviceaccounts"];

/// The longest path of a reference.
const PATH_LENGTH_MAX: usize = 256;

/// Checks all claims of a template.
pub(super) fn check(
    claims: &[PermissionClaim],
    resources: &[ExportResource],
    isolation: Isolation,
) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for claim in claims {
        let resource = &claim.group_resource;
        if !seen.insert(resource) {
            return Err(Refusal::DuplicatePermissionClaim {
                resource: resource.clone(),
            });
        }
        check_claim(claim, resources, isolation).map_err(|message| Refusal::InvalidPermissionClaim {
            resource: resource.clone(),
            message,
        })?;
    }
    Ok(())
}

fn check_claim(claim: &PermissionClaim, resources: &[ExportResource], isolation: Isolation) -> Result<(), String> {
    let GroupResource { group, resource } = &claim.group_resource;
    if !group.is_empty() || !CLAIMABLE.contains(&resource.as_str()) {
        return Err(format!("only {} can be claimed", CLAIMABLE.join(", ")));
    }
    for named in &claim.selector.named_resources {
        if named.name.is_empty() || named.name.len() > names::NAME_LENGTH_MAX {
            return Err(format!("{:?} is no name of an object", named.name));
        }
    }
    for reference in &claim.selector.references {
        let offered = resources
            .iter()
            .any(|resource| resource.group_resource == reference.group_resource);
        if !offered && isolation != Isolation::None {
            return Err(format!(
                "{} is referred from and not among the template's resources; add it to them",
                reference.group_resource
            ));
        }
        check_reference(reference)?;
    }
    Ok(())
}

fn check_reference(reference: &SelectorReference) -> Result<(), String> {
    let ReferencePath { name, namespace } = &reference.json_path;
    for path in std::iter::once(name).chain(namespace) {
        if !is_path(path) {
            return Err(format!(
                "{path:?} is no path; write names, dots and #, such as spec.secretRefs.#.name"
            ));
        }
    }
    Ok(())
}

/// Names, dots and `#`.
fn is_path(path: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/'))
    };
    path.len() <= PATH_LENGTH_MAX && path.split('.').all(|part| part == "#" || is_name(part))
}
