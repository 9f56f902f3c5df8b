//! Reads and judges the entries of a kubeconfig: contexts, clusters and users.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Uri;
use kube::{
    Config,
    config::{AuthInfo, Cluster, Context, Kubeconfig},
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use secrecy::{ExposeSecret as _, SecretString};

use super::{Fingerprint, Refusal};

/// Returns the current context with its cluster and user.
pub(super) fn current(kubeconfig: &Kubeconfig) -> Result<(&Context, &Cluster, &AuthInfo), Refusal> {
    let missing = |missing| Refusal::Incomplete { missing };
    let name = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| missing("current-context"))?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == name);
    let context = context.and_then(|named| named.context.as_ref());
    let context = context.ok_or_else(|| missing("context of the name in current-context"))?;
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|cluster| cluster.name == context.cluster);
    let cluster = cluster.and_then(|named| named.cluster.as_ref());
    let cluster = cluster.ok_or_else(|| missing("cluster of the name in the current context"))?;
    let user = kubeconfig
        .auth_infos
        .iter()
        .find(|user| Some(&user.name) == context.user.as_ref());
    let user = user.and_then(|named| named.auth_info.as_ref());
    let user = user.ok_or_else(|| missing("user of the name in the current context"))?;
    Ok((context, cluster, user))
}

/// Refuses a cluster that is not verified, reads files or redirects traffic.
pub(super) fn refuse_dangerous_cluster(cluster: &Cluster) -> Result<(), Refusal> {
    let dangerous = |field, danger, mend| Err(Refusal::Dangerous { field, danger, mend });
    if cluster.insecure_skip_tls_verify == Some(true) {
        return dangerous(
            "insecure-skip-tls-verify",
            "trusts whoever answers",
            "give the API server's CA in certificate-authority-data",
        );
    }
    if cluster.certificate_authority.is_some() {
        return dangerous(
            "certificate-authority",
            "reads a file",
            "give its content in certificate-authority-data",
        );
    }
    if cluster.proxy_url.is_some() {
        return dangerous(
            "proxy-url",
            "leads traffic through a host of the provider's choice",
            "remove it",
        );
    }
    Ok(())
}

/// Refuses a user that runs programs, reads files or impersonates others.
pub(super) fn refuse_dangerous_user(user: &AuthInfo) -> Result<(), Refusal> {
    const TOKEN: &str = "give a token in users[].user.token";
    let fields = [
        (user.exec.is_some(), "exec", "runs a program", TOKEN),
        (user.auth_provider.is_some(), "auth-provider", "runs a plugin", TOKEN),
        (user.token_file.is_some(), "tokenFile", "reads a file", TOKEN),
        (
            user.client_certificate.is_some(),
            "client-certificate",
            "reads a file",
            "give its content in client-certificate-data",
        ),
        (
            user.client_key.is_some(),
            "client-key",
            "reads a file",
            "give its content in client-key-data",
        ),
        (
            user.username.is_some() || user.password.is_some(),
            "username or password",
            "no API server takes any more",
            TOKEN,
        ),
        (
            user.impersonate.is_some()
                || user.impersonate_uid.is_some()
                || user.impersonate_groups.is_some()
                || user.impersonate_user_extra.is_some(),
            "impersonation (as)",
            "acts as somebody else than the contract",
            "remove it",
        ),
    ];
    match fields.into_iter().find(|(used, ..)| *used) {
        Some((_, field, danger, mend)) => Err(Refusal::Dangerous { field, danger, mend }),
        None => Ok(()),
    }
}

/// Returns the contract namespace, which the context must name.
pub(super) fn namespace(context: &Context) -> Result<&str, Refusal> {
    let name = context.namespace.as_deref().filter(|name| !name.is_empty());
    let name = name.ok_or(Refusal::NoNamespace)?;
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let valid = name.len() <= bindery_api::names::NAMESPACE_LENGTH_MAX
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if valid {
        Ok(name)
    } else {
        Err(Refusal::InvalidNamespace)
    }
}

/// Builds the configuration of a connection, without the token.
pub(super) fn connection(cluster: &Cluster, user: &AuthInfo, namespace: &str) -> Result<Config, Refusal> {
    let server = cluster.server.as_deref().filter(|server| !server.is_empty());
    let server = server.ok_or(Refusal::Incomplete {
        missing: "clusters[].cluster.server",
    })?;
    let url: Uri = server.parse().map_err(|_| Refusal::InvalidServer)?;
    match url.scheme_str() {
        Some("https") => {}
        Some("http") => {
            return Err(Refusal::Dangerous {
                field: "plain http in clusters[].cluster.server",
                danger: "sends the token to whoever listens",
                mend: "give an https:// address",
            });
        }
        _ => return Err(Refusal::InvalidServer),
    }
    let authority = url.authority().ok_or(Refusal::InvalidServer)?;
    if authority.as_str().contains('@') || url.query().is_some() {
        return Err(Refusal::InvalidServer);
    }
    let mut config = Config::new(url);
    namespace.clone_into(&mut config.default_namespace);
    config.default_retry = false;
    config.tls_server_name = cluster.tls_server_name.clone().filter(|name| !name.is_empty());
    config.root_cert = cluster
        .certificate_authority_data
        .as_deref()
        .map(authorities)
        .transpose()?;
    config.auth_info = certificate(user)?;
    Ok(config)
}

fn authorities(data: &str) -> Result<Vec<Vec<u8>>, Refusal> {
    let refusal = || Refusal::InvalidPem {
        field: "certificate-authority-data",
    };
    let pem = STANDARD.decode(data.trim()).map_err(|_| refusal())?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem)
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect();
    certificates.ok().filter(|list| !list.is_empty()).ok_or_else(refusal)
}

/// Returns the client certificate with its key, if there are both.
fn certificate(user: &AuthInfo) -> Result<AuthInfo, Refusal> {
    let (certificate, key) = match (&user.client_certificate_data, &user.client_key_data) {
        (None, None) => return Ok(AuthInfo::default()),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => {
            return Err(Refusal::Incomplete {
                missing: "client-key-data",
            });
        }
        (None, Some(_)) => {
            return Err(Refusal::Incomplete {
                missing: "client-certificate-data",
            });
        }
    };
    let invalid = |field| Refusal::InvalidPem { field };
    let pem = STANDARD
        .decode(certificate.trim())
        .map_err(|_| invalid("client-certificate-data"))?;
    if !matches!(CertificateDer::pem_slice_iter(&pem).next(), Some(Ok(_))) {
        return Err(invalid("client-certificate-data"));
    }
    let secret = key.expose_secret();
    STANDARD.decode(secret.trim()).map_err(|_| invalid("client-key-data"))?;
    Ok(AuthInfo {
        client_certificate_data: Some(certificate.clone()),
        client_key_data: Some(key.clone()),
        ..AuthInfo::default()
    })
}

/// Returns the bearer token; an empty one counts as absent.
pub(super) fn token(user: &AuthInfo) -> Result<Option<SecretString>, Refusal> {
    let Some(token) = &user.token else {
        return Ok(None);
    };
    let text = token.expose_secret();
    match text {
        "" => Ok(None),
        _ if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(token.clone())),
        _ => Err(Refusal::InvalidToken),
    }
}

/// Hashes everything that makes a different connection necessary: all but the token's value.
pub(super) fn endpoint(cluster: &Cluster, user: &AuthInfo, namespace: &str) -> Fingerprint {
    let key = user.client_key_data.as_ref().map(SecretString::expose_secret);
    let fields = [
        cluster.server.as_deref(),
        cluster.certificate_authority_data.as_deref(),
        cluster.tls_server_name.as_deref(),
        user.client_certificate_data.as_deref(),
        key,
        Some(namespace),
        user.token.is_some().then_some("token"),
    ];
    hashed(fields)
}

/// Hashes what says where the contract is, and nothing of the credential.
pub(super) fn location(cluster: &Cluster, namespace: &str) -> Fingerprint {
    hashed([
        cluster.server.as_deref(),
        cluster.certificate_authority_data.as_deref(),
        cluster.tls_server_name.as_deref(),
        Some(namespace),
    ])
}

fn hashed<const COUNT: usize>(fields: [Option<&str>; COUNT]) -> Fingerprint {
    Fingerprint::of(fields.map(|field| field.unwrap_or_default().as_bytes()))
}
