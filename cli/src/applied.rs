//! What became of objects, told as kubectl does.

use std::{fmt, io::Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    errors::Failure,
    output::{Format, Printer, printable},
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

/// What became of one object.
#[derive(Serialize)]
pub(crate) struct Applied {
    /// As kubectl names it.
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    outcome: Outcome,
}

/// Says what became of each object, as kubectl does.
pub(crate) struct Report<'a, W> {
    printer: &'a mut Printer<W>,
    applied: Vec<Applied>,
    /// What stands behind each line.
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
        }
    }

    pub(crate) fn of(manifest: &Value, outcome: Outcome) -> Self {
        let namespace = manifest["metadata"]["namespace"].as_str().map(str::to_owned);
        Self::new(reference(manifest), namespace, outcome)
    }

    /// An object without a namespace.
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

    /// Of what would become of objects.
    pub(crate) fn dry_run(printer: &'a mut Printer<W>) -> Self {
        Self {
            note: " (dry run)",
            ..Self::new(printer)
        }
    }

    /// At once for people, who see how far it is; programs get all of it at the end.
    pub(crate) fn tell(&mut self, applied: Applied) -> Result<(), Failure> {
        let object = printable(&applied.object);
        match self.printer.format() {
            Format::Json | Format::Yaml => {}
            Format::Name => self.printer.text(&format!("{object}\n"))?,
            Format::Table | Format::Wide => {
                self.printer
                    .text(&format!("{object} {}{}\n", applied.outcome, self.note))?;
            }
        }
        self.applied.push(applied);
        Ok(())
    }

    pub(crate) fn end(self) -> Result<(), Failure> {
        match self.printer.format() {
            Format::Json | Format::Yaml => self.printer.document(&json!({ "items": self.applied })),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let name = |kind: &str, version: &str| Applied::global(kind, version, "a", Outcome::Created).object;
        assert_eq!(name("Namespace", "v1"), "namespace/a");
        assert_eq!(name("Deployment", "apps/v1"), "deployment.apps/a");
        assert_eq!(
            name("ClusterRole", "rbac.authorization.k8s.io/v1"),
            "clusterrole.rbac.authorization.k8s.io/a"
        );
    }

    /// What is told of a namespace and a Secret.
    fn told(format: Format, dry_run: bool) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(format, &mut out);
        let mut report = if dry_run {
            Report::dry_run(&mut printer)
        } else {
            Report::new(&mut printer)
        };
        report
            .tell(Applied::global("Namespace", "v1", "a", Outcome::Created))
            .unwrap();
        report
            .tell(Applied::global("Secret", "v1", "b", Outcome::Unchanged))
            .unwrap();
        report.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn programs_get_one_document_and_people_a_line_each() {
        assert_eq!(told(Format::Table, false), "namespace/a created\nsecret/b unchanged\n");
        assert_eq!(
            told(Format::Table, true),
            "namespace/a created (dry run)\nsecret/b unchanged (dry run)\n"
        );
        assert_eq!(told(Format::Name, true), "namespace/a\nsecret/b\n");
        let json: Value = serde_json::from_str(&told(Format::Json, false)).unwrap();
        assert_eq!(
            json["items"][1],
            json!({ "object": "secret/b", "outcome": "unchanged" })
        );
    }
}
