//! Measures how long a watch takes to show a write.
//!
//! The time runs, by the clock of this machine, from the answer to a write until a watch of the same cluster shows that
//! version or a later one; it may watch any namespace. One write at a time is measured, so that measuring costs next
//! to nothing.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::object::Version;

/// A write that no watch has shown for this long is given up, since its watch may have ended.
const PATIENCE: Duration = Duration::from_mins(1);

/// The write to one cluster that is being measured, if any.
#[derive(Debug, Default)]
pub(super) struct Lag {
    awaited: Option<(Version, Instant)>,
}

impl Lag {
    /// Whether no write is being measured, so that the next one can be.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.awaited.is_none_or(|(_, since)| now - since >= PATIENCE)
    }

    /// Starts to measure a write that was answered now, unless another one is being measured.
    pub(super) fn wrote(&mut self, version: Version, now: Instant) {
        if self.is_free(now) {
            self.awaited = Some((version, now));
        }
    }

    /// Notes that a watch shows a version. If that shows the measured write, returns when the write was answered.
    pub(super) fn shown(&mut self, version: Version) -> Option<Instant> {
        let (_, since) = self.awaited.take_if(|(awaited, _)| *awaited <= version)?;
        Some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_at_a_time_is_waited_for() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut lag = Lag::default();
        assert_eq!(lag.shown(Version(9)), None, "nothing was written");
        lag.wrote(Version(5), start);
        lag.wrote(Version(7), after(1));
        assert_eq!(lag.shown(Version(4)), None);
        assert_eq!(lag.shown(Version(5)), Some(start));
        assert_eq!(lag.shown(Version(7)), None, "that one was not waited for");
        lag.wrote(Version(8), after(2));
        assert_eq!(
            lag.shown(Version(20)),
            Some(after(2)),
            "a list shows what is later alone"
        );
    }

    #[test]
    fn what_is_never_shown_is_given_up() {
        let start = Instant::now();
        let mut lag = Lag::default();
        lag.wrote(Version(5), start);
        assert!(!lag.is_free(start + PATIENCE / 2));
        lag.wrote(Version(6), start + PATIENCE);
        assert_eq!(lag.shown(Version(6)), Some(start + PATIENCE));
    }
}
