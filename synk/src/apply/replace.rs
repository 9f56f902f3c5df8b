//! Replaces an object that cannot be changed: deletes it and creates it again.

use std::time::Duration;

use bindery_runtime::{backoff::Backoff, errors};
use tokio::time::{Instant, sleep};

use super::write::{Refused, Subject, Writer};
use crate::{
    report::Problem,
    rest::{Propagation, Written},
};

/// Greatest time that a deleted object may take to disappear.
const PATIENCE: Duration = Duration::from_mins(2);
/// Delays between the reads that check whether a deleted object still exists.
const PAUSE: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

impl Writer<'_> {
    /// Deletes the object and its dependents first, so that no dependent is taken for one of the new object, then
    /// creates it.
    pub(super) async fn replace(&self, subject: Subject<'_>) -> Result<Written, Refused> {
        let refused = |error| Refused::by(&subject.manifest.object, &error);
        if let Some(seen) = subject.seen() {
            let deleted = self.rest.delete(subject.place(), seen, Propagation::Foreground).await;
            match deleted {
                Err(error) if !errors::is_not_found(&error) => return Err(refused(error)),
                _ => self.wait_until_deleted(subject, seen.uid).await?,
            }
        }
        // The Lease may have been lost during the wait.
        self.may_write()?;
        let anew = Subject { live: None, ..subject };
        self.put(anew).await.map_err(refused)
    }

    /// Waits until the object with this UID no longer exists. After [`PATIENCE`] it fails with a problem that a retry may
    /// solve.
    async fn wait_until_deleted(&self, subject: Subject<'_>, uid: &str) -> Result<(), Problem> {
        let object = &subject.manifest.object;
        let deadline = Instant::now() + PATIENCE;
        let mut attempt = 0;
        loop {
            let read = self.rest.get(subject.place()).await;
            let live = read.map_err(|error| Problem::of(object, &error))?;
            let Some(live) = live.filter(|live| live["metadata"]["uid"] == uid) else {
                return Ok(());
            };
            if Instant::now() > deadline {
                let finalizers = &live["metadata"]["finalizers"];
                return Err(Problem::passing(format!(
                    "deleted to be made anew, and not gone yet: finalizers {finalizers} hold it"
                )));
            }
            sleep(PAUSE.delay(attempt)).await;
            attempt += 1;
        }
    }
}
