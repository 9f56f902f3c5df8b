//! What a check found.

use serde::Serialize;

use super::{Check, facts::Unread};

/// The outcome of one check on one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) check: Check,
    pub(crate) outcome: Outcome,
    /// What was seen.
    pub(crate) message: String,
    /// What to do about it: a sentence, a command or a manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<String>,
    /// The check could not be made, because the user lacks a right or the answer was an error. It is a warning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unchecked: bool,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Outcome {
    /// All is well.
    Passed,
    /// The check could not be made, because of another finding or of a missing right.
    Skipped,
    /// It works, but not as it should.
    Warning,
    /// Something does not work.
    Failed,
}

/// How many findings have each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    pub(crate) warnings: usize,
    /// How many of the warnings say that a check could not be made.
    pub(crate) unchecked: usize,
    pub(crate) failed: usize,
}

/// Counts the findings by outcome.
pub(crate) fn summary(findings: &[Finding]) -> Summary {
    let mut summary = Summary::default();
    for finding in findings {
        summary.unchecked += usize::from(finding.unchecked);
        *match finding.outcome {
            Outcome::Passed => &mut summary.passed,
            Outcome::Skipped => &mut summary.skipped,
            Outcome::Warning => &mut summary.warnings,
            Outcome::Failed => &mut summary.failed,
        } += 1;
    }
    summary
}

/// The findings so far, in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn passed(&mut self, check: Check, message: impl Into<String>) {
        self.push(check, Outcome::Passed, message, None);
    }

    pub(super) fn warn(&mut self, check: Check, message: impl Into<String>, mend: impl Into<String>) {
        self.push(check, Outcome::Warning, message, Some(mend.into()));
    }

    pub(super) fn fail(&mut self, check: Check, message: impl Into<String>, mend: impl Into<String>) {
        self.push(check, Outcome::Failed, message, Some(mend.into()));
    }

    /// Reports that something is not as this release ships it: a failure, or a warning where a program is of another release, which
    /// `other_release` says.
    pub(super) fn differs(
        &mut self,
        check: Check,
        message: impl Into<String>,
        mend: impl Into<String>,
        other_release: Option<&str>,
    ) {
        match other_release {
            None => self.fail(check, message, mend),
            Some(other) => self.warn(
                check,
                message,
                format!("{other}; or install this release: {}", mend.into()),
            ),
        }
    }

    pub(super) fn skip(&mut self, check: Check, message: impl Into<String>) {
        self.push(check, Outcome::Skipped, message, None);
    }

    /// Reports that something could not be read. `what` was to be read, and `right` is what its reader needs.
    pub(super) fn unread(&mut self, check: Check, what: &str, unread: &Unread, right: &str) {
        match unread {
            Unread::Denied(why) => self.unchecked(
                check,
                format!("not checked, because you may not {what}: {why}"),
                format!("run this command as a user who has the right to {right}"),
            ),
            // Another check reports that nobody answers.
            Unread::Silent(why) => self.skip(check, format!("not checked: cannot {what}: {why}")),
            Unread::Failed(why) => self.unchecked(
                check,
                format!("not checked: cannot {what}: {why}"),
                "run this command again; if the message stays, see the log of the API server",
            ),
        }
    }

    /// Reports a check that could not be made.
    pub(super) fn unchecked(&mut self, check: Check, message: impl Into<String>, mend: impl Into<String>) {
        self.warn(check, message, mend);
        if let Some(last) = self.0.last_mut() {
            last.unchecked = true;
        }
    }

    /// Whether a check has failed that looks at one object only. What judges one object of several decides by its own facts.
    pub(super) fn has_failed(&self, check: Check) -> bool {
        self.0
            .iter()
            .any(|finding| finding.check == check && finding.outcome == Outcome::Failed)
    }

    pub(super) fn into_list(self) -> Vec<Finding> {
        self.0
    }

    fn push(&mut self, check: Check, outcome: Outcome, message: impl Into<String>, mend: Option<String>) {
        self.0.push(Finding {
            check,
            outcome,
            message: message.into(),
            mend,
            unchecked: false,
        });
    }
}
