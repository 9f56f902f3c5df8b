//! What happened in a world, as text that is the same for the same seed.

use std::{fmt, time::Duration};

/// The lines of a trace, in the order in which things happened.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Vec<String>,
}

impl Trace {
    /// Adds a line with the time since the world began.
    pub(crate) fn line(&mut self, now: Duration, line: &str) {
        self.lines.push(format!("{:>11.6} {line}", now.as_secs_f64()));
    }

    /// All lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
