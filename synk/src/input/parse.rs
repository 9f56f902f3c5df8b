//! Parses text into manifests.
//!
//! Text is read as kubectl reads it: YAML 1.1 where that and 1.2 differ on plain scalars (`yes` is a boolean, `0644` is 420), so
//! that a chart means the same to both. What kubectl passes over in silence, such as a key that is given twice, is an error.

mod json;
mod node;
mod object;
mod scalar;
mod split;
#[cfg(test)]
mod tests;
mod yaml;

use self::{node::Located, split::Chunk};
use super::{InputError, InputErrors, Manifest, Origin};

/// Greatest depth of nested collections, because values are walked by recursion here and later.
const MAX_DEPTH: usize = 100;
/// Greatest number of values in a text. The largest known sets have some hundred thousand.
const MAX_NODES: usize = 4_000_000;
/// Greatest number of bytes that aliases may add, because a few lines of aliases could otherwise expand to any size.
const MAX_ALIASED: usize = 16 << 20;
/// Greatest number of errors after which parsing stops.
const MAX_ERRORS: usize = 100;

/// Parses the manifests in a text. `file` names the source in errors.
pub fn parse(file: &str, text: &str) -> Result<Vec<Manifest>, InputErrors> {
    let mut parser = Parser {
        file,
        budget: Budget {
            nodes: MAX_NODES,
            aliased: MAX_ALIASED,
        },
        document: 0,
        manifests: Vec::new(),
        errors: Vec::new(),
    };
    for chunk in split::chunks(text) {
        parser.chunk(&chunk);
        if parser.errors.len() >= MAX_ERRORS {
            break;
        }
    }
    if parser.errors.is_empty() {
        Ok(parser.manifests)
    } else {
        parser.errors.truncate(MAX_ERRORS);
        Err(InputErrors(parser.errors))
    }
}

struct Parser<'a> {
    file: &'a str,
    budget: Budget,
    document: usize,
    manifests: Vec<Manifest>,
    errors: Vec<InputError>,
}

/// The remaining allowance of values and alias bytes.
#[derive(Debug)]
struct Budget {
    nodes: usize,
    aliased: usize,
}

/// The documents in a chunk of text.
#[derive(Debug, Default)]
struct Reading {
    documents: Vec<Document>,
    /// The error that ended the chunk early.
    broken: Option<Problem>,
}

#[derive(Debug)]
struct Document {
    root: Located,
    problems: Vec<Problem>,
}

/// An error, and its line.
#[derive(Debug)]
struct Problem {
    line: u64,
    text: String,
}

// === impl Parser ===

impl Parser<'_> {
    fn chunk(&mut self, chunk: &Chunk<'_>) {
        let reading = self.read(chunk);
        for document in reading.documents {
            self.document += 1;
            let read = object::manifests(document.root, &self.origin(0));
            match read {
                Ok(manifests) if document.problems.is_empty() => self.manifests.extend(manifests),
                read => self.add(document.problems.into_iter().chain(read.err().unwrap_or_default())),
            }
        }
        if let Some(problem) = reading.broken {
            // A collection that is not closed is reported after the end of the text.
            let line = problem.line.min(chunk.last_line());
            self.document += 1;
            self.add([Problem { line, ..problem }]);
        }
    }

    /// Parses a chunk. If it looks like JSON, JSON is tried first: YAML does not accept all JSON (long keys, tabs,
    /// several documents in a row).
    fn read(&mut self, chunk: &Chunk<'_>) -> Reading {
        let json = chunk
            .json()
            .map(|(text, line)| json::read(text, line, &mut self.budget));
        match json {
            Some(json) if json.broken.is_none() => json,
            Some(json) => {
                let yaml = yaml::read(chunk.text, chunk.line, &mut self.budget);
                if yaml.broken.is_none() || json.documents.is_empty() {
                    yaml
                } else {
                    json
                }
            }
            None => yaml::read(chunk.text, chunk.line, &mut self.budget),
        }
    }

    fn add(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            self.errors.push(InputError {
                origin: self.origin(problem.line),
                problem: problem.text,
            });
        }
    }

    fn origin(&self, line: u64) -> Origin {
        Origin {
            file: self.file.to_owned(),
            document: self.document,
            line,
        }
    }
}

// === impl Budget ===

impl Budget {
    fn node(&mut self, line: u64) -> Result<(), Problem> {
        self.nodes = self
            .nodes
            .checked_sub(1)
            .ok_or_else(|| Problem::new(line, format!("more than {MAX_NODES} values: split the input")))?;
        Ok(())
    }

    fn alias(&mut self, weight: usize, line: u64) -> Result<(), Problem> {
        self.aliased = self
            .aliased
            .checked_sub(weight)
            .ok_or_else(|| Problem::new(line, "anchors and aliases blow the input up: write out what is meant"))?;
        Ok(())
    }
}

// === impl Problem ===

impl Problem {
    fn new(line: u64, text: impl Into<String>) -> Self {
        Self {
            line,
            text: text.into(),
        }
    }
}
