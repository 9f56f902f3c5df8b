//! Tells whether the copies of a binding on the provider are those that were made before.

use super::observed::ObservedBinding;
use crate::controller::crd_objects::was_never_served;

/// Whether the provider shows the export, and for each resource of the binding a copy that an object notes, or no object notes any.
/// Until all is listed, the answer is no.
pub(super) fn continues(seen: &ObservedBinding) -> bool {
    let Some(session) = seen.session.as_ref().filter(|_| seen.export().is_some()) else {
        return false;
    };
    seen.owned().all(|(name, crd)| {
        let engine = seen.engines.get(name);
        was_never_served(crd)
            || engine.is_some_and(|engine| engine.spec.session == session.id && engine.progress.continues)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        binding::fixtures::{CRD, installed, pinned, served, session},
        session::exports::ExportLookup,
    };

    fn with(mut seen: ObservedBinding, change: impl FnOnce(&mut ObservedBinding)) -> ObservedBinding {
        change(&mut seen);
        seen
    }

    #[test]
    fn only_what_the_session_has_seen_counts() {
        let shown = with(served(), |seen| {
            seen.engines.get_mut(CRD).unwrap().progress.continues = true;
        });
        assert!(continues(&shown));
        assert!(continues(&pinned()), "it has no object");
        assert!(!continues(&served()), "no copy was found");
        assert!(!continues(&installed()), "its objects are not known");
        let elsewhere = with(shown.clone(), |seen| session(seen).id += 1);
        assert!(!continues(&elsewhere), "an earlier session saw the copy");
        let removed = with(shown.clone(), |seen| session(seen).export = ExportLookup::Absent);
        assert!(!continues(&removed), "the export is gone");
        let closed = with(shown, |seen| seen.session = None);
        assert!(!continues(&closed));
    }
}
