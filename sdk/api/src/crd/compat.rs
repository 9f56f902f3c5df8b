//! Whether a changed schema still accepts, and keeps, everything that the former schema accepted.
//!
//! A change is compatible if neither existing objects nor writers notice it: new optional fields, versions or subresource scale,
//! wider limits, fewer rules, other texts, columns or defaults. All other changes are incompatible, those of unknown keywords
//! included.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceSubresources,
};

use self::walk::Walk;
use super::{offered_version, scope_of};
use crate::v1alpha2::{BoundSchemaSpec, BoundSchemaVersion};

mod schema;
mod values;
mod walk;

/// Why a schema cannot replace another one.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub struct Incompatible {
    version: Option<String>,
    path: String,
    change: String,
    more: usize,
}

/// Checks whether the new schema may replace the old one.
pub fn check(old: &BoundSchemaSpec, new: &BoundSchemaSpec) -> Result<(), Incompatible> {
    let mut walk = Walk::default();
    let mut same = |what: &str, old: &str, new: &str| {
        if old != new {
            walk.found(format!("{what} changed from {old} to {new}"));
        }
    };
    same("group", &old.group, &new.group);
    same("plural", &old.names.plural, &new.names.plural);
    same("kind", &old.names.kind, &new.names.kind);
    same("scope", old.scope.as_str(), new.scope.as_str());
    for before in old.versions.iter().filter(|version| version.served) {
        walk.version(&before.name, |walk| {
            match new.versions.iter().find(|after| after.name == before.name) {
                Some(after) if after.served => version(before, after, walk),
                Some(_) | None => walk.found("version is no longer offered"),
            }
        });
    }
    walk.verdict()
}

/// As [`check`], for two CRDs.
pub fn check_definitions(old: &CustomResourceDefinition, new: &CustomResourceDefinition) -> Result<(), Incompatible> {
    check(&spec(old)?, &spec(new)?)
}

/// Returns everything of a CRD that is compared.
fn spec(crd: &CustomResourceDefinition) -> Result<BoundSchemaSpec, Incompatible> {
    let source = &crd.spec;
    let versions = source.versions.iter().map(|version| {
        let offered = offered_version(&source.names.plural, version, version.storage);
        let offered = offered.map(|offered| BoundSchemaVersion {
            served: version.served,
            ..offered
        });
        offered.map_err(|error| Incompatible {
            version: Some(version.name.clone()),
            path: String::new(),
            change: error.to_string(),
            more: 0,
        })
    });
    Ok(BoundSchemaSpec {
        group: source.group.clone(),
        names: source.names.clone(),
        scope: scope_of(source),
        versions: versions.collect::<Result<_, _>>()?,
        ..BoundSchemaSpec::default()
    })
}

fn version(old: &BoundSchemaVersion, new: &BoundSchemaVersion, walk: &mut Walk) {
    match (old.has_status(), new.has_status()) {
        (true, false) => walk.found("subresource status removed"),
        // Clients that wrote the status together with the object can no longer do so.
        (false, true) => walk.found("subresource status added"),
        (true, true) | (false, false) => {}
    }
    let scale = |version: &BoundSchemaVersion| {
        let subresources: Option<CustomResourceSubresources> = version.subresources.clone();
        subresources.and_then(|subresources| subresources.scale)
    };
    match (scale(old), scale(new)) {
        (Some(_), None) => walk.found("subresource scale removed"),
        (Some(old), Some(new)) if old != new => walk.found("subresource scale changed"),
        _ => {}
    }
    schema::compare_root(old.json_schema_props(), new.json_schema_props(), walk);
}

// === impl Incompatible ===

impl Incompatible {
    /// Reason of a condition, which never changes.
    pub const REASON: &str = "IncompatibleSchema";

    /// Returns the reason of a condition, which never changes.
    #[allow(clippy::unused_self, reason = "as every error has it")]
    pub const fn reason(&self) -> &'static str {
        Self::REASON
    }

    /// Returns the version with the change; `None` if the change is outside of versions.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns the path of the changed field, such as `spec.horses[].name`; empty if the change is outside of fields.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns what changed.
    pub fn change(&self) -> &str {
        &self.change
    }
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self
            .version
            .iter()
            .chain(Some(&self.path).filter(|path| !path.is_empty()));
        for part in place {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.change)?;
        match self.more {
            0 => Ok(()),
            1 => f.write_str(", and one more change"),
            more => write!(f, ", and {more} more changes"),
        }
    }
}

#[cfg(test)]
mod tests;
