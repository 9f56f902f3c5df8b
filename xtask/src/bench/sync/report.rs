//! What is printed: a section for each measure.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::super::{Report as Printed, plot::Panel, table::Table};

/// The result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) bench: &'static str,
    /// With which settings.
    pub(super) settings: Value,
    pub(super) sections: Vec<Section>,
}

/// What one measure found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Section {
    pub(super) measure: &'static str,
    /// For programs.
    rows: Value,
    /// What to know when reading it.
    notes: Vec<String>,
    /// What is not good enough.
    missed: Vec<String>,
    #[serde(skip)]
    table: Table,
    /// To be drawn.
    #[serde(skip)]
    pub(super) panels: Vec<Panel>,
}

// === impl Section ===

impl Section {
    /// Of rows for programs, and the same for people.
    pub(super) fn new(measure: &'static str, rows: &impl Serialize, table: Table) -> Result<Self> {
        Ok(Self {
            measure,
            rows: serde_json::to_value(rows)?,
            notes: Vec::new(),
            missed: Vec::new(),
            table,
            panels: Vec::new(),
        })
    }

    /// What to know when reading it.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// What is wanted, and whether it is so.
    pub(super) fn bar(mut self, holds: bool, what: impl Into<String>) -> Self {
        let what = what.into();
        if holds {
            self.notes.push(what);
        } else {
            self.missed.push(what);
        }
        self
    }

    fn text(&self) -> String {
        let notes = self.notes.iter().map(|note| format!("{note}\n"));
        let missed = self.missed.iter().map(|missed| format!("MISSED: {missed}\n"));
        let lines: String = notes.chain(missed).collect();
        format!("{}\n{}{lines}", self.measure, self.table)
    }
}

// === impl Report ===

impl Printed for Report {
    fn table(&self) -> String {
        let sections: Vec<_> = self.sections.iter().map(Section::text).collect();
        sections.join("\n")
    }

    fn missed(&self) -> Option<String> {
        let all = self.sections.iter().flat_map(|section| &section.missed);
        let all: Vec<_> = all.map(String::as_str).collect();
        (!all.is_empty()).then(|| format!("missed: {}", all.join("; ")))
    }
}
