//! What is wrong with a configuration: each fault with the path of its field.

use std::fmt;

/// Faults that are told at once.
const FAULTS_MAX: usize = 20;

/// Why a configuration of issuers cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is not of the kind.
    #[error("cannot be read as an AuthenticationConfiguration: {0}")]
    Syntax(String),
    /// Fields are wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Fields(Vec<Fault>),
}

/// A wrong field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The path of the field, such as `jwt[0].issuer.url`.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl ConfigError {
    /// The same error with other names of the fields.
    pub(in crate::oidc) fn renamed(self, rename: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Fields(faults) => {
                let renamed = faults.into_iter().map(|fault| Fault {
                    path: rename(&fault.path),
                    message: fault.message,
                });
                Self::Fields(renamed.collect())
            }
            Self::Syntax(_) => self,
        }
    }
}

/// The faults that were found so far.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Fault>);

impl Report {
    pub(super) fn add(&mut self, path: &Path, message: impl Into<String>) {
        let message = message.into();
        self.0.push(Fault {
            path: path.0.clone(),
            message,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_error(mut self) -> ConfigError {
        self.0.truncate(FAULTS_MAX);
        ConfigError::Fields(self.0)
    }
}

/// The path of a field.
#[derive(Clone, Debug)]
pub(super) struct Path(String);

impl Path {
    pub(super) fn root(name: &str) -> Self {
        Self(name.to_owned())
    }

    pub(super) fn child(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }
}
