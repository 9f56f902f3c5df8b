//! Makes two answers comparable, and finds where they differ.

mod difference;
mod nature;
mod symbols;

pub(crate) use self::{difference::first_difference, symbols::Symbols};
