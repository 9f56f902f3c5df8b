//! Runs konnectors and servers against in-memory API servers, under faults, in one deterministic process per seed.

pub mod command;
pub mod faults;
pub mod history;
pub mod invariants;
pub mod play;
pub mod report;
pub mod scenarios;
pub mod topology;
pub mod users;
pub mod world;
