//! Service-account tokens signed with the control plane's own key: TokenRequest gives none that lives for less than ten
//! minutes.

use std::{fmt, time::Duration};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PublicKeyData};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// How long the API server accepts a token beyond its `exp`.
pub const LEEWAY: Duration = Duration::from_mins(1);

/// The claims of a service-account token.
#[derive(Clone, Debug)]
pub struct ServiceAccountClaims {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub name: String,
    /// UID of the ServiceAccount; the API server refuses a token with another.
    pub uid: String,
    /// The audiences; none means the API server.
    pub audiences: Vec<String>,
    /// The claims `iat` and `nbf`.
    pub issued_at: Timestamp,
    /// The claim `exp`.
    pub expires_at: Timestamp,
    /// Name and UID of the Secret that the token is bound to: the token is void without it.
    pub secret: Option<(String, String)>,
}

/// The key that the API server signs and verifies service-account tokens with.
pub(super) struct SigningKey {
    pair: KeyPair,
}

impl ServiceAccountClaims {
    /// A token for the API server that says it expires in `lifetime`. It is accepted for [`LEEWAY`] longer.
    pub fn new(namespace: &str, name: &str, uid: &str, lifetime: Duration) -> Self {
        let now = Timestamp::now();
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            audiences: Vec::new(),
            issued_at: now,
            expires_at: now + lifetime,
            secret: None,
        }
    }

    /// Sets the audiences.
    #[must_use]
    pub fn audiences(mut self, audiences: &[&str]) -> Self {
        self.audiences = audiences.iter().map(|audience| (*audience).to_owned()).collect();
        self
    }

    /// Binds the token to a Secret, without which it is void.
    #[must_use]
    pub fn bound_to(mut self, secret: &str, uid: &str) -> Self {
        self.secret = Some((secret.to_owned(), uid.to_owned()));
        self
    }

    /// Moves the whole lifetime into the past by [`LEEWAY`], so that the API server refuses the token after the
    /// lifetime it was made with. One it has just seen it still accepts for up to ten seconds.
    #[must_use]
    pub fn without_leeway(mut self) -> Self {
        self.issued_at -= LEEWAY;
        self.expires_at -= LEEWAY;
        self
    }

    fn to_value(&self, issuer: &str) -> Value {
        let audiences = if self.audiences.is_empty() {
            vec![issuer.to_owned()]
        } else {
            self.audiences.clone()
        };
        let mut kubernetes = json!({
            "namespace": self.namespace,
            "serviceaccount": { "name": self.name, "uid": self.uid },
        });
        if let Some((name, uid)) = &self.secret {
            kubernetes["secret"] = json!({ "name": name, "uid": uid });
        }
        json!({
            "iss": issuer,
            "sub": format!("system:serviceaccount:{}:{}", self.namespace, self.name),
            "aud": audiences,
            "iat": self.issued_at.as_second(),
            "nbf": self.issued_at.as_second(),
            "exp": self.expires_at.as_second(),
            "kubernetes.io": kubernetes,
        })
    }
}

impl SigningKey {
    pub(super) fn generate() -> Result<Self> {
        Ok(Self {
            pair: KeyPair::generate()?,
        })
    }

    pub(super) fn public_pem(&self) -> String {
        self.pair.public_key_pem()
    }

    pub(super) fn private_pem(&self) -> String {
        self.pair.serialize_pem()
    }

    /// Signs a token as the API server with this issuer does.
    pub(super) fn sign(&self, claims: &ServiceAccountClaims, issuer: &str) -> Result<String> {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(URL_SAFE_NO_PAD.encode(Sha256::digest(self.pair.subject_public_key_info())));
        let key = EncodingKey::from_ec_der(self.pair.serialized_der());
        jsonwebtoken::encode(&header, &claims.to_value(issuer), &key).context("cannot sign a token")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}
