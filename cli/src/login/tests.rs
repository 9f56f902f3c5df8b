//! Whole logins, refreshes and logouts against an issuer on loopback that answers as a test tells it to.

mod code;
mod command;
mod device;
mod fake;
mod hostile;
mod processes;
mod refresh;
mod server;

use fake::FakeIssuer;
