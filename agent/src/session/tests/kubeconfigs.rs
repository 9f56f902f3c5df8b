//! Kubeconfigs for tests.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bindery_api::backend::Backend;
use bindery_runtime::kubeconfig::ProviderAccess;
use serde_json::json;

/// A kubeconfig with a backend, as text. Its token was issued at this time and lives this long.
pub(crate) fn document(host: &str, issued: i64, seconds: i64) -> String {
    let claims = json!({"iat": issued, "exp": issued + seconds}).to_string();
    let backend = Backend {
        address: format!("https://bind.{host}.example.com"),
        ca_data: None,
        token: "renew.e30.sign".to_owned(),
    };
    let extension = backend.to_extension();
    json!({
        "current-context": "default",
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default", "namespace": "kube-bind-x"}}],
        "clusters": [{"name": "default", "cluster": {
            "server": format!("https://{host}.example.com"),
            "extensions": [{"name": extension.name, "extension": extension.extension}],
        }}],
        "users": [{"name": "default", "user": {"token": format!("e30.{}.sign", URL_SAFE_NO_PAD.encode(claims))}}],
    })
    .to_string()
}

/// The parsed kubeconfig of [`document`].
pub(crate) fn access(host: &str, issued: i64, seconds: i64) -> Arc<ProviderAccess> {
    Arc::new(ProviderAccess::parse(document(host, issued, seconds).as_bytes()).unwrap())
}

/// A parsed kubeconfig whose connection has no token, issued at this time for an hour.
pub(crate) fn access_without_token(issued: i64) -> Arc<ProviderAccess> {
    let mut access = ProviderAccess::parse(document("x", issued, 3600).as_bytes()).unwrap();
    access.token = None;
    Arc::new(access)
}
