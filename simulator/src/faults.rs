//! What goes wrong in a history: which faults there are, and how they reach the world.

mod fault;
mod inject;

pub use fault::{
    DefinitionChange, Disturbance, Fault, LEASE_MILLIS, ProcessName, RevisionsAfter, Target, TriggerPoint,
};
pub use inject::Faults;
