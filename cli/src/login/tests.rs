//! Whole logins, refreshes and logouts against an issuer on loopback that answers as a test tells it to.

mod code;
mod device;
mod fake;
mod hostile;
mod refresh;

use fake::FakeIssuer;
