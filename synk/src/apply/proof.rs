//! The caller's proof that the admission policies of a set are in force.

use std::{fmt, future::Future, sync::Arc};

use futures::future::BoxFuture;

/// Proves that the admission policies of a set are in force, before anything is applied that they limit. An API server admits what a new
/// policy forbids until it has noticed the policy. Clones are the same proof.
#[derive(Clone)]
pub struct Proof(Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>);

impl Proof {
    /// A proof by this function, which waits until the policies are in force, or says why they are not.
    pub fn new<F>(prove: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(prove())))
    }

    pub(super) async fn prove(&self) -> Result<(), String> {
        (self.0)().await
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof")
    }
}
