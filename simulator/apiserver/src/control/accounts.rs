//! The controllers of ServiceAccounts, root CAs and token Secrets.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Control;
use crate::{ApiServer, Chore, ObjectKey, handle::Call, handle::DeleteOptions, meta, store::Store, strategy};

const ROOT_CA: &str = "kube-root-ca.crt";
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const CA: &str = "-----BEGIN CERTIFICATE-----\nsimulated\n-----END CERTIFICATE-----\n";

fn has(store: &Store, resource: &str, namespace: &str, name: &str) -> bool {
    store.get(&ObjectKey::new("", resource, namespace, name)).is_some()
}

/// The ServiceAccount that a token Secret names.
fn account<'a>(store: &'a Store, secret: &Value) -> Option<&'a Value> {
    let name = meta::annotation(secret, ACCOUNT_NAME).unwrap_or_default();
    let key = ObjectKey::new("", "serviceaccounts", meta::namespace(secret), name);
    let account = &*store.get(&key)?.value;
    let uid = meta::annotation(secret, ACCOUNT_UID);
    uid.is_none_or(|uid| uid == meta::uid(account)).then_some(account)
}

impl Control {
    /// Decides anew what a namespace lacks.
    pub(super) fn enqueue_accounts(&mut self, store: &Store, namespace: &str) {
        let stored = store.get(&ObjectKey::new("", "namespaces", "", namespace));
        let is_active = stored.is_some_and(|stored| !meta::is_deleting(&stored.value));
        let account = is_active && !has(store, "serviceaccounts", namespace, "default");
        self.set(Chore::DefaultServiceAccount(namespace.to_owned()), account);
        let ca = is_active && !has(store, "configmaps", namespace, ROOT_CA);
        self.set(Chore::RootCa(namespace.to_owned()), ca);
    }

    /// Decides anew if a token Secret lacks its token or its ServiceAccount.
    pub(super) fn enqueue_token_secret(&mut self, store: &Store, key: &ObjectKey) {
        let secret = store.get(key).map(|stored| &stored.value);
        let secret = secret.filter(|secret| secret["type"] == TOKEN_TYPE && !meta::is_deleting(secret));
        let is_due = secret.is_some_and(|secret| {
            let token = secret.pointer("/data/token").is_some();
            account(store, secret).is_none() || !token
        });
        self.set(Chore::TokenSecret(key.clone()), is_due);
    }

    /// Decides anew about the token Secrets in the namespace of a ServiceAccount.
    pub(super) fn enqueue_token_secrets_of(&mut self, store: &Store, key: &ObjectKey) {
        let of = store.of("", "secrets", Some(&key.namespace));
        let tokens = of.filter(|(_, stored)| stored.value["type"] == TOKEN_TYPE);
        let keys: Vec<ObjectKey> = tokens.map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.enqueue_token_secret(store, key);
        }
    }
}

fn create(server: &mut ApiServer, now: Timestamp, controller: &'static str, resource: &str, mut object: Value) {
    let Some(endpoint) = server.endpoints.get("", "v1", resource).cloned() else {
        return;
    };
    let call = Call::of_controller(
        controller,
        now,
        &endpoint,
        meta::namespace(&object),
        meta::name(&object),
    );
    strategy::normalize(&endpoint, &mut object);
    // The chore stays due, and is tried again.
    let _ = server.insert(&call, &endpoint, object, false, true);
}

pub(super) fn default_account(server: &mut ApiServer, now: Timestamp, namespace: &str) {
    let account = json!({"metadata": {"name": "default", "namespace": namespace}});
    create(server, now, "service-account-controller", "serviceaccounts", account);
}

pub(super) fn root_ca(server: &mut ApiServer, now: Timestamp, namespace: &str) {
    let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
                       internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes \
                       clusters.";
    let map = json!({
        "metadata": {
            "name": ROOT_CA,
            "namespace": namespace,
            "annotations": {"kubernetes.io/description": description},
        },
        "data": {"ca.crt": CA},
    });
    create(server, now, "root-ca-cert-publisher", "configmaps", map);
}

/// Fills a token Secret, or deletes it if its ServiceAccount is gone.
pub(super) fn token_secret(server: &mut ApiServer, now: Timestamp, key: &ObjectKey) {
    const NAME: &str = "tokens-controller";
    let (Some(endpoint), Some(stored)) = (
        server.endpoints.get("", "v1", "secrets").cloned(),
        server.store.get(key).cloned(),
    ) else {
        return;
    };
    let call = Call::of_controller(NAME, now, &endpoint, &key.namespace, &key.name);
    let Some(account) = account(&server.store, &stored.value).cloned() else {
        let _ = server.delete_object(&call, &endpoint, &key.name, &DeleteOptions::default());
        return;
    };
    let mut secret = Value::clone(&stored.value);
    secret["metadata"]["annotations"][ACCOUNT_UID] = meta::uid(&account).into();
    let token = server.tokens.legacy(&account, &secret);
    if !secret["data"].is_object() {
        secret["data"] = json!({});
    }
    for (field, text) in [("token", token.as_str()), ("ca.crt", CA), ("namespace", &key.namespace)] {
        secret["data"][field] = STANDARD.encode(text).into();
    }
    let _ = server.replace(&call, &endpoint, &stored, secret, false, true);
}
