//! What the provider's API server shows of one contract to the credential of a binding. Only ever read.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    names,
    v1alpha2::{APIServiceBinding, APIServiceExport, APIServiceNamespace, BoundSchema, GroupResource},
};
use bindery_runtime::{
    client::{Clients, SharedToken},
    errors,
    kubeconfig::ProviderAccess,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::consumer::{Consumer, PAGE};

/// Idle connections that are kept.
const IDLE_MAX: usize = 2;
/// Longest wait for an answer: what a provider does not tell soon is reported as not known.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A contract, seen with the newest credential that can be read here.
pub(crate) struct Contract {
    client: Client,
    /// URL of the provider's API server.
    pub(crate) server: String,
    /// The contract namespace.
    pub(crate) name: Arc<str>,
}

impl Contract {
    /// Takes the credential from the Secrets of the binding. Says why, if that cannot be.
    pub(crate) async fn open(consumer: &Consumer, binding: &APIServiceBinding) -> Result<Self, String> {
        let reference = &binding.spec.kubeconfig_secret_ref;
        let installed = consumer
            .secret(reference)
            .await
            .map_err(|failure| failure.to_string())?;
        let installed = installed.ok_or_else(|| format!("Secret {reference} does not exist"))?;
        let original = access(&installed, &reference.key)
            .ok_or_else(|| format!("Secret {reference} has no key {:?}", reference.key))?
            .map_err(|refusal| format!("the kubeconfig in Secret {reference} is refused: {refusal}"))?;
        let uid = binding
            .status
            .as_ref()
            .and_then(|status| status.contract_uid.as_deref());
        let renewed = match uid {
            // Whoever may read one Secret only does without the others.
            Some(uid) => consumer.renewed(&reference.namespace, uid).await.unwrap_or_default(),
            None => Vec::new(),
        };
        let renewed = renewed
            .iter()
            .filter_map(|secret| access(secret, names::KUBECONFIG_KEY)?.ok());
        let newest = newest(original, renewed);
        Self::connect(&newest)
    }

    fn connect(access: &ProviderAccess) -> Result<Self, String> {
        let clients = match &access.token {
            None => Clients::new(&access.config, IDLE_MAX),
            Some(token) => {
                SharedToken::new(token).and_then(|token| Clients::with_token(&access.config, IDLE_MAX, &token))
            }
        };
        Ok(Self {
            client: clients.map_err(|error| error.to_string())?.write,
            server: access.server(),
            name: Arc::clone(&access.namespace),
        })
    }

    /// The export of a binding.
    pub(crate) async fn export(&self, name: &str) -> Result<Option<APIServiceExport>, String> {
        self.read(Api::namespaced(self.client.clone(), &self.name), name).await
    }

    /// What stands for a namespace of the consumer.
    pub(crate) async fn place(&self, namespace: &str) -> Result<Option<APIServiceNamespace>, String> {
        self.read(Api::namespaced(self.client.clone(), &self.name), namespace)
            .await
    }

    /// What stands for each namespace of the consumer.
    pub(crate) async fn places(&self) -> Result<Vec<APIServiceNamespace>, String> {
        self.list(
            &Api::namespaced(self.client.clone(), &self.name),
            "APIServiceNamespaces",
        )
        .await
    }

    /// The schema of an exported resource.
    pub(crate) async fn schema(&self, resource: &GroupResource) -> Result<Option<BoundSchema>, String> {
        self.read(
            Api::namespaced(self.client.clone(), &self.name),
            &names::bound_schema(resource),
        )
        .await
    }

    /// All objects of a namespace; an empty one is all of the cluster.
    pub(crate) async fn objects(&self, resource: &ApiResource, namespace: &str) -> Result<Vec<DynamicObject>, String> {
        let api = match namespace {
            "" => Api::all_with(self.client.clone(), resource),
            _ => Api::namespaced_with(self.client.clone(), namespace, resource),
        };
        self.list(&api, &resource.plural).await
    }

    /// Any object; an empty namespace is that of cluster-scoped ones.
    pub(crate) async fn object(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, String> {
        let api = match namespace {
            "" => Api::all_with(self.client.clone(), resource),
            _ => Api::namespaced_with(self.client.clone(), namespace, resource),
        };
        self.read(api, name).await
    }

    async fn list<K>(&self, api: &Api<K>, what: &str) -> Result<Vec<K>, String>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let mut params = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = match timeout(ANSWER_MAX, api.list(&params)).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => return Err(format!("cannot list {what}: {}", errors::explain(&error))),
                Err(_) => return Err(silent()),
            };
            all.extend(page.items);
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => return Ok(all),
            }
        }
    }

    async fn read<K>(&self, api: Api<K>, name: &str) -> Result<Option<K>, String>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        match timeout(ANSWER_MAX, api.get(name)).await {
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(error)) if errors::is_object_gone(&error, name) => Ok(None),
            Ok(Err(error)) => Err(errors::explain(&error)),
            Err(_) => Err(silent()),
        }
    }
}

fn silent() -> String {
    format!("the provider did not answer within {} s", ANSWER_MAX.as_secs())
}

fn access(secret: &Secret, key: &str) -> Option<Result<ProviderAccess, bindery_runtime::kubeconfig::Refusal>> {
    let document = secret.data.as_ref()?.get(key)?;
    Some(ProviderAccess::parse(&document.0))
}

/// The one that lives longest. What does not say when it expires lives longest of all.
fn newest(original: ProviderAccess, others: impl Iterator<Item = ProviderAccess>) -> ProviderAccess {
    let namespace = Arc::clone(&original.namespace);
    let others = others.filter(|other| other.namespace == namespace);
    others.fold(original, |best, other| {
        match (best.lifetime.expires_at, other.lifetime.expires_at) {
            (Some(until), Some(longer)) if longer > until => other,
            (Some(_), None) => other,
            _ => best,
        }
    })
}

impl std::fmt::Debug for Contract {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contract")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig::tests::kubeconfig;

    fn parsed(expires: i64, namespace: &str) -> ProviderAccess {
        let mut document = kubeconfig(expires, expires);
        document["contexts"][0]["context"]["namespace"] = namespace.into();
        ProviderAccess::parse(document.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_newest_credential_of_the_contract_is_used() {
        let expires = |original: i64, others: &[(i64, &str)]| {
            let others = others.iter().map(|(expires, namespace)| parsed(*expires, namespace));
            let newest = newest(parsed(original, "kube-bind-x"), others);
            newest.lifetime.expires_at.map(jiff::Timestamp::as_second)
        };
        assert_eq!(expires(100, &[]), Some(100));
        assert_eq!(
            expires(100, &[(90, "kube-bind-x"), (120, "kube-bind-x"), (110, "kube-bind-x")]),
            Some(120)
        );
        assert_eq!(expires(100, &[(120, "kube-bind-y")]), Some(100));
    }
}
