//! Messages and statuses: validated requests, conversions between CRDs and messages, pages, label selectors, and errors.

pub(crate) mod convert;
pub(crate) mod error;
pub(crate) mod page;
pub(crate) mod selector;
pub(crate) mod validate;
