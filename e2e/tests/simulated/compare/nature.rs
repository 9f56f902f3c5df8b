//! What differs by nature between two API servers, all in one place. Nothing else may differ.

/// How a field is made comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// A time of day: compared as *a time*, if it is one of these years.
    Time,
    /// A value that an API server chooses, and that means something only by being the same or another one: each gets a
    /// number when it is first seen, and the numbers are compared.
    Identity,
    /// Opaque: only whether it is there is compared.
    Opaque,
}

/// Fields by their names, wherever they are.
pub(crate) const FIELDS: [(&str, Nature); 10] = [
    ("creationTimestamp", Nature::Time),
    ("deletionTimestamp", Nature::Time),
    ("expirationTimestamp", Nature::Time),
    ("lastTransitionTime", Nature::Time),
    // Of an entry of managedFields.
    ("time", Nature::Time),
    ("uid", Nature::Identity),
    // Of an object. That of a list grows with every write to the cluster, also those of other sequences and of controllers: on each
    // side it is compared with those of its items and of lists before it (`run.rs`).
    ("resourceVersion", Nature::Identity),
    ("token", Nature::Identity),
    ("continue", Nature::Opaque),
    // The certificate of the cluster, in ConfigMaps and Secrets.
    ("ca.crt", Nature::Opaque),
];

// Headers: only content-type, location, retry-after and warning are compared (`sides/mod.rs`). date, audit-id, cache-control,
// content-length and those of priority and fairness (x-kubernetes-pf-*) are not.
//
// Beside fields:
// - Suffixes of generated names: a generated name is compared as its prefix and the number of its first appearance.
// - UIDs, tokens and generated names inside messages are replaced as those in fields.
// - What Go's parsers say about JSON, YAML and pages that they cannot read.
// - `too old resource version: 5 (70)`, `Too large resource version: 70, current: 5`: the numbers.
// - Revisions inside messages about preconditions: replaced as those in fields.
// - An empty `metadata`, which is as an absent one.
// - The issuer, which is the URL of the API server.
// - The order of the entries of managedFields, which the API server sorts by seconds.
// - A `deletionGracePeriodSeconds` of 0 of a `Thing`, the kind whose definitions end: whether it is there depends on how often the
//   API server's own finalizer looked at the object.
// - Bookmarks: only the one that ends the initial events is compared, by its kind and its annotations. Others come from time to time,
//   and which of the other fields an empty object has depends on its type in Go.
// - The order of the causes of a refusal, and so the message that joins them.
// - The managers of fields of reviews and token requests, which are not stored.
// - The progress that the namespace controller reports: of a Namespace that ends, only the last event.
// - The order of events of different objects on one watch while controllers have work to do, which write beside the requests.
