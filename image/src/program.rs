//! The programs that have images.

use anyhow::{Context as _, Result};

/// A program that is shipped as an image of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name of the program and of its image.
    pub name: &'static str,
    /// The package that builds the program.
    pub package: &'static str,
    /// One sentence for the image's label.
    pub description: &'static str,
}

impl Program {
    /// All programs that have images.
    pub const ALL: [Self; 4] = [
        Self {
            name: "bindery-server",
            package: "bindery-server",
            description: "The backend of Bindery, for the cluster that offers APIs",
        },
        Self {
            name: "bindery-konnector",
            package: "bindery-agent",
            description: "The konnector of Bindery, for clusters that use APIs of others",
        },
        Self {
            name: "synk",
            package: "bindery-synk",
            description: "Applies manifests to a Kubernetes cluster as a set",
        },
        Self {
            name: "kubectl-bind",
            package: "bindery-cli",
            description: "Binds APIs of other clusters from the command line",
        },
    ];

    /// Returns the program of that name. The error lists the names that there are.
    pub fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|program| program.name == name);
        found.with_context(|| {
            let names = Self::ALL.map(|program| program.name).join(", ");
            format!("there is no image {name:?}; choose of: {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_program_is_answered_with_the_known_ones() {
        assert_eq!(Program::named("synk").unwrap().package, "bindery-synk");
        let error = Program::named("konnector").unwrap_err().to_string();
        assert!(
            error.contains("\"konnector\"") && error.contains("bindery-konnector, synk"),
            "{error}"
        );
    }
}
