//! The holder of a contract: decides whether this konnector is it, and lets objects be written only if so.
//!
//! `rule` decides from what the provider records and what the konnector's Lease records, without IO. `holding` tells the engines of
//! the contract whether they may write. `record` keeps the Lease's side.

mod holding;
mod record;
mod rule;

pub use holding::{Holding, Standing};
pub use record::{ContractHolder, Holders};
pub use rule::Finding;
