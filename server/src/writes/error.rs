//! Why a write was not made.

use std::sync::Arc;

use bindery_runtime::errors;
use kube::{
    Resource,
    api::{ApiResource, ObjectMeta},
};

/// Why a write was not made.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An object of that name exists and is not the server's.
    #[error("{kind} {name} exists and is not managed by this server; rename or remove it")]
    Foreign {
        /// Kind of the object.
        kind: String,
        /// Name of the object, with the namespace if it has one.
        name: String,
    },
    /// The API server refused the request, or could not be reached.
    #[error("{}", errors::explain(.0))]
    Api(#[from] kube::Error),
    /// Nothing was written: the server could not find out whether it holds the rights that the write needs. Writes that
    /// wait for the same answer share the error.
    #[error("{}", errors::explain(.0))]
    Unasked(Arc<kube::Error>),
}

// === impl WriteError ===

impl WriteError {
    /// Makes [`WriteError::Foreign`] for an existing object.
    pub fn foreign<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self::foreign_of(&ApiResource::erase::<K>(&()), object.meta())
    }

    /// Makes [`WriteError::Foreign`] from the kind and the metadata of an existing object.
    pub(super) fn foreign_of(resource: &ApiResource, object: &ObjectMeta) -> Self {
        let name = object.name.clone().unwrap_or_default();
        Self::Foreign {
            kind: resource.kind.clone(),
            name: match &object.namespace {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name,
            },
        }
    }

    /// Whether the API server refused the request with 403: the server lacks a right, or admission denied it.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api(error) if errors::is_forbidden(error))
    }

    /// Whether the object does not exist.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Api(error) if errors::is_not_found(error))
    }

    /// Whether the object is not, or no longer, what the caches said. The write succeeds, or is not needed any more, when
    /// they are up to date.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Api(error) if errors::code(error) == Some(409))
    }
}
