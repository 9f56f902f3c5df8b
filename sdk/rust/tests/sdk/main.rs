//! The client against a server that answers by script, in memory and over loopback.

mod binding;
mod calls;
mod connections;
mod server;
mod tls;
mod tokens;
mod watch;
