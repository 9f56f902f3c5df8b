//! The konnector's own Secret of a contract: the newest credential, and which kubeconfigs are known to lead there.
//!
//! Secrets of others are read and never written. The origins are digests; with them a restarted konnector knows that an
//! expired kubeconfig of a user belongs to the contract without asking anybody.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::{labels, names};
use bindery_runtime::{backoff::Backoff, errors};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Core;
use bindery_runtime::kubeconfig::{Fingerprint, ProviderAccess};

/// Digests of the kubeconfigs that lead to the contract, newest last.
const ORIGINS: &str = "kube-bind.io/kubeconfig-origins";
const ORIGINS_MAX: usize = 16;
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// What the Secret is to hold.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The newest credential, once one was granted.
    pub document: Option<(Fingerprint, SecretSlice<u8>)>,
    /// The kubeconfigs that are known to lead to the contract.
    pub origins: BTreeSet<Fingerprint>,
}

/// One write.
#[derive(Debug, PartialEq)]
pub enum Op {
    /// All is as it should be.
    Nothing,
    /// The name is taken by a Secret that is not the konnector's.
    Foreign,
    /// Create it.
    Create(Box<Secret>),
    /// Change it.
    Patch(Value),
}

/// What is read from the Secret of a contract.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The credential.
    pub access: Arc<ProviderAccess>,
    /// The kubeconfigs that are known to lead to the contract.
    pub origins: BTreeSet<String>,
}

/// Name of the Secret of a contract.
pub fn name(contract_uid: &str) -> String {
    format!("kubeconfig-renewed-{}", names::identity_hash(contract_uid))
}

/// True if the Secret is the konnector's own, for this contract.
pub fn is_ours(secret: &Secret, contract_uid: &str) -> bool {
    secret
        .labels()
        .get(labels::CONTRACT_UID)
        .is_some_and(|uid| uid == contract_uid)
}

/// Reads the Secret of a contract; `None` if it is not ours or holds nothing of use.
pub fn read(secret: &Secret, contract_uid: &str) -> Option<Stored> {
    let document = secret.data.as_ref()?.get(names::KUBECONFIG_KEY)?;
    let access = ProviderAccess::parse(&document.0)
        .ok()
        .filter(|_| is_ours(secret, contract_uid))?;
    Some(Stored {
        access: Arc::new(access),
        origins: origins(secret).into_iter().collect(),
    })
}

fn origins(secret: &Secret) -> Vec<String> {
    let text = secret
        .annotations()
        .get(ORIGINS)
        .map(String::as_str)
        .unwrap_or_default();
    text.split(',')
        .filter(|origin| !origin.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Decides.
pub fn plan(existing: Option<&Secret>, wanted: &Wanted, namespace: &str, contract_uid: &str) -> Op {
    let Some(existing) = existing else {
        return match &wanted.document {
            None => Op::Nothing,
            Some((_, document)) => Op::Create(Box::new(secret(wanted, document, namespace, contract_uid))),
        };
    };
    if !is_ours(existing, contract_uid) {
        return if wanted.document.is_some() {
            Op::Foreign
        } else {
            Op::Nothing
        };
    }
    let mut known = origins(existing);
    let before = known.len();
    for origin in &wanted.origins {
        if !known.iter().any(|other| other == origin.as_str()) {
            known.push(origin.as_str().to_owned());
        }
    }
    let mut patch = json!({});
    if known.len() != before {
        let newest = &known[known.len().saturating_sub(ORIGINS_MAX)..];
        patch["metadata"]["annotations"][ORIGINS] = newest.join(",").into();
    }
    let stored = existing.data.as_ref().and_then(|data| data.get(names::KUBECONFIG_KEY));
    if let Some((_, document)) = &wanted.document
        && stored.is_none_or(|stored| stored.0 != document.expose_secret())
    {
        patch["data"] = json!({names::KUBECONFIG_KEY: STANDARD.encode(document.expose_secret())});
    }
    if patch == json!({}) {
        return Op::Nothing;
    }
    patch["metadata"]["uid"] = json!(existing.metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(existing.metadata.resource_version);
    Op::Patch(patch)
}

fn secret(wanted: &Wanted, document: &SecretSlice<u8>, namespace: &str, contract_uid: &str) -> Secret {
    let origins: Vec<_> = wanted
        .origins
        .iter()
        .map(Fingerprint::as_str)
        .take(ORIGINS_MAX)
        .collect();
    Secret {
        metadata: ObjectMeta {
            name: Some(name(contract_uid)),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([
                (labels::CONTRACT_UID.to_owned(), contract_uid.to_owned()),
                (labels::MANAGED_BY.to_owned(), names::KONNECTOR.to_owned()),
            ])),
            annotations: Some(BTreeMap::from([(ORIGINS.to_owned(), origins.join(","))])),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(BTreeMap::from([(
            names::KUBECONFIG_KEY.to_owned(),
            ByteString(document.expose_secret().to_vec()),
        )])),
        ..Secret::default()
    }
}

/// Keeps the Secret as wanted until dropped.
pub(super) async fn run(core: Arc<Core>) {
    let mut wanted = core.wanted.subscribe();
    let mut failures = 0;
    loop {
        let now = wanted.borrow_and_update().clone();
        match store(&core, &now).await {
            Ok(()) => {
                failures = 0;
                if wanted.changed().await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(contract = %core.contract.namespace, %error, "renewed credential not stored");
                sleep(RETRY.delay(failures)).await;
                failures += 1;
            }
        }
    }
}

async fn store(core: &Core, wanted: &Wanted) -> Result<(), String> {
    let (home, uid) = (&core.consumer.home, &core.contract.uid);
    let name = name(uid);
    let existing = core.consumer.secrets.get(home, &name);
    let api: Api<Secret> = Api::namespaced(core.consumer.clients.write.clone(), home);
    let written = match plan(existing.as_deref(), wanted, home, uid) {
        Op::Nothing => return Ok(()),
        Op::Foreign => {
            return Err(format!(
                "Secret {home}/{name} is not the konnector's: delete it, or label it {}={uid}",
                labels::CONTRACT_UID
            ));
        }
        Op::Create(secret) => api.create(&PostParams::default(), &secret).await,
        Op::Patch(patch) => api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await,
    };
    written.map(|_| ()).map_err(|error| errors::explain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::testing;

    const UID: &str = "0b1f";

    fn wanted(origins: &[&str], issued: Option<i64>) -> Wanted {
        Wanted {
            document: issued.map(|issued| {
                let document = testing::document("x", issued, 3600);
                (Fingerprint::of([document.as_bytes()]), document.into_bytes().into())
            }),
            origins: origins
                .iter()
                .map(|origin| Fingerprint::of([origin.as_bytes()]))
                .collect(),
        }
    }

    fn created(wanted: &Wanted) -> Secret {
        match plan(None, wanted, "kube-bind", UID) {
            Op::Create(secret) => *secret,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn is_made_with_the_first_credential_and_then_left_alone() {
        assert_eq!(plan(None, &wanted(&["a"], None), "kube-bind", UID), Op::Nothing);
        let first = wanted(&["a"], Some(1000));
        let secret = created(&first);
        assert_eq!(plan(Some(&secret), &first, "kube-bind", UID), Op::Nothing);
        let stored = read(&secret, UID).unwrap();
        assert!(stored.origins.contains(Fingerprint::of([b"a".as_slice()]).as_str()));
        assert!(read(&secret, "another").is_none());
    }

    #[test]
    fn what_is_new_is_added() {
        let secret = created(&wanted(&["a"], Some(1000)));
        let Op::Patch(patch) = plan(Some(&secret), &wanted(&["a"], Some(2000)), "kube-bind", UID) else {
            panic!("no patch");
        };
        assert!(patch["data"].is_object() && patch["metadata"]["annotations"].is_null());
        let Op::Patch(patch) = plan(Some(&secret), &wanted(&["b"], None), "kube-bind", UID) else {
            panic!("no patch");
        };
        assert!(patch["data"].is_null());
        let origins = patch["metadata"]["annotations"][ORIGINS].as_str().unwrap();
        assert_eq!(origins.split(',').count(), 2);
    }

    #[test]
    fn a_foreign_secret_is_not_touched() {
        let mut secret = created(&wanted(&["a"], Some(1000)));
        secret.metadata.labels = None;
        assert_eq!(
            plan(Some(&secret), &wanted(&["a"], Some(2000)), "kube-bind", UID),
            Op::Foreign
        );
        assert_eq!(
            plan(Some(&secret), &wanted(&["b"], None), "kube-bind", UID),
            Op::Nothing
        );
    }
}
