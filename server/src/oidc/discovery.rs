//! The discovery document of an issuer (OpenID Connect Discovery 1.0).
//!
//! It is read here and not by the crate `openidconnect`, which wants the endpoints of a login: issuers that only sign, such as
//! an API server for its ServiceAccounts, have none.

use http::Uri;
use serde::Deserialize;

use super::{
    fetch::{Fetch, FetchError},
    keys::{KeySet, KeySetError},
};

const PATH: &str = "/.well-known/openid-configuration";

/// Why the keys of an issuer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the discovery document at {url} cannot be read: {cause}")]
    Document { url: Uri, cause: String },
    #[error(
        "the discovery document at {url} is of issuer {found:?}; the configuration must name that, or another discoveryURL"
    )]
    OtherIssuer { url: Uri, found: String },
    #[error("jwks_uri {found:?} of {url} is not an https URL")]
    KeysUrl { url: Uri, found: String },
    #[error("the answer of {url} {source}")]
    Keys { url: Uri, source: KeySetError },
}

/// What a client that logs in can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) authorization: bool,
    pub(super) device: bool,
}

/// What an issuer says of itself, with its keys.
#[derive(Debug)]
pub(super) struct Discovered {
    pub(super) keys: KeySet,
    pub(super) endpoints: Endpoints,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
    authorization_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
}

/// Where the discovery document of an issuer is, unless the configuration says another place.
pub(super) fn url(issuer: &str) -> String {
    format!("{}{PATH}", issuer.trim_end_matches('/'))
}

/// Reads the discovery document at `url`, which must be that of `issuer`, and the keys that it names.
pub(super) async fn discover(fetch: &dyn Fetch, issuer: &str, url: &Uri) -> Result<Discovered, DiscoveryError> {
    let text = fetch.get(url.clone()).await?;
    let document: Document = serde_json::from_slice(&text).map_err(|error| DiscoveryError::Document {
        url: url.clone(),
        cause: error.to_string(),
    })?;
    if document.issuer != issuer {
        return Err(DiscoveryError::OtherIssuer {
            url: url.clone(),
            found: document.issuer,
        });
    }
    let keys_url = document.jwks_uri.parse::<Uri>().ok();
    let keys_url = keys_url.filter(|url| url.scheme_str() == Some("https") && url.host().is_some());
    let Some(keys_url) = keys_url else {
        return Err(DiscoveryError::KeysUrl {
            url: url.clone(),
            found: document.jwks_uri,
        });
    };
    let keys = KeySet::parse(&fetch.get(keys_url.clone()).await?);
    Ok(Discovered {
        keys: keys.map_err(|source| DiscoveryError::Keys { url: keys_url, source })?,
        endpoints: Endpoints {
            authorization: document.authorization_endpoint.is_some(),
            device: document.device_authorization_endpoint.is_some(),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::oidc::tests_support::{FakeIssuer, ISSUER, SigningKey};

    #[track_caller]
    fn check(document: &str, keys: &str, reason: &str) {
        let fake = FakeIssuer::default();
        fake.serve(&url(ISSUER), document);
        fake.serve("https://keys.example.com/keys", keys);
        let url: Uri = url(ISSUER).parse().expect("a URL");
        let found = futures::executor::block_on(discover(&fake, ISSUER, &url));
        let error = found.expect_err("an error").to_string();
        assert!(error.contains(reason), "{error}");
    }

    fn document(change: impl FnOnce(&mut Value)) -> String {
        let mut document = json!({"issuer": ISSUER, "jwks_uri": "https://keys.example.com/keys"});
        change(&mut document);
        document.to_string()
    }

    #[test]
    fn a_document_that_is_not_the_issuer_s_is_refused() {
        let good = document(|_| {});
        check(&good[..good.len() - 3], "", "cannot be read");
        check("[]", "", "cannot be read");
        check(
            &document(|it| it["issuer"] = json!("https://other.example.com")),
            "",
            "other.example.com",
        );
        check(
            &document(|it| it["issuer"] = json!(format!("{ISSUER}/"))),
            "",
            "is of issuer",
        );
        check(
            &document(|it| it["jwks_uri"] = json!("http://keys.example.com")),
            "",
            "not an https URL",
        );
        check(&document(|it| it["jwks_uri"] = json!("/keys")), "", "not an https URL");
        check(&good, r#"{"keys": [{"kty""#, "is no JWK set");
        check(&good, r#"{"keys": []}"#, "holds no public key");
    }

    #[test]
    fn an_issuer_without_login_is_an_issuer_too() {
        let fake = FakeIssuer::default();
        fake.publish(&[&SigningKey::ec("e")]);
        let url: Uri = url(ISSUER).parse().expect("a URL");
        let found = futures::executor::block_on(discover(&fake, ISSUER, &url)).expect("a document");
        assert_eq!(
            found.endpoints,
            Endpoints {
                authorization: true,
                device: true
            }
        );
        let plain = document(|it| it["jwks_uri"] = json!(format!("{ISSUER}/keys")));
        fake.serve(&url.to_string(), &plain);
        let found = futures::executor::block_on(discover(&fake, ISSUER, &url)).expect("a document");
        assert_eq!(
            found.endpoints,
            Endpoints {
                authorization: false,
                device: false
            }
        );
    }
}
