//! Which objects permission claims select. The konnector, the server and `kubectl bind why` decide by these functions, so
//! that they give the same answer.

mod core;
mod never;
mod references;
mod selection;

pub use core::{CORE_PLURALS, SECRETS, core_kind, is_claimable_core};
pub use never::{
    KUBERNETES_NAMESPACES, NeverClaimed, TOKEN_SECRET_TYPES, is_local_field, is_protected_namespace, never_claimed,
};
pub use references::{REFERENCES_MAX, ReferencePaths, ReferencedObject, is_reference_path, referrer_metadata};
pub use selection::{Referenced, Selected, SelectedBy, Selection};

#[cfg(test)]
mod tests;
