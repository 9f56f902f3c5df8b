//! The messages by which `load` tells `floor` what it has changed.

use std::{fmt, str::FromStr};

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The consumer's object was created.
    Create,
    /// Its spec was changed.
    Update,
    /// The status of its copy was changed.
    Status,
    /// Its deletion was asked for.
    Delete,
}

/// One change of one object, as the API server acknowledged it: a line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub change: Change,
    /// Which of the resources that the programs were started with.
    pub resource: usize,
    /// The consumer's object.
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// The version that the change led to, of the object that was changed.
    pub version: Box<str>,
    /// The number that the changed part says.
    pub seq: u64,
    /// The length of the object, or of the status.
    pub size: usize,
}

/// A line that is no order.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no order: {0:?}")]
pub(crate) struct NoOrder(String);

// === impl Change ===

impl Change {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Status => "status",
            Self::Delete => "delete",
        }
    }

    fn named(name: &str) -> Option<Self> {
        let all = [Self::Create, Self::Update, Self::Status, Self::Delete];
        all.into_iter().find(|change| change.name() == name)
    }
}

// === impl Order ===

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            change,
            resource,
            namespace,
            name,
            uid,
            version,
            seq,
            size,
        } = self;
        let change = change.name();
        write!(f, "{change} {resource} {namespace} {name} {uid} {version} {seq} {size}")
    }
}

impl FromStr for Order {
    type Err = NoOrder;

    fn from_str(line: &str) -> Result<Self, NoOrder> {
        let parts: Vec<_> = line.split(' ').collect();
        let read = || {
            let [change, resource, namespace, name, uid, version, seq, size] = parts[..] else {
                return None;
            };
            Some(Self {
                change: Change::named(change)?,
                resource: resource.parse().ok()?,
                namespace: namespace.into(),
                name: name.into(),
                uid: uid.into(),
                version: version.into(),
                seq: seq.parse().ok()?,
                size: size.parse().ok()?,
            })
        };
        read().ok_or_else(|| NoOrder(line.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for change in [Change::Create, Change::Update, Change::Status, Change::Delete] {
            let order = Order {
                change,
                resource: 1,
                namespace: "bench-3".into(),
                name: "a-17".into(),
                uid: "2f0c".into(),
                version: "4711".into(),
                seq: 5,
                size: 1024,
            };
            assert_eq!(order.to_string().parse(), Ok(order));
        }
    }

    #[test]
    fn what_is_no_order_is_refused() {
        for bad in [
            "",
            "create",
            "create 0 n a u 1 2",
            "create 0 n a u 1 2 3 4",
            "adopt 0 n a u 1 2 3",
            "create x n a u 1 2 3",
            "create 0 n a u 1 -2 3",
        ] {
            assert_eq!(bad.parse::<Order>(), Err(NoOrder(bad.to_owned())));
        }
    }
}
