//! What the controllers of bindings and of bundles share: access to a provider, consents, ownership, counts and other konnectors.

pub mod access;
pub mod bundle_settings;
pub mod conditions;
pub mod connection;
pub mod consent;
pub mod context;
pub mod crd_objects;
pub mod inventory;
pub mod object_counts;
pub mod observed_session;
pub mod other_konnectors;
pub mod ownership;
pub mod requeue;
