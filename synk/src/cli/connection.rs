//! Connects to the cluster: by the kubeconfig, with flags that override it.

use std::{fs, path::Path};

use bindery_runtime::client::{self, ClientError, Clients, RateLimit, RequestLimits};
use kube::{
    Config,
    config::{AuthInfo, KubeConfigOptions},
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{
    args::{ConnectionArgs, Qps},
    errors::Failure,
};

/// Greatest number of idle connections that are kept.
const IDLE_MAX: usize = 64;

/// A cluster, and the namespace of its context.
pub(super) struct Connection {
    pub(super) clients: Clients,
    pub(super) namespace: String,
    /// Address of the API server, for messages.
    pub(super) server: String,
}

impl Connection {
    /// Sets up the connection without sending a request.
    pub(super) async fn open(args: &ConnectionArgs, qps: Qps) -> Result<Self, Failure> {
        let config = overridden(config(args).await?, args)?;
        let limits = RequestLimits {
            request_timeout: args.request_timeout,
            rate: qps.0.map(RateLimit::per_second),
        };
        Ok(Self {
            clients: Clients::limited(&config, IDLE_MAX, &limits)?,
            server: address(&config.cluster_url),
            namespace: config.default_namespace,
        })
    }
}

/// Returns the address without its path, and without user and password, which may precede the host.
fn address(url: &http::Uri) -> String {
    let host = url.host().unwrap_or_default();
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    format!("{}://{host}{port}", url.scheme_str().unwrap_or("https"))
}

async fn config(args: &ConnectionArgs) -> Result<Config, ClientError> {
    let options = KubeConfigOptions {
        context: args.context.clone(),
        cluster: args.cluster.clone(),
        user: args.user.clone(),
    };
    let is_named = args.kubeconfig.is_some() || args.context.is_some() || args.cluster.is_some() || args.user.is_some();
    match (
        client::config_with(args.kubeconfig.as_deref(), &options).await,
        &args.server,
    ) {
        // An address is enough to connect.
        (Err(ClientError::Infer(_)), Some(server)) if !is_named => Ok(Config::new(server.clone())),
        (config, _) => config,
    }
}

/// Overrides the kubeconfig by flags.
fn overridden(mut config: Config, args: &ConnectionArgs) -> Result<Config, Failure> {
    if let Some(server) = &args.server {
        config.cluster_url = server.clone();
    }
    if let Some(path) = &args.certificate_authority {
        config.root_cert = Some(certificates(path)?);
        config.root_cert_file = None;
        config.accept_invalid_certs = false;
    }
    if args.insecure_skip_tls_verify {
        config.root_cert = None;
        config.root_cert_file = None;
        config.accept_invalid_certs = true;
    }
    if let Some(name) = &args.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    override_user(&mut config.auth_info, args);
    Ok(config)
}

fn override_user(user: &mut AuthInfo, args: &ConnectionArgs) {
    // If a flag gives other credentials, all credentials of the kubeconfig's user are dropped.
    let login = match (&args.token, &args.client_certificate, &args.client_key) {
        (Some(token), ..) => Some(AuthInfo {
            token: Some(token.clone()),
            ..AuthInfo::default()
        }),
        (None, Some(certificate), Some(key)) => Some(AuthInfo {
            client_certificate: Some(certificate.display().to_string()),
            client_key: Some(key.display().to_string()),
            ..AuthInfo::default()
        }),
        _ => None,
    };
    if let Some(login) = login {
        *user = AuthInfo {
            impersonate: user.impersonate.take(),
            impersonate_uid: user.impersonate_uid.take(),
            impersonate_groups: user.impersonate_groups.take(),
            impersonate_user_extra: user.impersonate_user_extra.take(),
            ..login
        };
    }
    if args.act_as.is_some() {
        user.impersonate.clone_from(&args.act_as);
    }
    if args.as_uid.is_some() {
        user.impersonate_uid.clone_from(&args.as_uid);
    }
    if !args.as_groups.is_empty() {
        user.impersonate_groups = Some(args.as_groups.clone());
    }
}

fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let unusable = |problem: String| Failure::Credential {
        path: path.to_owned(),
        problem,
    };
    let text = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text)
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(unusable("it holds no certificate in PEM".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn args() -> ConnectionArgs {
        ConnectionArgs::default()
    }

    fn kubeconfig() -> Config {
        let mut config = Config::new("https://a.example.com".parse().unwrap());
        config.auth_info.client_certificate_data = Some("c".to_owned());
        config.auth_info.impersonate = Some("ann".to_owned());
        config.root_cert = Some(vec![vec![1]]);
        config
    }

    #[test]
    fn a_token_takes_the_place_of_all_other_credentials() {
        let given = ConnectionArgs {
            token: Some("t".into()),
            as_groups: vec!["admins".to_owned()],
            ..args()
        };
        let user = overridden(kubeconfig(), &given).unwrap().auth_info;
        assert_eq!(user.token.as_ref().map(ExposeSecret::expose_secret), Some("t"));
        assert_eq!(user.client_certificate_data, None);
        assert_eq!(
            user.impersonate.as_deref(),
            Some("ann"),
            "who is meant is another question"
        );
        assert_eq!(user.impersonate_groups, Some(vec!["admins".to_owned()]));
    }

    #[test]
    fn what_is_not_said_stays() {
        let config = overridden(kubeconfig(), &args()).unwrap();
        assert_eq!(config.cluster_url, "https://a.example.com");
        assert_eq!(config.auth_info.client_certificate_data.as_deref(), Some("c"));
        assert!(config.root_cert.is_some() && !config.accept_invalid_certs);
    }

    #[test]
    fn another_server_may_be_trusted_blindly_if_that_is_said() {
        let given = ConnectionArgs {
            server: Some("https://b.example.com".parse().unwrap()),
            insecure_skip_tls_verify: true,
            ..args()
        };
        let config = overridden(kubeconfig(), &given).unwrap();
        assert_eq!(config.cluster_url, "https://b.example.com");
        assert!(config.root_cert.is_none() && config.accept_invalid_certs);
    }

    #[test]
    fn an_address_tells_no_password() {
        for (url, expect) in [
            ("https://127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("https://ann:secret@a.example.com/clusters/one", "https://a.example.com"),
            ("http://[::1]:8001/", "http://[::1]:8001"),
        ] {
            assert_eq!(address(&url.parse().unwrap()), expect, "{url}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let given = ConnectionArgs {
            certificate_authority: Some("Cargo.toml".into()),
            ..args()
        };
        let refusal = overridden(kubeconfig(), &given).unwrap_err().to_string();
        assert_eq!(refusal, "cannot use Cargo.toml: it holds no certificate in PEM");
    }
}
