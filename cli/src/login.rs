//! The login of a person at the issuer of a server: the flows, the tokens that they yield, where these are kept, and how they
//! are refreshed.
//!
//! [`choice`] decides where and how the user logs in, [`code`] and [`device`] are the flows, [`issuer`] is one issuer, reached
//! by [`http`], [`store`] keeps what a login yields, and [`source`] gives the calls of the client a token that is valid.

pub(crate) mod browser;
pub(crate) mod choice;
pub(crate) mod code;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod http;
pub(crate) mod issuer;
pub(crate) mod source;
pub(crate) mod store;

#[cfg(test)]
mod tests;
