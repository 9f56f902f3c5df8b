//! The table of results: SDK by case.

use std::fmt::Write as _;

use crate::case::Case;
use crate::suite::Verdict;

/// Prints a column per SDK and a row per case, and the number of cases that passed.
pub fn print(cases: &[Case], columns: &[(String, Vec<Verdict>)]) -> String {
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or_default();
    let mut text = format!("{:width$}", "case");
    for (name, _) in columns {
        let _ = write!(text, "  {name:>10}");
    }
    text.push('\n');
    for (index, case) in cases.iter().enumerate() {
        let _ = write!(text, "{:width$}", case.name);
        for (_, verdicts) in columns {
            let word = match verdicts.get(index) {
                Some(verdict) if !verdict.faults.is_empty() => "FAILED",
                Some(verdict) if !verdict.disturbed.is_empty() => "ok alone",
                Some(_) => "ok",
                None => "-",
            };
            let _ = write!(text, "  {word:>10}");
        }
        text.push('\n');
    }
    let _ = write!(text, "{:width$}", "passed");
    for (_, verdicts) in columns {
        let passed = verdicts.iter().filter(|verdict| verdict.faults.is_empty()).count();
        let _ = write!(text, "  {:>10}", format!("{passed}/{}", cases.len()));
    }
    text.push('\n');
    text
}

/// What is wrong with each case that failed.
pub fn faults(columns: &[(String, Vec<Verdict>)]) -> String {
    details(columns, |verdict| &verdict.faults)
}

/// What was wrong, beside others, with each case that was judged by a run alone.
pub fn disturbed(columns: &[(String, Vec<Verdict>)]) -> String {
    details(columns, |verdict| &verdict.disturbed)
}

fn details(columns: &[(String, Vec<Verdict>)], faults: impl Fn(&Verdict) -> &[String]) -> String {
    let mut text = String::new();
    for (name, verdicts) in columns {
        for verdict in verdicts.iter().filter(|verdict| !faults(verdict).is_empty()) {
            let _ = writeln!(text, "\n{name}, {}:", verdict.case);
            for fault in faults(verdict) {
                let _ = writeln!(text, "  {fault}");
            }
            for (number, seen) in verdict.seen.iter().take(6).enumerate() {
                let _ = writeln!(text, "  call {number}: {seen}");
            }
        }
    }
    text
}
