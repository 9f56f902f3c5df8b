//! The commands of `load`.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::order::Change;

/// One line of standard input.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Command {
    pub phase: Phase,
    /// A text that the answer repeats, so that the caller can match the two.
    #[serde(default)]
    pub label: String,
    /// Index of the resource to change.
    #[serde(default)]
    pub resource: usize,
    /// Indexes of the consumers whose objects change; `None` for all consumers.
    #[serde(default)]
    consumers: Option<Vec<usize>>,
    /// Objects are named `<prefix>-<number>`; the numbers begin with `from`.
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    from: usize,
    /// Number of objects.
    #[serde(default)]
    count: usize,
    /// Number of namespaces that the objects are spread over. They are named `<base>-<number>`.
    #[serde(default = "one")]
    namespaces: usize,
    #[serde(default = "base")]
    base: String,
    /// The length of an object in bytes.
    #[serde(default = "size")]
    pub size: usize,
    /// The length of a status in bytes.
    #[serde(default = "status_size")]
    pub status_size: usize,
    /// Changes per second, also if earlier ones are not answered yet; `None` for as fast as possible.
    #[serde(default)]
    pub rate: Option<f64>,
    /// Number of updates or statuses, which go over all objects in turn; `None` for one of each object.
    #[serde(default)]
    changes: Option<usize>,
    /// Number of concurrent requests, if there is no rate.
    #[serde(default = "concurrency")]
    pub concurrency: usize,
    /// Seed of the random times of changes, if there is a rate.
    #[serde(default)]
    pub seed: u64,
    /// The sequence number of the first change of each object; each further change of it adds one.
    #[serde(default = "first")]
    seq: u64,
    /// Paths of the sockets on which the floor of each consumer gets its orders, in the order of the consumers.
    #[serde(default)]
    pub acks: Option<Vec<String>>,
    /// Seconds that the last change may take to arrive after the last request was answered.
    #[serde(default = "timeout")]
    pub timeout_s: u64,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    Create,
    Update,
    Status,
    Delete,
    /// Creates objects. The answer does not list the latency of each.
    Fill,
    /// Deletes all objects of the resource and the consumers. The answer does not list the latency of each.
    Clear,
    /// Counts objects and changes nothing.
    Count,
}

/// Identifies a consumer's object. Its copy on the provider has the same key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub resource: usize,
    pub consumer: usize,
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub key: Key,
    /// The sequence number that the change writes into the spec or the status.
    pub seq: u64,
}

const fn one() -> usize {
    1
}

const fn first() -> u64 {
    1
}

fn base() -> String {
    "bench".to_owned()
}

const fn size() -> usize {
    1024
}

const fn status_size() -> usize {
    128
}

const fn concurrency() -> usize {
    32
}

const fn timeout() -> u64 {
    300
}

// === impl Command ===

impl Command {
    /// Indexes of the consumers whose objects change. `consumers` is the number of all consumers.
    pub(crate) fn chosen(&self, consumers: usize) -> Result<Vec<usize>> {
        let chosen = self.consumers.clone().unwrap_or_else(|| (0..consumers).collect());
        ensure!(!chosen.is_empty(), "no consumer is chosen");
        ensure!(
            chosen.iter().all(|chosen| *chosen < consumers),
            "there are {consumers} consumers"
        );
        Ok(chosen)
    }

    /// The changes to make, in their order.
    pub(crate) fn steps(&self, chosen: &[usize]) -> Result<Vec<Step>> {
        let once = matches!(self.phase, Phase::Create | Phase::Fill | Phase::Delete);
        let changes = self.changes.filter(|_| !once).unwrap_or(self.count);
        ensure!(self.count > 0 && changes > 0, "nothing is to be changed");
        ensure!(self.namespaces > 0, "no namespace is to be used");
        let step = |change: usize| {
            let object = self.from + change % self.count;
            Step {
                key: Key {
                    resource: self.resource,
                    consumer: chosen[object % chosen.len()],
                    namespace: format!("{}-{}", self.base, object % self.namespaces).into(),
                    name: format!("{}-{object}", self.prefix).into(),
                },
                seq: self.seq + (change / self.count) as u64,
            }
        };
        Ok((0..changes).map(step).collect())
    }

    /// The length in bytes of what a change writes.
    pub(crate) fn length(&self) -> usize {
        if self.phase == Phase::Status {
            self.status_size
        } else {
            self.size
        }
    }
}

// === impl Phase ===

impl Phase {
    /// The change that is made to each object; `None` if there is none.
    pub(crate) const fn change(self) -> Option<Change> {
        match self {
            Self::Create | Self::Fill => Some(Change::Create),
            Self::Update => Some(Change::Update),
            Self::Status => Some(Change::Status),
            Self::Delete | Self::Clear => Some(Change::Delete),
            Self::Count => None,
        }
    }

    /// Whether the answer lists the latency of each change.
    pub(crate) const fn tells_each(self) -> bool {
        !matches!(self, Self::Fill | Self::Clear)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, consumers: usize, expect: &[(usize, &str, &str, u64)]) {
        let command: Command = serde_json::from_str(line).unwrap();
        let chosen = command.chosen(consumers).unwrap();
        let steps = command.steps(&chosen).unwrap();
        let got: Vec<_> = steps
            .iter()
            .map(|step| (step.key.consumer, &*step.key.namespace, &*step.key.name, step.seq))
            .collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn objects_are_spread_and_changed_in_turn() {
        check(
            r#"{"phase":"create","prefix":"a","from":10,"count":3,"namespaces":2,"changes":9}"#,
            1,
            &[
                (0, "bench-0", "a-10", 1),
                (0, "bench-1", "a-11", 1),
                (0, "bench-0", "a-12", 1),
            ],
        );
        check(
            r#"{"phase":"update","prefix":"b","count":2,"changes":5,"seq":7,"base":"x"}"#,
            1,
            &[
                (0, "x-0", "b-0", 7),
                (0, "x-0", "b-1", 7),
                (0, "x-0", "b-0", 8),
                (0, "x-0", "b-1", 8),
                (0, "x-0", "b-0", 9),
            ],
        );
        check(
            r#"{"phase":"fill","prefix":"c","count":3,"consumers":[2,0]}"#,
            3,
            &[
                (2, "bench-0", "c-0", 1),
                (0, "bench-0", "c-1", 1),
                (2, "bench-0", "c-2", 1),
            ],
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let command = |line: &str| serde_json::from_str::<Command>(line);
        assert!(command(r#"{"phase":"adopt"}"#).is_err());
        assert!(command(r#"{"phase":"create","colour":"red"}"#).is_err());
        let other = command(r#"{"phase":"create","consumers":[1],"count":1}"#).unwrap();
        assert!(other.chosen(1).is_err());
        let none = command(r#"{"phase":"create"}"#).unwrap();
        assert!(none.steps(&[0]).is_err());
    }
}
