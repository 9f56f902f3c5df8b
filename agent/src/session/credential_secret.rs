//! The konnector's own Secret of a contract: the newest credential, and which kubeconfigs are known to reach the contract.
//!
//! Other Secrets are read and never written. The origins are digests of kubeconfigs, by which a restarted konnector knows
//! that a user's expired kubeconfig belongs to the contract.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::{labels, meta, names};
use bindery_runtime::{
    backoff::Backoff,
    errors,
    kubeconfig::{Fingerprint, ProviderAccess},
};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::session_core::{DesiredSecret, SessionCore};
use crate::patch::unchanged;

/// Annotation with the digests of the kubeconfigs that reach the contract, newest last.
const ORIGINS: &str = "kube-bind.io/kubeconfig-origins";
/// The Secret keeps this many origins, and more only if bindings use more now.
const ORIGINS_MAX: usize = 64;
/// Pauses between failed writes of the Secret.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// What to do with the Secret.
#[derive(Debug, PartialEq)]
pub enum SecretOp {
    /// The Secret is up to date, or not needed yet.
    Nothing,
    /// A Secret of that name exists that is not the konnector's.
    Foreign,
    /// Create the Secret.
    Create(Box<Secret>),
    /// Apply this merge patch.
    Patch(Value),
}

/// The content of the Secret of a contract.
#[derive(Clone, Debug)]
pub struct StoredCredential {
    /// The credential.
    pub access: Arc<ProviderAccess>,
    /// Digests of the kubeconfigs that are known to reach the contract.
    pub origins: BTreeSet<String>,
}

impl StoredCredential {
    /// Whether a kubeconfig is known to reach the contract.
    pub fn is_of(&self, fingerprint: &Fingerprint) -> bool {
        self.access.fingerprint == *fingerprint || self.origins.contains(fingerprint.as_str())
    }
}

/// Returns the name of the Secret of a contract.
pub fn name(contract_uid: &str) -> String {
    format!("kubeconfig-renewed-{}", names::identity_hash(contract_uid))
}

/// Whether a Secret is the konnector's own for this contract.
pub fn is_ours(secret: &Secret, contract_uid: &str) -> bool {
    meta::contract_uid(&secret.metadata) == Some(contract_uid)
}

/// Reads the Secret of a contract; `None` if it is not the konnector's or holds no usable kubeconfig.
pub fn read(secret: &Secret, contract_uid: &str) -> Option<StoredCredential> {
    let document = secret.data.as_ref()?.get(names::KUBECONFIG_KEY)?;
    let access = ProviderAccess::parse(&document.0)
        .ok()
        .filter(|_| is_ours(secret, contract_uid))?;
    Some(StoredCredential {
        access: Arc::new(access),
        origins: origins(secret).into_iter().collect(),
    })
}

/// Reads the digests of kubeconfigs that reach the contract.
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

/// Decides what to do with the Secret.
pub fn plan(existing: Option<&Secret>, desired: &DesiredSecret, namespace: &str, contract_uid: &str) -> SecretOp {
    let Some(existing) = existing else {
        return match &desired.document {
            // A Secret without origins would never be found again.
            Some((_, document)) if !desired.origins.is_empty() => {
                SecretOp::Create(Box::new(secret(desired, document, namespace, contract_uid)))
            }
            _ => SecretOp::Nothing,
        };
    };
    if !is_ours(existing, contract_uid) {
        return if desired.document.is_some() {
            SecretOp::Foreign
        } else {
            SecretOp::Nothing
        };
    }
    let mut patch = unchanged(&existing.metadata);
    let nothing = patch.clone();
    if let Some(origins) = more_origins(origins(existing), desired) {
        patch["metadata"]["annotations"][ORIGINS] = origins.join(",").into();
    }
    let stored = existing.data.as_ref().and_then(|data| data.get(names::KUBECONFIG_KEY));
    if let Some((_, document)) = &desired.document
        && stored.is_none_or(|stored| stored.0 != document.expose_secret())
    {
        patch["data"] = json!({names::KUBECONFIG_KEY: STANDARD.encode(document.expose_secret())});
    }
    if patch == nothing {
        return SecretOp::Nothing;
    }
    SecretOp::Patch(patch)
}

/// Returns the origins with the desired ones added, newest last; `None` if none is missing.
fn more_origins(mut known: Vec<String>, desired: &DesiredSecret) -> Option<Vec<String>> {
    let current: BTreeSet<_> = desired.origins.values().map(Fingerprint::as_str).collect();
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

/// Returns the Secret to create.
fn secret(desired: &DesiredSecret, document: &SecretSlice<u8>, namespace: &str, contract_uid: &str) -> Secret {
    let origins = more_origins(Vec::new(), desired).unwrap_or_default();
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

/// Keeps the Secret up to date until dropped.
pub(super) async fn run(core: Arc<SessionCore>) {
    let mut desired = core.desired_secret.subscribe();
    let mut failures = 0;
    loop {
        let now = desired.borrow_and_update().clone();
        match store(&core, &now).await {
            Ok(()) => {
                failures = 0;
                if desired.changed().await.is_err() {
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

/// Creates or changes the Secret if it is not up to date.
async fn store(core: &SessionCore, desired: &DesiredSecret) -> Result<(), String> {
    let (namespace, uid) = (&core.consumer.namespace, &core.contract.uid);
    let cached = core.consumer.secrets.get(namespace, &name(uid));
    let api = Api::namespaced(core.consumer.clients.write.clone(), namespace);
    store_in(&api, cached.as_deref(), desired, namespace, uid).await
}

/// Creates or changes the Secret if it is not up to date. `cached` is the Secret as a cache shows it, which lags behind: where the
/// API server refuses a write because of that, such as a second one right after the Secret was created, the Secret is read and
/// planned once more.
async fn store_in(
    api: &Api<Secret>,
    cached: Option<&Secret>,
    desired: &DesiredSecret,
    namespace: &str,
    uid: &str,
) -> Result<(), String> {
    let name = name(uid);
    let refused = match write(api, plan(cached, desired, namespace, uid), &name).await {
        Err(StoreError::Kubernetes(error)) if is_behind(&error, &name) => error,
        written => return written.map_err(|error| error.explain(namespace, uid)),
    };
    tracing::debug!(secret = name, error = %errors::explain(&refused), "the cache is behind; reads the Secret");
    let live = api.get_opt(&name).await.map_err(|error| errors::explain(&error))?;
    let written = write(api, plan(live.as_ref(), desired, namespace, uid), &name).await;
    written.map_err(|error| error.explain(namespace, uid))
}

/// Sends the write of a plan, if there is one.
async fn write(api: &Api<Secret>, op: SecretOp, name: &str) -> Result<(), StoreError> {
    match op {
        SecretOp::Nothing => return Ok(()),
        SecretOp::Foreign => return Err(StoreError::Foreign),
        SecretOp::Create(secret) => api.create(&PostParams::default(), &secret).await?,
        SecretOp::Patch(patch) => api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?,
    };
    Ok(())
}

/// Whether a write was refused because the Secret is not as the cache shows it: it exists, was changed, or is gone.
fn is_behind(error: &kube::Error, name: &str) -> bool {
    errors::is_already_exists(error) || errors::is_conflict(error) || errors::is_object_gone(error, name)
}

/// Why the Secret was not stored.
#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error("a Secret of that name was not made by the konnector")]
    Foreign,
    #[error(transparent)]
    Kubernetes(#[from] kube::Error),
}

// === impl StoreError ===

impl StoreError {
    /// What is wrong with which Secret, and what mends it.
    fn explain(&self, namespace: &str, uid: &str) -> String {
        match self {
            Self::Foreign => format!(
                "Secret {namespace}/{} was not made by the konnector; delete it, or label it {}={uid}",
                name(uid),
                labels::CONTRACT_UID
            ),
            Self::Kubernetes(error) => errors::explain(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::session::kubeconfigs;

    const UID: &str = "0b1f";

    fn wanted(origins: &[&str], issued: Option<i64>) -> DesiredSecret {
        DesiredSecret {
            document: issued.map(|issued| {
                let document = kubeconfigs::document("x", issued, 3600);
                (Fingerprint::of([document.as_bytes()]), document.into_bytes().into())
            }),
            origins: origins
                .iter()
                .map(|origin| ((*origin).into(), Fingerprint::of([origin.as_bytes()])))
                .collect(),
        }
    }

    fn created(desired: &DesiredSecret) -> Secret {
        match plan(None, desired, "kube-bind", UID) {
            SecretOp::Create(secret) => *secret,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_secret_is_created_once_and_then_unchanged() {
        assert_eq!(plan(None, &wanted(&["a"], None), "kube-bind", UID), SecretOp::Nothing);
        let first = wanted(&["a"], Some(1000));
        let secret = created(&first);
        assert_eq!(plan(Some(&secret), &first, "kube-bind", UID), SecretOp::Nothing);
        let stored = read(&secret, UID).unwrap();
        assert!(stored.origins.contains(Fingerprint::of([b"a".as_slice()]).as_str()));
        assert!(read(&secret, "another").is_none());
    }

    #[test]
    fn new_credentials_and_origins_are_added() {
        let secret = created(&wanted(&["a"], Some(1000)));
        let SecretOp::Patch(patch) = plan(Some(&secret), &wanted(&["a"], Some(2000)), "kube-bind", UID) else {
            panic!("no patch");
        };
        assert!(patch["data"].is_object() && patch["metadata"]["annotations"].is_null());
        let SecretOp::Patch(patch) = plan(Some(&secret), &wanted(&["b"], None), "kube-bind", UID) else {
            panic!("no patch");
        };
        assert!(patch["data"].is_null());
        let origins = patch["metadata"]["annotations"][ORIGINS].as_str().unwrap();
        assert_eq!(origins.split(',').count(), 2);
    }

    #[test]
    fn without_an_origin_no_secret_is_created() {
        assert_eq!(
            plan(None, &wanted(&[], Some(1000)), "kube-bind", UID),
            SecretOp::Nothing
        );
    }

    #[test]
    fn the_origins_of_bindings_outlive_all_others() {
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
    fn a_foreign_secret_is_not_changed() {
        let mut secret = created(&wanted(&["a"], Some(1000)));
        secret.metadata.labels = None;
        assert_eq!(
            plan(Some(&secret), &wanted(&["a"], Some(2000)), "kube-bind", UID),
            SecretOp::Foreign
        );
        assert_eq!(
            plan(Some(&secret), &wanted(&["b"], None), "kube-bind", UID),
            SecretOp::Nothing
        );
    }

    /// An API server that holds at most one Secret, and the methods of the requests that it got.
    #[derive(Clone, Default)]
    struct OneSecret {
        live: Arc<Mutex<Option<Value>>>,
        requests: Arc<Mutex<Vec<Method>>>,
    }

    impl OneSecret {
        fn holding(secret: Option<&Secret>) -> Self {
            let server = Self::default();
            *server.live.lock() = secret.map(|secret| serde_json::to_value(secret).unwrap());
            server
        }

        fn api(&self) -> Api<Secret> {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let bytes = body.collect_bytes().await.unwrap();
                    let body = serde_json::from_slice(&bytes).unwrap_or_default();
                    let (code, answer) = server.answer(parts.method, body);
                    let answer = Body::from(answer.to_string().into_bytes());
                    Response::builder().status(code).body(answer)
                }
            });
            Api::namespaced(kube::Client::new(service, "default"), "kube-bind")
        }

        fn answer(&self, method: Method, body: Value) -> (u16, Value) {
            self.requests.lock().push(method.clone());
            let mut live = self.live.lock();
            let refusal = |code: u16, reason: &str| {
                let details = json!({"kind": "secrets", "name": name(UID)});
                let message = format!("secrets {:?}: {reason}", name(UID));
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "reason": reason, "message": message, "details": details});
                (code, status)
            };
            match (method, live.clone()) {
                (Method::GET, Some(secret)) => (200, secret),
                (Method::POST, Some(_)) => refusal(409, "AlreadyExists"),
                (Method::POST, None) => {
                    *live = Some(body.clone());
                    (201, body)
                }
                (_, None) => refusal(404, "NotFound"),
                (_, Some(secret)) if body["metadata"]["resourceVersion"] != secret["metadata"]["resourceVersion"] => {
                    refusal(409, "Conflict")
                }
                (_, Some(mut changed)) => {
                    changed["data"] = body["data"].clone();
                    *live = Some(changed.clone());
                    (200, changed)
                }
            }
        }

        /// Stores a credential of this time while the cache shows this Secret, with these requests.
        async fn check(&self, cached: Option<&Secret>, issued: i64, requests: &[Method], expect: Result<(), &str>) {
            let desired = wanted(&["a"], Some(issued));
            let stored = store_in(&self.api(), cached, &desired, "kube-bind", UID).await;
            match (&stored, expect) {
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (stored, expect) => assert_eq!(stored.is_ok(), expect.is_ok(), "{stored:?}"),
            }
            assert_eq!(std::mem::take(&mut *self.requests.lock()), requests);
            if expect.is_ok() {
                let live: Secret = serde_json::from_value(self.live.lock().clone().unwrap()).unwrap();
                let document = desired.document.as_ref().unwrap().1.expose_secret();
                assert_eq!(live.data.unwrap()[names::KUBECONFIG_KEY].0, document);
            }
        }
    }

    fn at_version(mut secret: Secret, version: &str) -> Secret {
        secret.metadata.resource_version = Some(version.to_owned());
        secret
    }

    /// A second credential often comes before the cache shows the Secret that the first one created.
    #[tokio::test]
    async fn a_secret_that_the_cache_does_not_show_yet_is_read_and_written() {
        let first = at_version(created(&wanted(&["a"], Some(1000))), "1");
        let later = at_version(created(&wanted(&["a"], Some(1000))), "2");
        let get_first = [Method::POST, Method::GET, Method::PATCH];
        OneSecret::holding(None)
            .check(None, 1000, &[Method::POST], Ok(()))
            .await;
        OneSecret::holding(Some(&first))
            .check(None, 2000, &get_first, Ok(()))
            .await;
        OneSecret::holding(Some(&first))
            .check(None, 1000, &get_first[..2], Ok(()))
            .await;
        let get_again = [Method::PATCH, Method::GET, Method::PATCH];
        OneSecret::holding(Some(&later))
            .check(Some(&first), 2000, &get_again, Ok(()))
            .await;
        let make_again = [Method::PATCH, Method::GET, Method::POST];
        OneSecret::holding(None)
            .check(Some(&first), 2000, &make_again, Ok(()))
            .await;
    }

    #[tokio::test]
    async fn a_foreign_secret_that_the_cache_does_not_show_yet_is_named() {
        let mut foreign = at_version(created(&wanted(&["a"], Some(1000))), "1");
        foreign.metadata.labels = None;
        let requests = [Method::POST, Method::GET];
        OneSecret::holding(Some(&foreign))
            .check(None, 2000, &requests, Err("was not made by the konnector"))
            .await;
    }
}
