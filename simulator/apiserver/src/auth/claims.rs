//! The form of tokens: they look like signed JWTs, and their signature is a hash that only the cluster's key can make.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Key with which one cluster signs tokens. Clusters of the same name share it.
#[derive(Clone, Debug)]
pub(super) struct SigningKey([u8; 32]);

impl SigningKey {
    pub(super) fn of_cluster(name: &str) -> Self {
        Self(Sha256::digest(format!("key of cluster {name}")).into())
    }

    /// Makes a token of claims.
    pub(super) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "RS256", "kid": URL_SAFE_NO_PAD.encode(&self.digest("kid")[..16])});
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.digest(&signed));
        format!("{signed}.{signature}")
    }

    /// The claims of a token, if this key signed it.
    pub(super) fn verify(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        if signature != URL_SAFE_NO_PAD.encode(self.digest(signed)) {
            return None;
        }
        let (_, claims) = signed.split_once('.')?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// A UUID that the key makes of a text.
    pub(super) fn uuid(&self, text: &str) -> String {
        let bytes = self.digest(text).into_iter().take(16);
        let hash = bytes.fold(String::new(), |mut hash, byte| {
            let _ = write!(hash, "{byte:02x}");
            hash
        });
        format!(
            "{}-{}-4{}-a{}-{}",
            &hash[..8],
            &hash[8..12],
            &hash[13..16],
            &hash[17..20],
            &hash[20..]
        )
    }

    fn digest(&self, text: &str) -> [u8; 32] {
        Sha256::new().chain_update(self.0).chain_update(text).finalize().into()
    }
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}
