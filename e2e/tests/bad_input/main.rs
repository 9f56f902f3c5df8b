//! Bad input: each case with the code or the condition that it comes to, the words that name the object and the mend, and
//! what it must not have touched.

mod commands;
mod contracts;
mod expect;
mod exports;
mod flags;
mod kubeconfigs;
mod names;
mod objects;
mod provider_changed;
mod revoked;
mod schema_updates;
mod schemas;
mod templates;
mod tokens;
mod wire;
mod world;

use bindery_e2e::offer;
