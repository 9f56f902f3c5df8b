//! People who sign in with an identity provider: two issuers of independent make, and a real browser. What works with one issuer must
//! work with the other.
//!
//! `browser`, `code`, `device`, `issuers`, `keys` and `refresh` show that the issuers and the browser are what the other tests take
//! them for: the programs of the project, which share a provider and a consumer.

mod browser;
mod code;
mod counted;
mod developer;
mod device;
mod issuers;
mod kept;
mod keys;
mod login;
mod mixed_up;
mod oidc;
mod pinned;
mod redirect;
mod refresh;
mod refused;
mod story;
mod watching;
mod world;
