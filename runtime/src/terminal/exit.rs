//! How a command for people ends: its exit code, and the error that it prints.

use std::{io, process::ExitCode};

use super::printable_lines;

/// How a command ends. Scripts read the number; `--help` of each command lists those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did what it was asked for: 0.
    Done,
    /// The command failed for a reason that has no number of its own: 1.
    Failed,
    /// The command line is wrong, or lacks something: 2.
    Usage,
    /// The user is not logged in, or lacks a right: 3.
    Denied,
    /// There are changes to apply, as `synk plan` reports them: 3.
    Pending,
    /// The object that was named does not exist: 4.
    NotFound,
    /// The wait ended before the work did: 5.
    TimedOut,
    /// Ctrl-C ended the command: 130, as shells report it.
    Interrupted,
}

impl Exit {
    /// The number that the process exits with.
    pub const fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Denied | Self::Pending => 3,
            Self::NotFound => 4,
            Self::TimedOut => 5,
            Self::Interrupted => 130,
        }
    }

    /// How a command ends whose result cannot be written. A reader that closed the pipe has read enough.
    pub fn of_output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Done,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.number().into()
    }
}

/// An error as it is printed on standard error: what is wrong, then what to do about it, if that is known. The message may
/// hold text of others, so control characters are replaced.
pub fn error_text(message: &str, mend: Option<&str>) -> String {
    let message = printable_lines(message);
    let mend = mend.map_or_else(String::new, |mend| format!("\n{}\n", printable_lines(mend)));
    format!("error: {message}\n{mend}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_failure() {
        assert_eq!(Exit::of_output(&io::ErrorKind::BrokenPipe.into()), Exit::Done);
        assert_eq!(Exit::of_output(&io::ErrorKind::StorageFull.into()), Exit::Failed);
    }

    #[test]
    fn an_error_is_followed_by_what_to_do_and_cannot_rewrite_the_terminal() {
        assert_eq!(error_text("a\u{1b}[2J\nb", None), "error: a [2J\nb\n");
        assert_eq!(error_text("a", Some("Do b.")), "error: a\n\nDo b.\n");
    }
}
