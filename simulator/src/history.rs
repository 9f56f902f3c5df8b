//! The history of a seed: an explicit list of timed events, which can be printed, stored, shortened and run again.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{faults::Fault, topology::Topology, users::Action};

mod generate;
mod objects;
mod shrink;

pub use generate::{STEPS_DEFAULT, beginning_of, generate, seeds_of_beginning};
pub use shrink::shrink;

/// One user action or fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Event {
    /// Somebody does something.
    User(Action),
    /// Something goes wrong.
    Fault(Fault),
}

/// An event with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// Milliseconds of virtual time since the start of the history.
    pub at: u64,
    /// What happens.
    pub event: Event,
}

/// All that a seed does to the clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The seed of the schedule: the order and the latencies of requests, answers and watch events.
    pub seed: u64,
    /// The seed of the schedule until all bindings of the topology are ready. Histories of the same beginning have the same topology.
    pub beginning: u64,
    /// The clusters at the start.
    pub topology: Topology,
    /// The events in the order of their times.
    pub events: Vec<HistoryEvent>,
}

// === impl History ===

impl History {
    /// A history of one provider and one consumer without events.
    pub fn pair(seed: u64) -> Self {
        Self {
            seed,
            beginning: seed,
            topology: Topology::pair(),
            events: Vec::new(),
        }
    }

    /// Adds a user action at this time.
    #[must_use]
    pub fn user(mut self, at: u64, action: Action) -> Self {
        self.events.push(HistoryEvent {
            at,
            event: Event::User(action),
        });
        self
    }

    /// Adds a fault at this time.
    #[must_use]
    pub fn fault(mut self, at: u64, fault: Fault) -> Self {
        self.events.push(HistoryEvent {
            at,
            event: Event::Fault(fault),
        });
        self
    }

    /// All faults.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.events.iter().filter_map(|event| match &event.event {
            Event::Fault(fault) => Some(fault),
            Event::User(_) => None,
        })
    }

    /// All user actions.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.events.iter().filter_map(|event| match &event.event {
            Event::User(action) => Some(action),
            Event::Fault(_) => None,
        })
    }

    /// The time after which no event comes and no fault lasts, in milliseconds.
    pub fn end(&self) -> u64 {
        let ends = self.events.iter().map(|event| match &event.event {
            Event::Fault(fault) => event.at + fault.millis(),
            Event::User(_) => event.at,
        });
        ends.max().unwrap_or_default()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(action) => action.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl fmt::Display for HistoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}.{:03} s  {}", self.at / 1000, self.at % 1000, self.event)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        write!(f, "{}", self.topology)?;
        for event in &self.events {
            writeln!(f, "{event}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
