//! Signatures that cosign and openssl verify: ECDSA on the curve P-256 with SHA-256, in base64.

use std::{collections::HashMap, fmt, fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use oci_spec::image::MediaType;
use serde_json::json;

use crate::{
    layout::{self, Artifact, Blob},
    workspace::read,
};

/// The media type of what cosign signs.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation in which cosign looks for a signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// Tells people how to make a key.
const MAKE_ONE: &str = "make one with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out FILE`";

/// A private key that signs releases.
pub struct SigningKey(EcdsaKeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Reads a key from a file: PEM, not encrypted, of the curve P-256.
    /// Nobody but its owner may be able to read the file.
    pub fn read(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        let of_others = metadata.permissions().mode() & 0o077;
        ensure!(
            of_others == 0,
            "{} can be read or written by others: make another key, and keep it with `chmod 600`",
            path.display()
        );
        Self::parse(&read(path)?).with_context(|| format!("cannot sign with {}", path.display()))
    }

    fn parse(pem: &[u8]) -> Result<Self> {
        let blocks = pem::parse_many(pem).context("the file is not PEM")?;
        let mut keys = blocks.iter().filter(|it| it.tag().ends_with("PRIVATE KEY"));
        let key = keys
            .next()
            .with_context(|| format!("the file holds no private key; {MAKE_ONE}"))?;
        let pair = match key.tag() {
            "PRIVATE KEY" => EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.contents()),
            "EC PRIVATE KEY" => EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, key.contents()),
            "ENCRYPTED PRIVATE KEY" => {
                bail!("the key is encrypted; decrypt it with `openssl pkcs8 -in FILE -out DECRYPTED`")
            }
            tag => bail!("keys of the kind {tag:?} cannot be read; {MAKE_ONE}"),
        };
        let pair = pair.map_err(|error| anyhow!("the key is not of the curve P-256 ({error}); {MAKE_ONE}"))?;
        Ok(Self(pair))
    }

    /// Returns the signature of bytes, in base64. It differs each time, because the algorithm takes a random number.
    pub fn sign(&self, bytes: &[u8]) -> Result<String> {
        let signature = self.0.sign(&SystemRandom::new(), bytes);
        let signature = signature.map_err(|_| anyhow!("the key cannot sign"))?;
        Ok(STANDARD.encode(signature))
    }
}

/// Writes the signature of the artifact with this digest as an OCI image layout, as cosign stores signatures beside images.
pub(super) fn write(folder: &Path, key: &SigningKey, name: &str, version: &str, digest: &str) -> Result<()> {
    let payload = payload(name, version, digest)?;
    let signature = HashMap::from([(SIGNATURE.to_owned(), key.sign(&payload)?)]);
    let config = layout::json(&json!({
        "architecture": "",
        "os": "",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layout::digest(&payload)]},
    }))?;
    let artifact = Artifact {
        tag: &tag(digest),
        platform: None,
        config: Blob::new(MediaType::ImageConfig, &config),
        layers: vec![Blob {
            media_type: MediaType::Other(PAYLOAD.to_owned()),
            content: &payload,
            annotations: signature,
        }],
        annotations: HashMap::new(),
    };
    layout::write(folder, &artifact).map(drop)
}

/// Returns what is signed: a statement about a digest, with the version, so that nobody can pass an older release off as a newer one.
fn payload(name: &str, version: &str, digest: &str) -> Result<Vec<u8>> {
    layout::json(&json!({
        "critical": {
            "identity": {"docker-reference": name},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": {"version": version},
    }))
}

/// Returns the tag under which cosign looks for signatures, in the repository of the artifact.
fn tag(digest: &str) -> String {
    format!("{}.sig", digest.replace(':', "-"))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::{
        encoding::{AsDer, EcPrivateKeyRfc5915Der},
        signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1_SIGNING, KeyPair as _, UnparsedPublicKey},
    };
    use pem::Pem;

    use super::*;

    fn pem_of(tag: &str, der: &[u8]) -> String {
        pem::encode(&Pem::new(tag, der))
    }

    fn key() -> (EcdsaKeyPair, String) {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let document = pair.to_pkcs8v1().unwrap();
        let pem = pem_of("PRIVATE KEY", document.as_ref());
        (pair, pem)
    }

    #[test]
    fn a_signature_is_verified_by_the_public_key_for_its_bytes_alone() {
        let (pair, pem) = key();
        let signature = SigningKey::parse(pem.as_bytes()).unwrap().sign(b"bytes").unwrap();
        let signature = STANDARD.decode(signature).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, pair.public_key().as_ref());
        public.verify(b"bytes", &signature).unwrap();
        assert!(public.verify(b"other", &signature).is_err());
    }

    #[test]
    fn keys_are_read_in_both_forms_of_openssl() {
        let (pair, _) = key();
        let der = AsDer::<EcPrivateKeyRfc5915Der<'_>>::as_der(&pair.private_key());
        let pem = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n".to_owned()
            + &pem_of("EC PRIVATE KEY", der.unwrap().as_ref());
        SigningKey::parse(pem.as_bytes()).unwrap();
    }

    #[test]
    fn other_keys_are_refused_with_the_command_that_makes_one() {
        let other = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_ASN1_SIGNING).unwrap();
        let other = pem_of("PRIVATE KEY", other.to_pkcs8v1().unwrap().as_ref());
        let cosign = pem_of("ENCRYPTED SIGSTORE PRIVATE KEY", b"secret");
        let encrypted = pem_of("ENCRYPTED PRIVATE KEY", b"secret");
        for (pem, expected) in [
            (other.as_str(), "not of the curve P-256"),
            (&cosign, "openssl genpkey"),
            (&encrypted, "openssl pkcs8 -in"),
            (&pem_of("CERTIFICATE", b"public"), "no private key"),
            ("-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n", "not PEM"),
            ("no PEM at all", "no private key"),
        ] {
            let error = format!("{:#}", SigningKey::parse(pem.as_bytes()).unwrap_err());
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("release.pem");
        fs::write(&path, key().1).unwrap();
        for (mode, is_refused) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = SigningKey::read(&path).err().map(|it| it.to_string());
            assert_eq!(error.is_some(), is_refused, "{mode:o} {error:?}");
            assert!(error.is_none_or(|it| it.contains("by others") && it.contains("chmod 600")));
        }
    }

    #[test]
    fn a_signature_has_the_tag_that_cosign_looks_for() {
        assert_eq!(tag("sha256:0123"), "sha256-0123.sig");
    }
}
