//! The contents of a source and its copy: compared once, and held only while a plan may ask for them.

use std::sync::Arc;

use crate::model::{
    object::Object,
    projection::{self, Fingerprint},
};

/// What one of two objects was last shown to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    pub fingerprint: Fingerprint,
    /// The object itself, unless it was let go.
    pub content: Option<&'a Object>,
}

/// The outcome of comparing a source with its copy. It is valid as long as both have these fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    source: Fingerprint,
    copy: Fingerprint,
    holds: bool,
}

/// A pair of objects of which one is made of the other.
pub(crate) trait Contents {
    /// The source and its copy, if both are there and a watch or a read has shown them.
    fn source_and_copy(&self) -> Option<(Shown<'_>, Shown<'_>)>;

    /// Where the last comparison is kept.
    fn compared(&self) -> Option<&Compared>;

    /// Keeps a comparison in place of the last one.
    fn set_compared(&mut self, compared: Compared);

    /// True if the copy is our last write of this very source and still says so: no plan asks for such contents.
    fn agrees(&self) -> bool;

    /// True between a write of ours and the event that shows it; then contents are compared.
    fn is_unseen(&self) -> bool;

    /// Lets go of the contents of both objects. A plan that needs them reads them again.
    fn forget_content(&mut self);

    /// Whether the copy holds all that the source says; it may hold more. `None` while their contents differ and were not
    /// compared.
    fn holds(&self) -> Option<bool> {
        let (source, copy) = self.source_and_copy()?;
        let is_valid = |last: &&Compared| (last.source, last.copy) == (source.fingerprint, copy.fingerprint);
        if source.fingerprint == copy.fingerprint {
            Some(true)
        } else {
            self.compared().filter(is_valid).map(|last| last.holds)
        }
    }

    /// Compares the contents, if both are at hand and that was not done yet.
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

    /// Called whenever an object was shown: compares the contents, and lets them go if the pair agrees, so that a list of
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
