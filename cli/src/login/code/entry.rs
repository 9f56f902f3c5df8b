//! The address that the browser is opened with. It is one of this machine and leads on to the issuer, once, because other users of
//! the machine can read the arguments of the browser: they must learn neither state nor challenge of the login from them.

use std::{fmt, sync::Arc};

use http::HeaderValue;
use parking_lot::Mutex;

/// The address, if there is one yet. Clones are of the same.
#[derive(Clone, Default)]
pub(super) struct Entry(Arc<Mutex<Option<State>>>);

struct State {
    path: String,
    /// Where the address leads, until somebody has opened it.
    target: Option<HeaderValue>,
}

/// What a request for a path gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The path is not the one of the address.
    Elsewhere,
    /// The browser is sent here.
    To(HeaderValue),
    /// The address was opened before.
    Used,
}

impl Entry {
    /// Makes an address that leads to this URL, and returns its path. None if the URL cannot be sent to a browser.
    pub(super) fn lead_to(&self, url: &str) -> Option<String> {
        let target = HeaderValue::from_str(url).ok()?;
        let path = format!("/open/{:032x}", rand::random::<u128>());
        *self.0.lock() = Some(State {
            path: path.clone(),
            target: Some(target),
        });
        Some(path)
    }

    /// Answers a request for a path.
    pub(super) fn open(&self, path: &str) -> Step {
        match &mut *self.0.lock() {
            Some(state) if state.path == path => state.target.take().map_or(Step::Used, Step::To),
            _ => Step::Elsewhere,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_leads_to_the_issuer_once() {
        let entry = Entry::default();
        assert_eq!(entry.open("/open/"), Step::Elsewhere);
        let url = "https://login.example.com/authorize?state=s-1";
        let path = entry.lead_to(url).unwrap();
        assert!(!path.contains("s-1"), "{path}");
        assert_eq!(entry.open("/open/0"), Step::Elsewhere);
        let clone = entry.clone();
        assert_eq!(
            clone.open(&path),
            Step::To(HeaderValue::from_static(
                "https://login.example.com/authorize?state=s-1"
            ))
        );
        assert_eq!(entry.open(&path), Step::Used);
        assert_ne!(entry.lead_to(url).unwrap(), path);
        assert_eq!(entry.open(&path), Step::Elsewhere);
        assert_eq!(entry.lead_to("https://a/\n"), None);
    }
}
