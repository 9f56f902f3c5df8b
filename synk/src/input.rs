//! Reads manifests: YAML or JSON streams from files, folders or standard input.

mod check;
mod files;
mod parse;

pub use check::resolve;
pub use files::read;
pub use parse::parse;

pub use crate::manifest::{Manifest, Origin};

/// All errors of an input, so that one run shows all of them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct InputErrors(pub Vec<InputError>);

/// An error in one document.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct InputError {
    /// The place of the error.
    pub origin: Origin,
    /// The error and its mend. It never repeats the content of a Secret.
    pub problem: String,
}

/// Writes each error on a line of its own.
pub(crate) fn lines(errors: &[impl ToString]) -> String {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
