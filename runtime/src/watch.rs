//! Lists a resource, then follows its changes until it is dropped.
//!
//! The watcher is a state machine (`watcher`): it lists, watches from the version of the list, resumes where it was after a
//! broken connection, and lists again when the API server has forgotten that version (410), does not know it yet (as after a
//! restore from a backup), or ended a watch before its time. Everything that was not listed between [`Event::Reset`] and
//! [`Event::Complete`] is gone.
//!
//! Objects are handed to the event handler one by one as they arrive, decoded by the caller's own [`Decode`], so that a reader
//! who needs three fields never builds the rest.

mod items;
mod read;
mod source;
mod watcher;

use std::sync::Arc;

use kube::Client;
use serde::Deserialize;

use self::watcher::{State, Watcher};
use crate::guard::Held;

pub use self::source::Source;

/// Makes an object of its JSON text.
pub trait Decode: Send {
    /// The decoded object.
    type Object: Send;
    /// Decodes one object. On failure only this object is skipped.
    fn decode(&self, json: &str) -> serde_json::Result<Self::Object>;
    /// Returns the resource version of an object if decoding kept it; otherwise the watcher parses the text once more for it.
    fn version(_: &Self::Object) -> Option<u64> {
        None
    }
    /// Returns the namespace of an object, empty for a cluster-scoped one, and its name. Of an API server that is not trusted, objects
    /// without a name are skipped.
    fn name(_: &Self::Object) -> (&str, &str) {
        ("", "")
    }
    /// Takes the count of an object's text, where the API server is not trusted. It counts until it is dropped.
    fn hold(_object: &mut Self::Object, _held: Held) {}
    /// Whether each object that is held counts by its own [`Decode::hold`]. Otherwise the event handler counts objects.
    const COUNTS_OBJECTS: bool = false;
}

/// What a watch reports to its event handler.
#[derive(Debug)]
pub enum Event<T> {
    /// The API server has gone back in time: what it shows from now on is the truth, however old its versions are. A list
    /// follows.
    Rewound,
    /// A list begins.
    Reset,
    /// An object of the list.
    Listed(T),
    /// An object of the list that cannot be decoded, but exists.
    Unreadable(ObjectName),
    /// The list is complete at this resource version: what was not listed since [`Event::Reset`] did not exist then.
    Complete(String),
    /// A watch request was accepted: changes follow.
    Following,
    /// A watch request ended. Nothing is shown until the next one is accepted ([`Event::Following`]), not even that the cluster was
    /// restored from a backup.
    Ended,
    /// An object was created or changed.
    Applied(T),
    /// An object was deleted; this is its last state.
    Deleted(T),
    /// The API server could not be reached, or refused a request. The watcher retries by itself.
    Failed(kube::Error),
}

/// Namespace and name of an object in a list.
#[derive(Debug, Deserialize)]
pub struct ObjectName {
    /// The namespace; empty for a cluster-scoped object.
    #[serde(default)]
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// Watches a collection until the future is dropped. The handler is called in order, and must not block.
pub async fn run<D, H>(client: Client, source: Source, decode: D, handler: H)
where
    D: Decode,
    H: FnMut(Event<D::Object>) + Send,
{
    let mut watcher = Watcher::new(client, source, decode, handler);
    let mut state = State::Listing;
    loop {
        state = watcher.step(state).await;
    }
}

/// Lists a collection once, retrying until one list is complete.
pub async fn list<D, H>(client: Client, source: Source, decode: D, handler: H)
where
    D: Decode,
    H: FnMut(Event<D::Object>) + Send,
{
    let mut watcher = Watcher::new(client, source, decode, handler);
    let mut state = State::Listing;
    while matches!(state, State::Listing) {
        state = watcher.step(state).await;
    }
}

#[cfg(test)]
mod tests;
