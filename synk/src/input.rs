//! Manifests as they are given: YAML or JSON streams, from files, folders or standard input.

mod check;
mod files;
mod parse;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use check::resolve;
pub use files::read;
pub use parse::parse;

use crate::object::ObjectRef;

/// An object as it is to be.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    /// What it is called. Its namespace is what the manifest says, until [`resolve`] has filled it in.
    pub object: ObjectRef,
    /// All of it, `apiVersion`, `kind` and `metadata` included.
    pub body: Map<String, Value>,
    /// Where it stands.
    pub origin: Origin,
}

/// Where a document stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The file, or `-` for standard input, or what else the text came from.
    pub file: String,
    /// The document in the file, from 1 on; 0 for the file as a whole.
    pub document: usize,
    /// The line on which it begins, or on which something is wrong; from 1 on.
    pub line: u64,
}

/// All that is wrong with an input, so that one run shows it all.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct InputErrors(pub Vec<InputError>);

/// What is wrong with one document.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct InputError {
    /// Where.
    pub origin: Origin,
    /// What, and how it is mended. Never repeats what the document says of a Secret.
    pub problem: String,
}

// === impl Manifest ===

/// What it is, and nothing of what it says: that may be a Secret's.
impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest")
            .field("object", &self.object)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.file == "-" { "standard input" } else { &self.file };
        if self.document == 0 {
            return f.write_str(file);
        }
        write!(f, "{file}, document {}, line {}", self.document, self.line)
    }
}

fn lines(errors: &[InputError]) -> String {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
