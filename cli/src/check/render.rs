//! Shows findings as text: a line for each, and below a failure its mend and where it is explained.

use std::fmt::Write as _;

use bindery_runtime::terminal::{printable, printable_lines};

use super::{Finding, Outcome, finding::Summary, summary};

/// The marks before each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    /// `✓`, `!`, `✗` and `-`, for terminals.
    Signs,
    /// ASCII, for files and pipes.
    Words,
}

impl Marks {
    const fn of(self, outcome: Outcome) -> &'static str {
        match (self, outcome) {
            (Self::Signs, Outcome::Passed) => "✓",
            (Self::Signs, Outcome::Skipped) => "-",
            (Self::Signs, Outcome::Warning) => "!",
            (Self::Signs, Outcome::Failed) => "✗",
            (Self::Words, Outcome::Passed) => "ok  ",
            (Self::Words, Outcome::Skipped) => "skip",
            (Self::Words, Outcome::Warning) => "WARN",
            (Self::Words, Outcome::Failed) => "FAIL",
        }
    }
}

/// Shows all findings, a section for each group, and their counts.
pub(crate) fn render(findings: &[Finding], marks: Marks) -> String {
    let mut text = String::new();
    let mut group = None;
    for finding in findings {
        if group.replace(finding.check.group()) != Some(finding.check.group()) {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{}", finding.check.group().title());
        }
        let _ = writeln!(text, "{} {}", marks.of(finding.outcome), printable(&finding.message));
        if let Some(mend) = &finding.mend {
            let mend = printable_lines(mend).replace('\n', "\n          ");
            let _ = writeln!(text, "    mend: {mend}\n    see:  {}", finding.check.link());
        }
    }
    let counts = summary(findings);
    let _ = writeln!(
        text,
        "\n{} ({} passed, {} skipped)",
        outcome(&counts),
        counts.passed,
        counts.skipped
    );
    text
}

/// What the counts mean, in words.
fn outcome(counts: &Summary) -> String {
    let warnings = counts.warnings - counts.unchecked;
    let mut parts = Vec::new();
    match (counts.failed, counts.unchecked, warnings) {
        (0, 0, 0) => parts.push("All is well".to_owned()),
        (0, 0, _) => parts.push("It works".to_owned()),
        (0, _, _) => parts.push("Nothing failed, but not all could be checked".to_owned()),
        (failed, _, _) => parts.push(format!("Failed: {failed}")),
    }
    if counts.unchecked > 0 {
        parts.push(format!("not checked: {}", counts.unchecked));
    }
    if warnings > 0 {
        parts.push(format!("warnings: {warnings}"));
    }
    parts.join(", ")
}
