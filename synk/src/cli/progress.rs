//! Shows progress on standard error: a bar on a terminal, else one line per object.

mod lines;

use std::io::{self, IsTerminal as _, Write as _};

use bindery_synk::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use self::lines::{Line, Lines};

/// Shows the progress of an operation.
pub(super) struct Progress {
    lines: Mutex<Lines>,
    show: Show,
}

enum Show {
    Nothing,
    Lines,
    Bar(ProgressBar),
}

impl Progress {
    /// Chooses the form of progress.
    pub(super) fn new(quiet: bool, verbose: bool, server: &str) -> Self {
        let show = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Show::Nothing,
            (false, false) => Show::Lines,
            (false, true) => Show::Bar(bar()),
        };
        Self {
            lines: Mutex::new(Lines::new(verbose, server)),
            show,
        }
    }

    /// Shows an event.
    pub(super) fn tell(&self, event: Event<'_>) {
        let mut lines = self.lines.lock();
        let line = lines.tell(event);
        match (&self.show, line) {
            (Show::Nothing, _) | (Show::Lines, None) => {}
            (Show::Lines, Some(Line::Object(text) | Line::News(text))) => write(&text),
            // A bar without objects would show nothing.
            (Show::Bar(_), line) if lines.total() == 0 => {
                if let Some(Line::Object(text) | Line::News(text)) = line {
                    write(&text);
                }
            }
            (Show::Bar(bar), line) => {
                bar.set_length(lines.total());
                bar.set_position(lines.done());
                match line {
                    Some(Line::Object(text)) => bar.set_message(text),
                    Some(Line::News(text)) => bar.suspend(|| write(&text)),
                    None => {}
                }
            }
        }
    }

    /// Whether more than one attempt was made.
    pub(super) fn began_again(&self) -> bool {
        self.lines.lock().began_again()
    }

    /// Shows a hint on a terminal.
    pub(super) fn hint(&self, text: &str) {
        if matches!(self.show, Show::Bar(_)) {
            write(text);
        }
    }

    /// Removes the bar before the result is printed.
    pub(super) fn end(&self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }
}

/// Writes to standard error. A closed standard error is no failure.
fn write(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {wide_msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
