//! The backend of a provider: the gRPC server and the controllers.
//!
//! Every replica answers calls from its caches ([`state`]); only the leader runs the controllers. Both decide with the same pure
//! functions: what a template exports ([`template`]), who owns a contract ([`contract`]), and which rights an export needs
//! ([`rbac`]).

pub mod actions;
pub mod args;
pub mod audit;
pub mod cluster_info;
pub mod contract;
pub mod controllers;
pub mod credentials;
pub mod files;
pub mod front;
pub mod leader;
pub mod leftovers;
pub mod limits;
pub mod metrics;
pub mod oidc;
pub mod own_issuer;
pub mod owner;
pub mod policy;
pub mod principal;
pub mod rbac;
pub mod request;
pub mod rights;
pub mod settings;
pub mod state;
pub mod template;
pub mod tls;
pub mod writes;
