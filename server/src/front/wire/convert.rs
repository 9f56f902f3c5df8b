//! Conversions between CRDs and messages, one file per kind.

pub(crate) mod boundschema;
pub(crate) mod claims;
pub(crate) mod collection;
pub(crate) mod condition;
pub(crate) mod contract;
pub(crate) mod enums;
pub(crate) mod export;
pub(crate) mod meta;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod template;

#[cfg(test)]
mod tests;
