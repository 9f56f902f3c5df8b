//! Whether a changed schema still takes, and keeps, all that the one before it took.
//!
//! Compatible is what neither an existing object nor a writer notices: optional fields, versions and subresource scale
//! added, limits widened, rules dropped, texts and columns and defaults changed. Everything else is not, and what this
//! module does not know least of all.

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

/// Why a schema cannot take the place of another.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub struct Incompatible {
    version: Option<String>,
    path: String,
    change: String,
    more: usize,
}

/// Whether the second schema may take the place of the first.
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

/// As [`check`], of two CRDs.
pub fn check_definitions(old: &CustomResourceDefinition, new: &CustomResourceDefinition) -> Result<(), Incompatible> {
    check(&spec(old)?, &spec(new)?)
}

/// All of a CRD that is compared.
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
        // Who wrote the status with the object writes it no more.
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
    /// Stable reason of a condition.
    pub const REASON: &str = "IncompatibleSchema";

    /// Stable reason of a condition.
    #[allow(clippy::unused_self, reason = "as every error has it")]
    pub const fn reason(&self) -> &'static str {
        Self::REASON
    }

    /// The version it is about; none if it is about the API itself.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The field it is about, as `spec.horses[].name`; empty if it is about no field.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What changed there.
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
