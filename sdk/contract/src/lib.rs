//! One contract for all SDKs: a scripted server, a table of cases, and golden files of manifests.
//!
//! Each SDK has a runner, a program that reads actions from standard input and writes what comes of them to standard output. The
//! suite gives all runners the same cases, and prints a table.

pub mod case;
pub mod golden;
mod judge;
pub mod methods;
pub mod proto_json;
pub mod runner;
pub mod script;
pub mod server;
pub mod suite;
pub mod table;
