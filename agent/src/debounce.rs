//! Debounces status writes: after one write, mere progress is not written again for a while.

use std::time::Duration;

use tokio::time::Instant;

/// How often mere progress is looked at and written to a status.
pub const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// When a status was last written.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusDebounce {
    written: Option<Instant>,
}

impl StatusDebounce {
    /// Notes that the status was written now.
    pub fn begin(&mut self) {
        self.written = Some(Instant::now());
    }

    /// How much longer mere progress is not written; `None` if it may be written now.
    pub fn pause(self) -> Option<Duration> {
        let left = PROGRESS_PAUSE.checked_sub(self.written?.elapsed())?;
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn progress_pauses_after_a_write_for_two_seconds() {
        let mut debounce = StatusDebounce::default();
        assert_eq!(debounce.pause(), None, "nothing was written yet");
        debounce.begin();
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(debounce.pause(), Some(Duration::from_millis(1500)));
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(debounce.pause(), None);
    }
}
