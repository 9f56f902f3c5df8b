//! Kubeconfigs for tests.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bindery_api::backend::Backend;
use serde_json::json;

use bindery_runtime::kubeconfig::ProviderAccess;

/// The document of a kubeconfig with a backend, whose token was issued then and lives that long.
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

/// The same, taken apart.
pub(crate) fn access(host: &str, issued: i64, seconds: i64) -> Arc<ProviderAccess> {
    Arc::new(ProviderAccess::parse(document(host, issued, seconds).as_bytes()).unwrap())
}

/// One whose connection has no token, as the cell of a test has none, issued then for an hour.
pub(crate) fn access_without_token(issued: i64) -> Arc<ProviderAccess> {
    let mut access = ProviderAccess::parse(document("x", issued, 3600).as_bytes()).unwrap();
    access.token = None;
    Arc::new(access)
}
