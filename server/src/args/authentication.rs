//! The flags about the people who call, and about other clusters' ServiceAccounts.

use std::path::PathBuf;

use clap::ArgAction;

use crate::oidc::source::{ConfigSource, IssuerFlags, IssuerSource};

/// Flags for one issuer, which a file replaces.
const OF_ONE_ISSUER: [&str; 7] = [
    "oidc_issuer_url",
    "oidc_client_id",
    "oidc_username_claim",
    "oidc_username_prefix",
    "oidc_groups_claim",
    "oidc_groups_prefix",
    "oidc_ca_file",
];
const SCOPE: &str = "openid";

/// Flags about the issuers of ID tokens.
#[derive(Clone, Debug, clap::Args)]
pub struct AuthenticationArgs {
    /// File of Kubernetes' kind AuthenticationConfiguration, whose issuers of ID tokens are trusted. Read again when the file
    /// changes. Without it, and without --oidc-issuer-url: tokens of ServiceAccounts of this cluster only.
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_ONE_ISSUER)]
    pub authentication_config: Option<PathBuf>,
    /// URL of the one issuer whose ID tokens are trusted, where no file is given. This flag and those below mean what they mean
    /// for kube-apiserver.
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<String>,
    /// Client id that ID tokens must be for. It is Bindery's own: one for which the API server takes tokens would let a provider
    /// of Bindery act as its users there.
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    pub oidc_client_id: Option<String>,
    /// Claim that is the username.
    #[arg(long, value_name = "CLAIM", default_value = "sub", requires = "oidc_issuer_url")]
    pub oidc_username_claim: String,
    /// What is put before the username. If not given: the issuer's URL and #, unless the claim is email; - for nothing.
    #[arg(long, value_name = "PREFIX", requires = "oidc_issuer_url")]
    pub oidc_username_prefix: Option<String>,
    /// Claim with the groups, a text or a list of texts. If not given: no groups.
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer_url")]
    pub oidc_groups_claim: Option<String>,
    /// What is put before each group.
    #[arg(long, value_name = "PREFIX", default_value = "", requires = "oidc_groups_claim")]
    pub oidc_groups_prefix: String,
    /// CAs of the issuer's certificate, PEM; the system's roots if not given. Read again when the file changes.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    pub oidc_ca_file: Option<PathBuf>,

    /// Keys of an issuer that this server cannot reach, such as a consumer cluster that signs tokens of its ServiceAccounts: a
    /// file with its JWK set, as `kubectl get --raw /openid/v1/jwks` prints it. Read again when the file changes. May be given
    /// several times.
    #[arg(long, value_name = "URL=FILE", value_parser = issuer_keys, action = ArgAction::Append)]
    pub issuer_keys: Vec<(String, PathBuf)>,
    /// Scopes that clients ask for when people log in, by comma; openid is one of them.
    #[arg(
        long,
        value_name = "SCOPES",
        value_delimiter = ',',
        default_value = "openid,profile,email,groups,offline_access",
        value_parser = scope
    )]
    pub login_scopes: Vec<String>,
}

impl AuthenticationArgs {
    /// Where the issuers are read from.
    pub fn source(&self) -> ConfigSource {
        let issuers = match (&self.authentication_config, &self.oidc_issuer_url, &self.oidc_client_id) {
            (Some(path), _, _) => IssuerSource::File(path.clone()),
            (None, Some(url), Some(client_id)) => IssuerSource::Flags(IssuerFlags {
                url: url.clone(),
                client_id: client_id.clone(),
                username_claim: self.oidc_username_claim.clone(),
                username_prefix: self.oidc_username_prefix.clone(),
                groups_claim: self.oidc_groups_claim.clone(),
                groups_prefix: self.oidc_groups_prefix.clone(),
                ca_file: self.oidc_ca_file.clone(),
            }),
            _ => IssuerSource::None,
        };
        ConfigSource {
            issuers,
            keys: self.issuer_keys.clone(),
        }
    }

    /// The scopes of logins, `openid` first.
    pub(super) fn scopes(&self) -> Vec<String> {
        let others = self.login_scopes.iter().filter(|scope| *scope != SCOPE);
        std::iter::once(SCOPE.to_owned()).chain(others.cloned()).collect()
    }
}

fn issuer_keys(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((url, file)) if url.starts_with("https://") && !file.is_empty() => Ok((url.to_owned(), file.into())),
        _ => Err("must be the issuer's URL, = and a file".to_owned()),
    }
}

fn scope(text: &str) -> Result<String, String> {
    // RFC 6749, 3.3.
    let fits = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    if text.is_empty() || !text.bytes().all(fits) {
        return Err("is no scope".to_owned());
    }
    Ok(text.to_owned())
}
