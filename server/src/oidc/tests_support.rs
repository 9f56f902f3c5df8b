//! An issuer for unit tests: real keys and tokens, and documents served without a network.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{StatusCode, Uri};
use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Duration;

use super::{
    discovery,
    fetch::{Fetch, FetchError},
};

pub(crate) const ISSUER: &str = "https://issuer.example.com";

/// A key that signs tokens.
pub(crate) struct SigningKey {
    id: String,
    algorithm: Algorithm,
    key: EncodingKey,
    public: Option<Value>,
}

impl SigningKey {
    pub(crate) fn rsa(id: &str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).expect("a key");
        let pem = EncodingKey::from_rsa_pem(pair.serialize_pem().as_bytes()).expect("a key");
        Self::new(id, Algorithm::RS256, pem)
    }

    pub(crate) fn ec(id: &str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
        let pem = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("a key");
        Self::new(id, Algorithm::ES256, pem)
    }

    pub(crate) fn ed(id: &str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let pem = EncodingKey::from_ed_pem(pair.serialize_pem().as_bytes()).expect("a key");
        // jsonwebtoken reads the public key of no private key that has it beside it (RFC 5958), as this one has.
        let public = URL_SAFE_NO_PAD.encode(pair.public_key_raw());
        Self {
            public: Some(json!({"kty": "OKP", "crv": "Ed25519", "x": public, "kid": id})),
            ..Self::new(id, Algorithm::EdDSA, pem)
        }
    }

    fn new(id: &str, algorithm: Algorithm, key: EncodingKey) -> Self {
        let id = id.to_owned();
        Self {
            id,
            algorithm,
            key,
            public: None,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The public key, as an issuer publishes it.
    pub(crate) fn jwk(&self) -> Value {
        if let Some(public) = &self.public {
            return public.clone();
        }
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).expect("a key");
        jwk.common.key_id = Some(self.id.clone());
        jwk.common.key_algorithm = None;
        serde_json::to_value(jwk).expect("JSON")
    }

    pub(crate) fn sign_as(&self, algorithm: Algorithm, message: &str) -> String {
        jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, algorithm).expect("a signature")
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(|_| {}, claims)
    }

    pub(crate) fn token_with(&self, change: impl FnOnce(&mut Header), claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.clone());
        change(&mut header);
        jsonwebtoken::encode(&header, claims, &self.key).expect("a token")
    }
}

/// The claims of a good token of [`ISSUER`], for client `bindery`, with changes; null removes a claim.
pub(crate) fn claims(changes: &Value) -> Value {
    let now = jiff::Timestamp::now().as_second();
    let mut claims = json!({
        "iss": ISSUER, "sub": "1234", "aud": "bindery", "iat": now, "exp": now + 600,
        "email": "jane@example.com", "groups": ["team-a", "team-b"],
    });
    let fields = claims.as_object_mut().expect("claims");
    fields.extend(changes.as_object().expect("changes").clone());
    fields.retain(|_, value| !value.is_null());
    claims
}

/// Answers requests from memory, and counts them.
#[derive(Debug, Default)]
pub(crate) struct FakeIssuer(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    documents: HashMap<String, String>,
    requests: usize,
    is_down: bool,
    delay: Duration,
}

impl FakeIssuer {
    /// Serves a document at a URL.
    pub(crate) fn serve(&self, url: &str, document: &str) {
        self.0.lock().documents.insert(url.to_owned(), document.to_owned());
    }

    /// Serves [`ISSUER`] with these keys.
    pub(crate) fn publish(&self, keys: &[&SigningKey]) {
        let document = json!({
            "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys"),
            "authorization_endpoint": format!("{ISSUER}/auth"),
            "device_authorization_endpoint": format!("{ISSUER}/device"),
        });
        self.serve(&discovery::url(ISSUER), &document.to_string());
        let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
        self.serve(&format!("{ISSUER}/keys"), &json!({"keys": keys}).to_string());
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.0.lock().is_down = is_down;
    }

    /// Answers each request after this time only.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.0.lock().delay = delay;
    }

    /// How many requests were made.
    pub(crate) fn requests(&self) -> usize {
        self.0.lock().requests
    }
}

impl Fetch for FakeIssuer {
    fn get(&self, url: Uri) -> BoxFuture<'_, Result<Bytes, FetchError>> {
        Box::pin(async move {
            let (answer, delay) = {
                let mut state = self.0.lock();
                state.requests += 1;
                let document = state.documents.get(&url.to_string()).filter(|_| !state.is_down);
                (document.cloned(), state.delay)
            };
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let status = StatusCode::SERVICE_UNAVAILABLE;
            answer.map(Bytes::from).ok_or(FetchError::Status { url, status })
        })
    }
}
