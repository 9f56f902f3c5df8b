//! People who sign in with an identity provider: two issuers of independent make, and a real browser. What works with one issuer must
//! work with the other.

mod browser;
mod code;
mod device;
mod issuers;
mod keys;
mod oidc;
mod redirect;
mod refresh;
