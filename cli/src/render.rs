//! Prints results on standard output and progress on standard error.

pub(crate) mod applied;
pub(crate) mod output;
pub(crate) mod placement;
mod rows;
pub(crate) mod steps;
pub(crate) mod tree;
