//! Kubeconfigs that the server gives to a consumer.

use std::fmt;

use bindery_proto::v1alpha2::Kubeconfig;
use jiff::Timestamp;

/// A kubeconfig, which `Debug` does not show. [`SecretKubeconfig::expose`] gives its content.
#[derive(Clone, PartialEq)]
pub struct SecretKubeconfig(Kubeconfig);

impl SecretKubeconfig {
    pub(crate) fn new(message: Kubeconfig) -> Self {
        Self(message)
    }

    /// Returns the content: a kubeconfig in YAML or JSON.
    pub fn expose(&self) -> &[u8] {
        &self.0.kubeconfig
    }

    /// Returns when the credential in the kubeconfig expires; `None` if the server does not say.
    pub fn expiration_time(&self) -> Option<Timestamp> {
        let time = self.0.expire_time?;
        Timestamp::new(time.seconds, time.nanos).ok()
    }

    /// Returns the id under which the server knows the credential; empty if it does not say.
    pub fn credential_id(&self) -> &str {
        &self.0.credential_id
    }

    /// Returns the message of the API, with the content.
    pub fn into_message(self) -> Kubeconfig {
        self.0
    }
}

impl fmt::Debug for SecretKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKubeconfig")
            .field("credential_id", &self.0.credential_id)
            .field("expiration_time", &self.expiration_time())
            .finish_non_exhaustive()
    }
}
