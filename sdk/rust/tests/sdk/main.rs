//! The client against a server that answers by script, in memory and over loopback.

mod binding;
mod calls;
mod connections;
mod readme;
mod server;
mod tls;
mod tokens;
mod watch;
mod web;
