//! Tracks one watch across its streams: the resume token, and whether a snapshot is complete.

use super::WatchEvent;
use super::message::{Incoming, Raw};
use crate::error::printable;

/// The resume token and the stage of a watch.
#[derive(Debug)]
pub(super) struct Tracker {
    /// Resume token; empty if a snapshot is needed.
    token: String,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The stream has to begin with a snapshot.
    Expecting,
    /// A snapshot has begun and contained this many objects so far.
    Snapshot { objects: i32 },
    /// Changes follow.
    Changes,
}

impl Tracker {
    pub(super) fn new(token: String) -> Self {
        Self {
            token,
            stage: Stage::Expecting,
        }
    }

    /// Resume token; empty if a snapshot is needed.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Prepares for a new stream, and discards an unfinished snapshot. Returns whether the stream resumes.
    pub(super) fn connect(&mut self) -> bool {
        let resumes = !self.token.is_empty();
        self.stage = if resumes { Stage::Changes } else { Stage::Expecting };
        resumes
    }

    /// Drops the token that the server refused.
    pub(super) fn forget(&mut self) {
        self.token.clear();
    }

    /// Takes the next response. An error says how the server broke the protocol; the stream must then be closed.
    pub(super) fn step<T>(&mut self, event: Incoming<T>, token: String) -> Result<Option<WatchEvent<T>>, String> {
        let event = match event {
            Some(raw) => Some(self.take(raw).inspect_err(|_| self.reset())?),
            None => None,
        };
        if self.stage == Stage::Changes && !token.is_empty() {
            self.token = token;
        }
        Ok(event)
    }

    fn take<T>(&mut self, raw: Raw<T>) -> Result<WatchEvent<T>, String> {
        match (raw, self.stage) {
            (Raw::SnapshotBegin(begin), _) => {
                self.token.clear();
                self.stage = Stage::Snapshot { objects: 0 };
                let refused = begin.resume_refused.then(|| printable(&begin.reason));
                Ok(WatchEvent::SnapshotBegin { refused })
            }
            (Raw::Applied(object), Stage::Snapshot { objects }) => {
                self.stage = Stage::Snapshot {
                    objects: objects.saturating_add(1),
                };
                Ok(WatchEvent::Applied(object))
            }
            (Raw::Applied(object), Stage::Changes) => Ok(WatchEvent::Applied(object)),
            (Raw::Removed(removed), Stage::Changes) => Ok(WatchEvent::Removed(removed)),
            (Raw::SnapshotComplete(complete), Stage::Snapshot { objects }) if complete.object_count == objects => {
                self.stage = Stage::Changes;
                Ok(WatchEvent::SnapshotComplete)
            }
            (Raw::SnapshotComplete(complete), Stage::Snapshot { objects }) => Err(format!(
                "a snapshot counts {} objects and brought {objects}",
                complete.object_count
            )),
            (Raw::Removed(_), Stage::Snapshot { .. }) => Err("a snapshot holds a removal".to_owned()),
            (Raw::Applied(_) | Raw::Removed(_), Stage::Expecting) => Err("changes came before a snapshot".to_owned()),
            (Raw::SnapshotComplete(_), Stage::Expecting | Stage::Changes) => {
                Err("a snapshot ended that had not begun".to_owned())
            }
        }
    }

    /// Resets the tracker after a breach of the protocol.
    fn reset(&mut self) {
        self.token.clear();
        self.stage = Stage::Expecting;
    }
}

#[cfg(test)]
#[allow(clippy::unnecessary_wraps, reason = "the events of a script are all alike")]
mod tests {
    use bindery_proto::v1alpha2::{Removed, SnapshotBegin, SnapshotComplete};

    use super::*;

    fn begin() -> Incoming<u8> {
        Some(Raw::SnapshotBegin(SnapshotBegin::default()))
    }

    fn applied() -> Incoming<u8> {
        Some(Raw::Applied(7))
    }

    fn removed() -> Incoming<u8> {
        Some(Raw::Removed(Removed::default()))
    }

    fn complete(object_count: i32) -> Incoming<u8> {
        Some(Raw::SnapshotComplete(SnapshotComplete { object_count }))
    }

    /// Runs messages through a stream opened with a token; gives the token at its end, or the fault.
    #[track_caller]
    fn check(token: &str, messages: Vec<(Incoming<u8>, &str)>, expect: Result<&str, &str>) {
        let mut tracker = Tracker::new(token.to_owned());
        assert_eq!(tracker.connect(), !token.is_empty());
        let run = || {
            for (event, token) in messages {
                tracker.step(event, token.to_owned())?;
            }
            Ok(())
        };
        let result: Result<(), String> = run();
        match expect {
            Ok(end) => {
                assert_eq!(result, Ok(()));
                assert_eq!(tracker.token(), end);
            }
            Err(fault) => {
                assert!(result.unwrap_err().contains(fault));
                assert_eq!(tracker.token(), "", "nothing is built on a broken stream");
            }
        }
    }

    #[test]
    fn a_token_is_good_once_the_snapshot_is_complete() {
        check("", vec![(begin(), ""), (applied(), ""), (complete(1), "a")], Ok("a"));
        check(
            "",
            vec![(begin(), ""), (complete(0), "a"), (removed(), "b"), (None, "c")],
            Ok("c"),
        );
        check("", vec![(begin(), "early"), (applied(), "early")], Ok(""));
        check("a", vec![(applied(), "b"), (removed(), "")], Ok("b"));
        check("a", vec![(begin(), ""), (applied(), "")], Ok(""));
    }

    #[test]
    fn breaches_of_the_rules_are_found() {
        check("", vec![(applied(), "")], Err("before a snapshot"));
        check("", vec![(removed(), "")], Err("before a snapshot"));
        check("", vec![(complete(0), "a")], Err("had not begun"));
        check("a", vec![(complete(0), "b")], Err("had not begun"));
        check(
            "",
            vec![(begin(), ""), (applied(), ""), (complete(2), "a")],
            Err("counts 2 objects and brought 1"),
        );
        check("", vec![(begin(), ""), (removed(), "")], Err("holds a removal"));
    }

    #[test]
    fn a_snapshot_that_breaks_is_void() {
        let mut tracker = Tracker::new(String::new());
        tracker.connect();
        tracker.step(begin(), String::new()).unwrap();
        tracker.step(applied(), "early".to_owned()).unwrap();
        assert!(!tracker.connect(), "there is nothing to resume");
        tracker.step(begin(), String::new()).unwrap();
        tracker.step(applied(), String::new()).unwrap();
        let end = tracker.step(complete(1), "a".to_owned());
        assert!(
            matches!(end, Ok(Some(WatchEvent::SnapshotComplete))),
            "the broken one counted"
        );
    }
}
