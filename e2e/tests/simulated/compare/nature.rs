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
pub(crate) const FIELDS: [(&str, Nature); 13] = [
    ("creationTimestamp", Nature::Time),
    ("deletionTimestamp", Nature::Time),
    ("expirationTimestamp", Nature::Time),
    ("lastTransitionTime", Nature::Time),
    // Of an entry of managedFields.
    ("time", Nature::Time),
    ("uid", Nature::Identity),
    // Of an object. That of a list grows with every write to the cluster, also those of other sequences and of controllers.
    ("resourceVersion", Nature::Identity),
    ("token", Nature::Identity),
    ("continue", Nature::Opaque),
    // The certificate of the cluster, in ConfigMaps and Secrets.
    ("ca.crt", Nature::Opaque),
    // Made by `kubectl` from the server's address.
    ("selfLink", Nature::Opaque),
    // The kubelet's and the API server's own clocks.
    ("renewTime", Nature::Time),
    ("acquireTime", Nature::Time),
];

// Headers: only content-type, location, retry-after and warning are compared (`sides/mod.rs`). date, audit-id, cache-control,
// content-length and those of priority and fairness (x-kubernetes-pf-*) are not.
//
// Beside fields:
// - Suffixes of generated names: a generated name is compared as its prefix and the number of its first appearance.
// - UIDs, tokens and generated names inside messages are replaced as those in fields.
// - What Go's parsers say about JSON, YAML and pages that they cannot read.
// - `too old resource version: 5 (70)`: the numbers.
// - The issuer, which is the URL of the API server.
// - The order of the entries of managedFields, which the API server sorts by seconds.
// - A `deletionGracePeriodSeconds` of 0: whether custom resources have it whose definition ends depends on how often the API
//   server's own finalizer looked at them.
// - The order of the causes of a refusal, and so the message that joins them.
// - The managers of fields of reviews and token requests, which are not stored.
// - The progress that the namespace controller reports: of a Namespace that ends, only the last event.
// - The order of events of different objects on one watch, if controllers wrote them.
