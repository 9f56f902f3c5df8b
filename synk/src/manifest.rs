//! Defines a manifest: one object of the input, and its place in it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::object::ObjectRef;

/// One object of the input.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    /// Reference to the object. Its namespace is the manifest's own, until [`resolve`](crate::input::resolve) fills it in.
    pub object: ObjectRef,
    /// The whole object, with `apiVersion`, `kind` and `metadata`.
    pub body: Map<String, Value>,
    /// The place of the document in the input.
    pub origin: Origin,
}

/// The place of a document in the input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The file, `-` for standard input, or another name for the source of the text.
    pub file: String,
    /// Number of the document in the file, from 1; 0 means the file as a whole.
    pub document: usize,
    /// The line on which the document begins, or on which an error is; from 1.
    pub line: u64,
}

// === impl Manifest ===

/// Prints the reference only, because the body may be a Secret.
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
