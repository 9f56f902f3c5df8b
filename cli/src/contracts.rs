//! Contracts and grants of templates, as the provider's admin sees them. Nothing here does I/O.

pub(crate) mod grant;
pub(crate) mod shown;
