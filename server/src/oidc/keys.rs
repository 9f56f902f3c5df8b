//! The keys with which an issuer signs, as its JWK set (RFC 7517) has them.

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

/// No more keys are read of a set. Issuers have a handful.
const KEYS_MAX: usize = 100;
/// Keys that are tried for a token that does not name its key.
const KEYS_TRIED_MAX: usize = 5;

/// The algorithms that are accepted. HMAC is none of them: its secret would be the issuer's public key.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// Why a JWK set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeySetError {
    #[error("is no JWK set: {0}")]
    Json(String),
    #[error("holds {0} keys, and {KEYS_MAX} are the most that are read")]
    TooMany(usize),
    #[error("holds no public key for RS, PS, ES or EdDSA signatures")]
    Empty,
}

/// The keys of an issuer that can verify signatures.
#[derive(Debug)]
pub(super) struct KeySet(Vec<VerifyingKey>);

#[derive(Debug)]
struct VerifyingKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// The outcome of a look for the key that verifies a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signature {
    /// A key verifies it.
    Valid,
    /// The keys that the token may be signed with do not verify it.
    Wrong,
    /// The set has no key with the token's `kid`, or none for its algorithm.
    KeyUnknown,
}

/// The accepted algorithm of that name.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    ALGORITHMS
        .into_iter()
        .find_map(|(known, algorithm)| (known == name).then_some(algorithm))
}

/// The names of the accepted algorithms, for messages.
pub(super) fn algorithm_names() -> String {
    ALGORITHMS.map(|(name, _)| name).join(", ")
}

impl KeySet {
    /// Reads a JWK set. Keys of other kinds and for other uses are left out, as RFC 7517 demands.
    pub(super) fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let document: Document = serde_json::from_slice(json).map_err(|error| KeySetError::Json(error.to_string()))?;
        if document.keys.len() > KEYS_MAX {
            return Err(KeySetError::TooMany(document.keys.len()));
        }
        let keys: Vec<_> = document.keys.into_iter().filter_map(VerifyingKey::read).collect();
        if keys.is_empty() {
            return Err(KeySetError::Empty);
        }
        Ok(Self(keys))
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Looks for the key that verifies the signature of `message`.
    pub(super) fn verify(&self, id: Option<&str>, algorithm: Algorithm, message: &str, signature: &str) -> Signature {
        let candidates = self.0.iter().filter(|key| {
            let is_meant = id.is_none() || key.id.as_deref() == id;
            is_meant && key.algorithms.contains(&algorithm)
        });
        let mut outcome = Signature::KeyUnknown;
        for candidate in candidates.take(KEYS_TRIED_MAX) {
            let verified = jsonwebtoken::crypto::verify(signature, message.as_bytes(), &candidate.key, algorithm);
            if matches!(verified, Ok(true)) {
                return Signature::Valid;
            }
            outcome = Signature::Wrong;
        }
        outcome
    }
}

impl VerifyingKey {
    fn read(json: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(json).ok()?;
        let is_for_signatures = match (&jwk.common.public_key_use, &jwk.common.key_operations) {
            (Some(usage), _) => *usage == PublicKeyUse::Signature,
            (None, Some(operations)) => operations.contains(&KeyOperations::Verify),
            (None, None) => true,
        };
        let mut algorithms: Vec<_> = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => ALGORITHMS[..6].iter().map(|(_, algorithm)| *algorithm).collect(),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => vec![Algorithm::ES256],
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => vec![Algorithm::ES384],
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => vec![Algorithm::EdDSA],
            _ => return None,
        };
        if let Some(only) = jwk.common.key_algorithm {
            algorithms.retain(|algorithm| only == (*algorithm).into());
        }
        if !is_for_signatures || algorithms.is_empty() {
            return None;
        }
        Some(Self {
            key: DecodingKey::from_jwk(&jwk).ok()?,
            id: jwk.common.key_id,
            algorithms,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oidc::tests_support::SigningKey;

    fn set(keys: &[Value]) -> Result<KeySet, KeySetError> {
        KeySet::parse(json!({"keys": keys}).to_string().as_bytes())
    }

    #[test]
    fn each_kind_of_key_verifies_its_own_algorithms_only() {
        let (rsa, ec, ed) = (SigningKey::rsa("r"), SigningKey::ec("e"), SigningKey::ed("d"));
        let keys = set(&[rsa.jwk(), ec.jwk(), ed.jwk()]).expect("keys");
        assert_eq!(keys.len(), 3);
        for (key, algorithm) in [
            (&rsa, Algorithm::RS256),
            (&rsa, Algorithm::PS384),
            (&ec, Algorithm::ES256),
            (&ed, Algorithm::EdDSA),
        ] {
            let signature = key.sign_as(algorithm, "message");
            let verify = |id, message: &str| keys.verify(id, algorithm, message, &signature);
            assert_eq!(verify(Some(key.id()), "message"), Signature::Valid, "{algorithm:?}");
            assert_eq!(verify(None, "message"), Signature::Valid);
            assert_eq!(verify(Some(key.id()), "other"), Signature::Wrong);
            assert_eq!(verify(Some("x"), "message"), Signature::KeyUnknown);
        }
        let signature = ec.sign_as(Algorithm::ES256, "message");
        assert_eq!(
            keys.verify(Some("r"), Algorithm::ES256, "message", &signature),
            Signature::KeyUnknown
        );
    }

    #[test]
    fn keys_of_other_kinds_and_uses_are_left_out() {
        let good = SigningKey::ec("e").jwk();
        let with = |name: &str, value: Value| {
            let mut jwk = good.clone();
            jwk[name] = value;
            jwk
        };
        for other in [
            with("use", json!("enc")),
            with("key_ops", json!(["sign"])),
            with("alg", json!("ES384")),
            with("crv", json!("secp256k1")),
            with("x", json!("%")),
            json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
            json!({"kty": "AKP", "alg": "ML-DSA-44"}),
            json!("text"),
        ] {
            assert_eq!(
                set(std::slice::from_ref(&other)).err(),
                Some(KeySetError::Empty),
                "{other}"
            );
            assert_eq!(set(&[other, good.clone()]).map(|keys| keys.len()), Ok(1));
        }
        assert_eq!(set(&[with("alg", json!("ES256"))]).map(|keys| keys.len()), Ok(1));
    }

    #[test]
    fn a_set_that_is_too_large_or_no_set_is_refused() {
        let key = SigningKey::ec("e").jwk();
        assert_eq!(set(&vec![key; 10_000]).err(), Some(KeySetError::TooMany(10_000)));
        for text in ["", "{", "[]", r#"{"keys": 1}"#, r#"{"keys": [{"kty": "RSA""#] {
            assert!(
                matches!(KeySet::parse(text.as_bytes()), Err(KeySetError::Json(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn neither_none_nor_hmac_is_an_algorithm() {
        for name in ["none", "None", "", "HS256", "HS512", "rs256", "RSA-OAEP", "ES512"] {
            assert_eq!(algorithm(name), None, "{name}");
        }
        assert_eq!(algorithm("PS512"), Some(Algorithm::PS512));
    }
}
