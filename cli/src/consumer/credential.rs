//! The credentials of a binding: the kubeconfig that the user installed, and those that the konnector renewed.

use bindery_api::{
    labels, names,
    v1alpha2::{APIServiceBinding, ClusterSecretKeyRef},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::ListParams};

use super::{Consumer, again};
use crate::{
    errors::Failure,
    install::owner::CredentialOwner,
    provider::{
        contract::Contract,
        kubeconfig::{Credential, KubeconfigError},
    },
};

/// Why no credential of a binding can be used from here. Few users may read Secrets, so this is often no failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialProblem {
    /// The Secret cannot be read.
    #[error("Secret {secret} is not visible to you ({failure})")]
    NotVisible { secret: String, failure: String },
    /// The Secret does not exist.
    #[error("Secret {secret} does not exist")]
    Missing { secret: String },
    /// The Secret has no kubeconfig under the key that the binding names.
    #[error("Secret {secret} has no key {key:?}")]
    NoKey { secret: String, key: String },
    /// The kubeconfig is not safe to use.
    #[error("the kubeconfig in Secret {secret} is refused: {error}")]
    Refused { secret: String, error: KubeconfigError },
}

impl Consumer {
    /// The Secret of a binding or a bundle; none if it does not exist.
    pub(crate) async fn secret(&self, reference: &ClusterSecretKeyRef) -> Result<Option<Secret>, Failure> {
        let secrets = Api::namespaced(self.client(), &reference.namespace);
        self.find::<Secret>(secrets, &reference.name).await
    }

    /// The credential of the binding that expires last, and whether the konnector renewed it. Renewed credentials that cannot
    /// be read do not count.
    pub(crate) async fn newest_credential(
        &self,
        binding: &APIServiceBinding,
    ) -> Result<(Credential, bool), CredentialProblem> {
        self.newest_credential_at(&binding.spec.kubeconfig_secret_ref, binding.contract_uid())
            .await
    }

    /// As [`Self::newest_credential`], for a binding or a bundle.
    pub(crate) async fn newest_credential_of(
        &self,
        owner: &CredentialOwner,
    ) -> Result<(Credential, bool), CredentialProblem> {
        self.newest_credential_at(owner.secret_ref(), owner.contract_uid())
            .await
    }

    async fn newest_credential_at(
        &self,
        reference: &ClusterSecretKeyRef,
        contract_uid: Option<&str>,
    ) -> Result<(Credential, bool), CredentialProblem> {
        let (secret, key) = (reference.to_string(), reference.key.clone());
        let installed = match self.secret(reference).await {
            Err(failure) => {
                let failure = failure.to_string();
                return Err(CredentialProblem::NotVisible { secret, failure });
            }
            Ok(None) => return Err(CredentialProblem::Missing { secret }),
            Ok(Some(found)) => match Credential::of_secret(&found, &key) {
                None => return Err(CredentialProblem::NoKey { secret, key }),
                Some(Err(error)) => return Err(CredentialProblem::Refused { secret, error }),
                Some(Ok(credential)) => credential,
            },
        };
        let renewed = match contract_uid {
            Some(uid) => self.renewed(&reference.namespace, uid).await.unwrap_or_default(),
            None => Vec::new(),
        };
        let renewed = renewed
            .iter()
            .filter_map(|secret| Credential::of_secret(secret, names::KUBECONFIG_KEY)?.ok());
        Ok(newest(installed, renewed))
    }

    /// Opens the contract of a binding with its newest credential. An error says why that is not possible.
    pub(crate) async fn contract(&self, binding: &APIServiceBinding) -> Result<Contract, String> {
        let newest = self.newest_credential(binding).await;
        Contract::open(newest.map_err(|problem| problem.to_string())?.0)
    }

    /// Secrets with kubeconfigs that the konnector renewed for the contract.
    async fn renewed(&self, namespace: &str, contract_uid: &str) -> Result<Vec<Secret>, Failure> {
        let params = ListParams::default().labels(&format!("{}={contract_uid}", labels::CONTRACT_UID));
        let secrets = Api::<Secret>::namespaced(self.client(), namespace);
        let secrets = again(async || secrets.list(&params).await).await;
        let secrets = secrets.map_err(Failure::cluster(format!("list Secrets in namespace {namespace}")))?;
        Ok(secrets.items)
    }
}

/// The credential that expires last, and whether it is a renewed one. A credential without an expiry expires last of all.
fn newest(installed: Credential, renewed: impl Iterator<Item = Credential>) -> (Credential, bool) {
    let contract = installed.namespace.clone();
    let renewed = renewed.filter(|other| other.namespace == contract);
    renewed.fold((installed, false), |(best, is_renewed), other| {
        let is_longer = match (best.expires, other.expires) {
            (Some(best), Some(other)) => other > best,
            (best, other) => best.is_some() && other.is_none(),
        };
        if is_longer { (other, true) } else { (best, is_renewed) }
    })
}

#[cfg(test)]
mod tests;
