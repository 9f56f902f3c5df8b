//! Asks whether the CRD of a resource is being deleted, once for many deletions.

use std::future::Future;

use tokio::{sync::Mutex, time::Instant};

/// Shares one answer among all that asked before the question was sent. A deletion that was seen before then is one of a single object
/// if the CRD is not being deleted: the deletion of a CRD is stamped on it before it is stamped on its objects.
#[derive(Debug, Default)]
pub(super) struct CrdCheck {
    /// When the last question was sent, and whether the CRD was being deleted.
    last: Mutex<Option<(Instant, bool)>>,
}

// === impl CrdCheck ===

impl CrdCheck {
    /// Whether the CRD is being deleted or gone, by an answer to a question that was sent from now on.
    pub(super) async fn is_ending<E>(&self, ask: impl Future<Output = Result<bool, E>>) -> Result<bool, E> {
        let seen = Instant::now();
        // Those that come while a question is under way wait here, and share the next one.
        let mut last = self.last.lock().await;
        if let Some((_, is_ending)) = last.filter(|(sent, _)| *sent > seen) {
            return Ok(is_ending);
        }
        let sent = Instant::now();
        let is_ending = ask.await?;
        *last = Some((sent, is_ending));
        Ok(is_ending)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_share_one_question() {
        let (check, asked) = (Arc::new(CrdCheck::default()), Arc::new(AtomicUsize::new(0)));
        let ask = |after: u64| {
            let (check, asked) = (Arc::clone(&check), Arc::clone(&asked));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                let answer = check.is_ending(async {
                    asked.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Ok::<_, Infallible>(true)
                });
                assert_eq!(answer.await, Ok(true));
            })
        };
        let first: Vec<_> = [0, 10, 20, 30].map(ask).into();
        for one in first {
            one.await.unwrap();
        }
        assert_eq!(
            asked.load(Ordering::Relaxed),
            2,
            "three came while the first was under way"
        );
        ask(1).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 3, "an answer of before says nothing");
    }
}
