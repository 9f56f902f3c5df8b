//! Prints results on standard output: tables for people, JSON and YAML for programs.

use std::io::Write;

use bindery_runtime::terminal;
pub(crate) use bindery_runtime::terminal::{age, printable, span, table};
use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use crate::text::joined;
use crate::{errors::Failure, install::owner::CredentialOwner};

/// Format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table, or a text for people.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kind and name, one a line.
    Name,
}

/// A result that can be printed as a row of a table, a document or a name.
pub(crate) trait Show: Serialize {
    /// Headings of the columns; those of the wide format alone are at the end.
    const HEADINGS: &'static [&'static str];
    /// How many of the columns a plain table has.
    const PLAIN: usize;

    /// One cell per heading.
    fn cells(&self, now: Timestamp) -> Vec<String>;

    /// `<kind>.<group>/<name>`, as kubectl writes it.
    fn reference(&self) -> String;
}

/// Writes results in one format.
pub(crate) struct Printer<W> {
    format: Format,
    out: W,
}

impl<W: Write> Printer<W> {
    pub(crate) fn new(format: Format, out: W) -> Self {
        Self { format, out }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Prints a list, also an empty one.
    pub(crate) fn list<S: Show>(&mut self, items: &[S], now: Timestamp) -> Result<(), Failure> {
        match self.format {
            Format::Json | Format::Yaml => self.document(&list(items)),
            _ => self.rows(items, now),
        }
    }

    /// Prints one object.
    pub(crate) fn one<S: Show>(&mut self, item: &S, now: Timestamp) -> Result<(), Failure> {
        match self.format {
            Format::Json | Format::Yaml => self.document(item),
            _ => self.rows(std::slice::from_ref(item), now),
        }
    }

    /// Prints a binding or a bundle.
    pub(crate) fn owner(&mut self, owner: &CredentialOwner, now: Timestamp) -> Result<(), Failure> {
        match owner {
            CredentialOwner::Binding(binding) => self.one(binding.as_ref(), now),
            CredentialOwner::Bundle(bundle) => self.one(bundle.as_ref(), now),
        }
    }

    /// Prints one document: JSON if that is the format, else YAML.
    pub(crate) fn document(&mut self, document: &impl Serialize) -> Result<(), Failure> {
        match self.format {
            Format::Json => {
                let text = terminal::json(document).map_err(Failure::Format)?;
                writeln!(self.out, "{text}")?;
            }
            _ => write!(self.out, "{}", yaml(document)?)?,
        }
        self.flush()
    }

    /// Prints several documents: a List in JSON, else YAML documents one after the other.
    pub(crate) fn documents(&mut self, documents: &[Value]) -> Result<(), Failure> {
        if self.format == Format::Json {
            return self.document(&list(documents));
        }
        for (index, document) in documents.iter().enumerate() {
            let rule = if index == 0 { "" } else { "---\n" };
            write!(self.out, "{rule}{}", yaml(document)?)?;
        }
        self.flush()
    }

    /// Prints a text. What could rewrite the terminal is replaced, since names and messages of others may be in it.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(terminal::printable_text(text).as_bytes())?;
        self.flush()
    }

    fn rows<S: Show>(&mut self, items: &[S], now: Timestamp) -> Result<(), Failure> {
        if self.format == Format::Name {
            for item in items {
                writeln!(self.out, "{}", printable(&item.reference()))?;
            }
            return self.flush();
        }
        if items.is_empty() {
            return Ok(());
        }
        let columns = if self.format == Format::Wide {
            S::HEADINGS.len()
        } else {
            S::PLAIN
        };
        let rows = items.iter().map(|item| item.cells(now));
        self.text(&table(S::HEADINGS, rows, columns))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}

/// A list as kubectl prints it: the document of every result with items.
pub(crate) fn list<T: Serialize>(items: &[T]) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

fn yaml(document: &impl Serialize) -> Result<String, Failure> {
    terminal::yaml(document).map_err(Failure::Format)
}

#[cfg(test)]
mod tests;
