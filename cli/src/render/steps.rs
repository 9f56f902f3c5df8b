//! Prints progress on standard error: a line for each step, with the time that it took.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

/// Prints steps, unless the command is quiet.
#[derive(Debug)]
pub(crate) struct Steps {
    quiet: bool,
    last: Instant,
}

impl Steps {
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            quiet,
            last: Instant::now(),
        }
    }

    /// Prints that a step is done, with the time since the previous step was done.
    pub(crate) fn done(&mut self, what: &str) {
        let took = std::mem::replace(&mut self.last, Instant::now()).elapsed();
        self.line(&finished(what, took));
    }

    /// Prints a note while a step goes on.
    pub(crate) fn note(&self, what: &str) {
        self.line(&format!("{:>9}  {}", "…", one_line(what)));
    }

    fn line(&self, line: &str) {
        if !self.quiet {
            print(line);
        }
    }
}

/// Prints what the user has to know or do now, also if the command is quiet.
pub(crate) fn tell(what: &str) {
    print(&one_line(what));
}

fn print(line: &str) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn finished(what: &str, took: Duration) -> String {
    let took = match took.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", took.as_secs_f64()),
    };
    format!("{took:>9}  {}", one_line(what))
}

/// Replaces control characters, also ends of lines, by spaces: a provider's text must not rewrite the terminal.
fn one_line(text: &str) -> String {
    crate::render::output::printable(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_line_up() {
        assert_eq!(finished("read", Duration::from_micros(12_345)), "    12 ms  read");
        assert_eq!(finished("bound", Duration::from_millis(1_249)), "    1.2 s  bound");
    }

    #[test]
    fn a_step_is_one_line_whatever_a_provider_says() {
        assert_eq!(finished("a\nb\r\u{1b}[A", Duration::ZERO), "     0 ms  a b  [A");
    }
}
