//! The time after a status was written, in which mere progress is not written again.

use std::time::Duration;

use tokio::time::Instant;

/// How often mere progress is looked at, and told in a status.
pub const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// When a status was last written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lull {
    since: Option<Instant>,
}

impl Lull {
    /// The status was written.
    pub fn begin(&mut self) {
        self.since = Some(Instant::now());
    }

    /// For how long mere progress is not to be told yet.
    pub fn left(self) -> Option<Duration> {
        let left = PROGRESS_PAUSE.checked_sub(self.since?.elapsed())?;
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lull_begins_with_a_status_and_ends() {
        let mut lull = Lull::default();
        assert_eq!(lull.left(), None, "nothing was told yet");
        lull.begin();
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(lull.left(), Some(Duration::from_millis(1500)));
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(lull.left(), None);
    }
}
