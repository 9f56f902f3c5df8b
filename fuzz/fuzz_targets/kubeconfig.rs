//! Any bytes are read as a provider's kubeconfig that is safe to connect with, or refused in words that repeat nothing of them. A
//! kubeconfig that is read means the same when it is printed and read again.
#![no_main]

use bindery_api::names::is_label;
use bindery_runtime::kubeconfig::{Lifetime, ProviderAccess, Refusal};
use kube::config::Kubeconfig;
use libfuzzer_sys::fuzz_target;
use secrecy::{ExposeSecret as _, SecretString};

/// A text that the seeds hold in place of secrets.
const SECRET: &str = "hunter2";
/// No refusal needs more bytes.
const MESSAGE_BYTES_MAX: usize = 400;

fuzz_target!(|bytes: &[u8]| match ProviderAccess::parse(bytes) {
    Ok(access) => {
        check_safe(&access);
        check_printed(bytes, &access);
    }
    Err(refusal) => check_refusal(&refusal),
});

fn check_safe(access: &ProviderAccess) {
    let config = &access.config;
    assert_eq!(config.cluster_url.scheme_str(), Some("https"));
    assert!(config.cluster_url.host().is_some_and(|host| !host.is_empty()));
    assert!(config.proxy_url.is_none() && !config.accept_invalid_certs);
    assert!(
        config
            .root_cert
            .as_ref()
            .is_none_or(|authorities| !authorities.is_empty())
    );
    let user = &config.auth_info;
    assert!(user.exec.is_none() && user.auth_provider.is_none() && user.impersonate.is_none());
    assert!(user.token.is_none() && user.token_file.is_none());
    assert!(user.client_certificate.is_none() && user.client_key.is_none());
    assert_eq!(user.client_certificate_data.is_some(), user.client_key_data.is_some());
    assert!(access.token.is_some() || user.client_certificate_data.is_some());
    assert!(is_label(&access.namespace), "{}", access.namespace);
    assert_eq!(config.default_namespace, *access.namespace);
    if let Some(token) = &access.token {
        check_token(token, access);
    }
}

fn check_token(token: &SecretString, access: &ProviderAccess) {
    let text = token.expose_secret();
    assert!(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()));
    // The server's URL is shown, and may contain any text.
    if text.contains(SECRET) && !access.server().contains(SECRET) {
        assert!(!format!("{access:?}").contains(SECRET), "{access:?}");
    }
    let lifetime = access.lifetime;
    assert_eq!(lifetime, Lifetime::of_token(token));
    let total = lifetime.total().unwrap_or_default();
    let times = [lifetime.issued_at, lifetime.expires_at];
    for now in times.into_iter().flatten() {
        assert!(lifetime.age(now) <= total);
    }
    assert!(!lifetime.is_newer_than(&lifetime));
}

fn check_printed(bytes: &[u8], access: &ProviderAccess) {
    let read: Kubeconfig = serde_saphyr::from_slice(bytes).expect("a kubeconfig that was read");
    let printed = serde_json::to_vec(&read).expect("a kubeconfig");
    let again = ProviderAccess::parse(&printed)
        .unwrap_or_else(|refusal| panic!("{refusal}\n{}", String::from_utf8_lossy(&printed)));
    assert_eq!(again.endpoint, access.endpoint);
    assert_eq!(again.server(), access.server());
    assert_eq!(again.namespace, access.namespace);
    assert_eq!(again.backend, access.backend);
    assert_eq!(again.lifetime, access.lifetime);
    let secret = |access: &ProviderAccess| access.token.as_ref().map(|token| token.expose_secret().to_owned());
    assert_eq!(secret(&again), secret(access));
    assert_eq!(again.fingerprint == access.fingerprint, printed == bytes);
}

fn check_refusal(refusal: &Refusal) {
    let message = refusal.to_string();
    assert!(!refusal.reason().is_empty());
    assert!(
        message.len() <= MESSAGE_BYTES_MAX && !message.contains(char::is_control),
        "{message}"
    );
    for shown in [message, format!("{refusal:?}")] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
}
