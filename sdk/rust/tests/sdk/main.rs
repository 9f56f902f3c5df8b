//! The client against a server that answers by script, in memory and over loopback.

mod calls;
mod server;
mod tls;
mod watch;
mod web;
