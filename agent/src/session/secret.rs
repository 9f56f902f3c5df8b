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
use bindery_api::{labels, meta, names};
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
/// Those that bindings have now are kept beyond this.
const ORIGINS_MAX: usize = 64;
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// What the Secret is to hold.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The newest credential, once one was granted.
    pub document: Option<(Fingerprint, SecretSlice<u8>)>,
    /// The kubeconfigs that bindings have now and that are known to lead to the contract, by name of the binding.
    pub origins: BTreeMap<Arc<str>, Fingerprint>,
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

impl Stored {
    /// Whether a kubeconfig is known to lead to the contract.
    pub fn is_of(&self, fingerprint: &Fingerprint) -> bool {
        self.access.fingerprint == *fingerprint || self.origins.contains(fingerprint.as_str())
    }
}

/// Name of the Secret of a contract.
pub fn name(contract_uid: &str) -> String {
    format!("kubeconfig-renewed-{}", names::identity_hash(contract_uid))
}

/// True if the Secret is the konnector's own, for this contract.
pub fn is_ours(secret: &Secret, contract_uid: &str) -> bool {
    meta::contract_uid(&secret.metadata) == Some(contract_uid)
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
            // Without an origin nobody would know that it is meant.
            Some((_, document)) if !wanted.origins.is_empty() => {
                Op::Create(Box::new(secret(wanted, document, namespace, contract_uid)))
            }
            _ => Op::Nothing,
        };
    };
    if !is_ours(existing, contract_uid) {
        return if wanted.document.is_some() {
            Op::Foreign
        } else {
            Op::Nothing
        };
    }
    let mut patch = json!({});
    if let Some(origins) = more_origins(origins(existing), wanted) {
        patch["metadata"]["annotations"][ORIGINS] = origins.join(",").into();
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

/// The origins with those that are wanted, newest last; `None` where none is missing.
fn more_origins(mut known: Vec<String>, wanted: &Wanted) -> Option<Vec<String>> {
    let current: BTreeSet<_> = wanted.origins.values().map(Fingerprint::as_str).collect();
    let missing: Vec<_> = current
        .iter()
        .filter(|origin| !known.iter().any(|other| other == *origin))
        .map(|origin| (*origin).to_owned())
        .collect();
    if missing.is_empty() {
        return None;
    }
    known.extend(missing);
    let mut excess = known.len().saturating_sub(ORIGINS_MAX);
    known.retain(|origin| {
        let goes = excess > 0 && !current.contains(origin.as_str());
        excess -= usize::from(goes);
        !goes
    });
    Some(known)
}

fn secret(wanted: &Wanted, document: &SecretSlice<u8>, namespace: &str, contract_uid: &str) -> Secret {
    let origins = more_origins(Vec::new(), wanted).unwrap_or_default();
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
                .map(|origin| ((*origin).into(), Fingerprint::of([origin.as_bytes()])))
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
    fn nobody_would_find_one_without_an_origin() {
        assert_eq!(plan(None, &wanted(&[], Some(1000)), "kube-bind", UID), Op::Nothing);
    }

    #[test]
    fn the_origins_of_bindings_outlive_any_number_of_others() {
        let mut known = Vec::new();
        let names: Vec<_> = (0..3 * ORIGINS_MAX).map(|number| format!("rotated-{number}")).collect();
        for name in &names {
            known = more_origins(known, &wanted(&["kept", name], None)).unwrap();
        }
        assert_eq!(known.len(), ORIGINS_MAX);
        let has = |name: &str| {
            known
                .iter()
                .any(|origin| origin == Fingerprint::of([name.as_bytes()]).as_str())
        };
        assert!(has("kept") && has(names.last().unwrap()) && !has(&names[0]));
        assert_eq!(more_origins(known.clone(), &wanted(&["kept"], None)), None);
        let all: Vec<_> = names.iter().map(String::as_str).collect();
        let many = more_origins(known, &wanted(&all, None)).unwrap();
        assert_eq!(many.len(), all.len(), "what bindings have now is never dropped");
        assert_eq!(more_origins(many, &wanted(&all, None)), None);
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
