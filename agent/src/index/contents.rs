//! The contents of a source and its copy: compared once, and held only while a plan may ask for them.

use std::sync::Arc;

use crate::model::{
    object::Object,
    projection::{self, Fingerprint},
};

/// The content of a source or of a copy, as it was last shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    pub fingerprint: Fingerprint,
    /// The object itself, unless it was dropped to save memory.
    pub content: Option<&'a Object>,
}

/// The outcome of comparing a source with its copy. It is valid as long as both have these fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    source: Fingerprint,
    copy: Fingerprint,
    holds: bool,
}

/// A source and its copy, whose contents can be compared.
pub(crate) trait Contents {
    /// The source and its copy, if both are there and a watch or a read has shown them.
    fn source_and_copy(&self) -> Option<(Shown<'_>, Shown<'_>)>;

    /// The last comparison, if one was kept.
    fn compared(&self) -> Option<&Compared>;

    /// Keeps a comparison in place of the last one.
    fn set_compared(&mut self, compared: Compared);

    /// True if the copy is our last write of this very source and still holds its content: no plan needs the contents then.
    fn agrees(&self) -> bool;

    /// True between a write of ours and the event that shows it. Contents are kept until then, to be compared.
    fn is_unseen(&self) -> bool;

    /// Drops the contents of both objects. A plan that needs them reads the objects again.
    fn forget_content(&mut self);

    /// Whether the copy holds the whole content of the source; it may hold more. `None` while the contents differ and were
    /// not compared.
    fn holds(&self) -> Option<bool> {
        let (source, copy) = self.source_and_copy()?;
        let is_valid = |last: &&Compared| (last.source, last.copy) == (source.fingerprint, copy.fingerprint);
        if source.fingerprint == copy.fingerprint {
            Some(true)
        } else {
            self.compared().filter(is_valid).map(|last| last.holds)
        }
    }

    /// Compares the contents, if both are held and were not compared yet.
    fn compare(&mut self) {
        if self.holds().is_some() {
            return;
        }
        let compared = self.source_and_copy().and_then(|(source, copy)| {
            Some(Compared {
                source: source.fingerprint,
                copy: copy.fingerprint,
                holds: projection::holds(copy.content?, source.content?),
            })
        });
        if let Some(compared) = compared {
            self.set_compared(compared);
        }
    }

    /// Called whenever an object was shown: compares the contents, and drops them if the pair agrees, so that a list of
    /// objects in sync leaves no content behind.
    fn settle(&mut self) {
        self.compare();
        if self.agrees() {
            self.forget_content();
        }
    }
}

impl<'a> Shown<'a> {
    pub(crate) fn of(fingerprint: Fingerprint, content: Option<&'a Arc<Object>>) -> Self {
        Self {
            fingerprint,
            content: content.map(|content| &**content),
        }
    }
}
