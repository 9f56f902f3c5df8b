//! The report of the sync benchmarks: a section for each measure, as text and as JSON.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::super::{Report as Printed, plot::Panel, table::Table};

/// The report of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) bench: &'static str,
    /// The settings of the run.
    pub(super) settings: Value,
    pub(super) sections: Vec<Section>,
}

/// The results of one measure.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Section {
    pub(super) measure: &'static str,
    /// The rows of the table as JSON.
    rows: Value,
    /// What a reader has to know about the numbers.
    notes: Vec<String>,
    /// Bars that the results meet.
    holds: Vec<String>,
    /// Bars that the results miss.
    missed: Vec<String>,
    /// Bars that are not checked, because there are too few samples.
    not_judged: Vec<String>,
    #[serde(skip)]
    table: Table,
    /// Diagrams for `--plot`.
    #[serde(skip)]
    pub(super) panels: Vec<Panel>,
}

/// Returns why a bar is not checked, if there are fewer than `least` samples.
pub(super) fn too_few(count: u32, least: u32, what: &str) -> Option<String> {
    (count < least).then(|| format!("of fewer than {least} {what}"))
}

// === impl Section ===

impl Section {
    /// A section with its rows twice: `rows` for JSON, `table` for text.
    pub(super) fn new(measure: &'static str, rows: &impl Serialize, table: Table) -> Result<Self> {
        Ok(Self {
            measure,
            rows: serde_json::to_value(rows)?,
            notes: Vec::new(),
            holds: Vec::new(),
            missed: Vec::new(),
            not_judged: Vec::new(),
            table,
            panels: Vec::new(),
        })
    }

    /// Adds a note for the reader.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a bar, and whether the results meet it.
    pub(super) fn bar(self, holds: bool, what: impl Into<String>) -> Self {
        self.bar_unless(None, holds, what)
    }

    /// Adds a bar; it counts as not checked if `why_not` gives a reason.
    pub(super) fn bar_unless(mut self, why_not: Option<String>, holds: bool, what: impl Into<String>) -> Self {
        let what = what.into();
        match why_not {
            Some(why_not) => self.not_judged.push(format!("{why_not}: {what}")),
            None if holds => self.holds.push(what),
            None => self.missed.push(what),
        }
        self
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n{}", self.measure, self.table);
        for (how, all) in [
            ("", &self.notes),
            ("holds: ", &self.holds),
            ("not judged, ", &self.not_judged),
            ("MISSED: ", &self.missed),
        ] {
            for what in all {
                text.extend([how, what.as_str(), "\n"]);
            }
        }
        text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_judged_is_neither_held_nor_missed() {
        let section = Section::new("burst", &[0], Table::new(&["phase"], 1)).unwrap();
        let section = section
            .bar(true, "a")
            .bar(false, "b")
            .bar_unless(too_few(9, 10, "objects"), false, "c")
            .bar_unless(too_few(10, 10, "objects"), true, "d");
        let expect = "burst\nphase\nholds: a\nholds: d\nnot judged, of fewer than 10 objects: c\nMISSED: b\n";
        assert_eq!(section.text(), expect);
    }
}
