//! Prints what became of objects, as kubectl does.

use std::{fmt, io::Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    errors::Failure,
    render::output::{Format, Printer, list, printable},
};

/// What became of an object, in kubectl's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Created,
    Configured,
    Unchanged,
    Deleted,
}

/// One object, and what became of it.
#[derive(Serialize)]
pub(crate) struct Applied {
    /// `kind.group/name`, as kubectl writes it.
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    outcome: Outcome,
    /// The role of the cluster, where a command works on two.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'static str>,
}

/// Prints what became of each object: a line at once for people, one document at the end for programs.
pub(crate) struct Report<'a, W> {
    printer: &'a mut Printer<W>,
    applied: Vec<Applied>,
    /// The text at the end of each line.
    note: &'static str,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
        })
    }
}

// === impl Applied ===

impl Applied {
    pub(crate) fn new(object: String, namespace: Option<String>, outcome: Outcome) -> Self {
        Self {
            object,
            namespace,
            outcome,
            cluster: None,
        }
    }

    /// Names the cluster by its role, such as `provider`.
    pub(crate) fn on(self, cluster: &'static str) -> Self {
        Self {
            cluster: Some(cluster),
            ..self
        }
    }

    pub(crate) fn of(manifest: &Value, outcome: Outcome) -> Self {
        let namespace = manifest["metadata"]["namespace"].as_str().map(str::to_owned);
        Self::new(reference(manifest), namespace, outcome)
    }

    /// A cluster-scoped object.
    pub(crate) fn global(kind: &str, api_version: &str, name: &str, outcome: Outcome) -> Self {
        let manifest = json!({ "kind": kind, "apiVersion": api_version, "metadata": { "name": name } });
        Self::of(&manifest, outcome)
    }
}

/// `kind.group/name`, as kubectl writes it.
pub(crate) fn reference(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text(&manifest["kind"]), text(&manifest["apiVersion"]));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let dot = if group.is_empty() { "" } else { "." };
    let name = text(&manifest["metadata"]["name"]);
    format!("{}{dot}{group}/{name}", kind.to_ascii_lowercase())
}

// === impl Report ===

impl<'a, W: Write> Report<'a, W> {
    pub(crate) fn new(printer: &'a mut Printer<W>) -> Self {
        Self {
            printer,
            applied: Vec::new(),
            note: "",
        }
    }

    /// A report of what would become of objects.
    pub(crate) fn dry_run(printer: &'a mut Printer<W>) -> Self {
        Self {
            note: " (dry run)",
            ..Self::new(printer)
        }
    }

    /// Adds an object, and prints its line if the format is for people.
    pub(crate) fn tell(&mut self, applied: Applied) -> Result<(), Failure> {
        let object = printable(&applied.object);
        match self.printer.format() {
            Format::Json | Format::Yaml => {}
            Format::Name => self.printer.text(&format!("{object}\n"))?,
            Format::Table | Format::Wide => {
                let on = applied
                    .cluster
                    .map_or_else(String::new, |cluster| format!(" on the {cluster}"));
                self.printer
                    .text(&format!("{object} {}{on}{}\n", applied.outcome, self.note))?;
            }
        }
        self.applied.push(applied);
        Ok(())
    }

    /// Prints the document, if the format is for programs.
    pub(crate) fn end(self) -> Result<(), Failure> {
        match self.printer.format() {
            Format::Json | Format::Yaml => self.printer.document(&list(&self.applied)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
