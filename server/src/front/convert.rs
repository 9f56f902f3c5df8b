//! Between the CRDs and the messages: one file per kind, every field in one place.

pub mod boundschema;
pub mod claims;
pub mod collection;
pub mod condition;
pub mod enums;
pub mod export;
pub mod meta;
pub mod request;
pub mod response;
pub mod template;

#[cfg(test)]
mod tests;
