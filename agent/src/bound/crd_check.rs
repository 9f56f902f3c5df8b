//! Asks whether the CRD of a resource is being deleted, once for many deletions.

use std::{collections::HashMap, future::Future};

use bindery_runtime::{cache::ObjectKey, watch::Event};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::object::Object;

/// Shares one answer among all deletions that were seen before the question was sent. Such a deletion is one of a single object if the CRD is
/// not being deleted: the deletion of a CRD is stamped on it before it is stamped on its objects.
#[derive(Debug, Default)]
pub(super) struct CrdCheck {
    /// When the watch showed that an object is being deleted, for those that it shows so now.
    seen: Mutex<HashMap<ObjectKey, Instant>>,
    /// When the last question was sent, and whether the CRD was being deleted.
    last: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

// === impl CrdCheck ===

impl CrdCheck {
    /// Notes what the watch of the consumer's objects shows.
    pub(super) fn note(&self, event: &Event<Object>) {
        match event {
            Event::Listed(object) | Event::Applied(object) if object.meta.deletion_timestamp => {
                self.seen.lock().entry(object.key()).or_insert_with(Instant::now);
            }
            Event::Listed(object) | Event::Applied(object) | Event::Deleted(object) => {
                let mut seen = self.seen.lock();
                if !seen.is_empty() {
                    seen.remove(&object.key());
                }
            }
            Event::Reset | Event::Rewound => self.seen.lock().clear(),
            Event::Unreadable(_) | Event::Complete(_) | Event::Following | Event::Ended | Event::Failed(_) => {}
        }
    }

    /// Whether the CRD is being deleted or gone, by an answer to a question that was sent after the deletion of this object was seen.
    pub(super) async fn is_ending<E>(
        &self,
        key: &ObjectKey,
        ask: impl Future<Output = Result<bool, E>>,
    ) -> Result<bool, E> {
        let seen = self.seen.lock().get(key).copied();
        let seen = seen.unwrap_or_else(Instant::now);
        // Callers that arrive while a question is under way wait here, and share its answer or the next one's.
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

    use bindery_runtime::watch::Decode as _;

    use super::*;
    use crate::model::object::Lean;

    fn object(name: &str, is_deleted: bool) -> Object {
        let mut meta = serde_json::json!({"name": name, "namespace": "wild-west", "uid": name, "resourceVersion": "1"});
        if is_deleted {
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        Lean.decode(&serde_json::json!({"metadata": meta}).to_string()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_were_seen_before_a_question_share_its_answer() {
        let (check, asked) = (CrdCheck::default(), AtomicUsize::new(0));
        let ask = async |name: &str| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let question = async {
                asked.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(false)
            };
            assert_eq!(check.is_ending(&object(name, true).key(), question).await, Ok(false));
            asked.load(Ordering::Relaxed)
        };
        check.note(&Event::Listed(object("one", true)));
        check.note(&Event::Applied(object("two", true)));
        check.note(&Event::Applied(object("lives", false)));
        assert_eq!((ask("one").await, ask("two").await), (1, 1));
        check.note(&Event::Applied(object("two", true)));
        assert_eq!(ask("two").await, 1, "it was seen before, too");
        assert_eq!(ask("lives").await, 2, "nothing was seen of its deletion");
        check.note(&Event::Applied(object("later", true)));
        assert_eq!(ask("later").await, 3);
        check.note(&Event::Deleted(object("later", true)));
        check.note(&Event::Applied(object("later", true)));
        assert_eq!(ask("later").await, 4, "it is another object of that name");
        check.note(&Event::Reset);
        assert_eq!(ask("one").await, 5, "the list shows everything anew");
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_share_one_question() {
        let (check, asked) = (Arc::new(CrdCheck::default()), Arc::new(AtomicUsize::new(0)));
        let ask = |after: u64| {
            let (check, asked) = (Arc::clone(&check), Arc::clone(&asked));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                let key = object("billy", true).key();
                let answer = check.is_ending(&key, async {
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
