//! Packs manifests into chunks that fit into Secrets, and unpacks them.

use std::{
    fmt,
    io::{Read as _, Write as _},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Greatest size of a chunk, in bytes. A Secret holds at most 1 MiB, metadata included.
pub(super) const CHUNK: usize = 900 * 1024;

/// Greatest size of unpacked manifests, in bytes: far above any real set, and a limit for malicious data that expands.
const INFLATED: u64 = 1 << 30;

/// Compressed manifests, cut into chunks. They may contain Secrets.
#[derive(PartialEq, Eq)]
pub(super) struct Packed {
    /// The chunks, at least one.
    pub(super) chunks: Vec<Vec<u8>>,
    /// SHA-256 of all chunks together, in hexadecimal digits.
    pub(super) sha256: String,
}

/// The reason why chunks cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    /// Some chunks are missing.
    #[error("{found} of {total} parts are there")]
    Missing {
        /// Number of chunks that exist.
        found: usize,
        /// Number of chunks that were stored.
        total: usize,
    },
    /// The content differs from what was stored.
    #[error("its content has changed since it was stored: the checksum differs")]
    Checksum,
    /// The checksum matches, but the content is no list of manifests.
    #[error("its content is no list of manifests")]
    Content,
}

// === impl Packed ===

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<_> = self.chunks.iter().map(Vec::len).collect();
        f.debug_struct("Packed").field("sizes", &sizes).finish_non_exhaustive()
    }
}

/// Packs manifests. Equal manifests give equal bytes.
pub(super) fn pack<'a>(bodies: impl Iterator<Item = &'a Map<String, Value>>, size: usize) -> Packed {
    let text = serde_json::to_vec(&bodies.collect::<Vec<_>>()).expect("JSON values can be written as JSON");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&text).expect("writing to memory does not fail");
    let bytes = encoder.finish().expect("writing to memory does not fail");
    Packed {
        sha256: sum(&[&bytes]),
        chunks: bytes.chunks(size).map(<[u8]>::to_vec).collect(),
    }
}

/// Unpacks `total` chunks with this checksum.
pub(super) fn unpack(chunks: &[Vec<u8>], total: usize, sha256: &str) -> Result<Vec<Map<String, Value>>, Damage> {
    if chunks.len() != total {
        return Err(Damage::Missing {
            found: chunks.len(),
            total,
        });
    }
    if sum(chunks) != sha256 {
        return Err(Damage::Checksum);
    }
    let mut text = Vec::new();
    let bytes = chunks.concat();
    inflate(&bytes, INFLATED, &mut text).map_err(|_| Damage::Content)?;
    serde_json::from_slice(&text).map_err(|_| Damage::Content)
}

/// Inflates at most `limit` bytes. A longer text is cut off and is no valid JSON then.
fn inflate(bytes: &[u8], limit: u64, text: &mut Vec<u8>) -> std::io::Result<usize> {
    GzDecoder::new(bytes).take(limit).read_to_end(text)
}

fn sum(chunks: &[impl AsRef<[u8]>]) -> String {
    let mut sum = Sha256::new();
    for chunk in chunks {
        sum.update(chunk);
    }
    format!("{:x}", sum.finalize())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;

    use super::*;

    fn body(name: &str, content: &str) -> Map<String, Value> {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "data": {"key": content, "n": 1.5, "none": null, "list": [1, "2", {}]},
        });
        object.as_object().unwrap().clone()
    }

    fn bodies() -> impl Strategy<Value = Vec<Map<String, Value>>> {
        vec(("[a-z]{1,8}", "\\PC{0,200}"), 0..12).prop_map(|all| {
            let bodies = all.iter().map(|(name, content)| body(name, content));
            bodies.collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_cut_comes_back_as_it_was(bodies in bodies(), size in 1..600_usize) {
            let packed = pack(bodies.iter(), size);
            prop_assert!(!packed.chunks.is_empty());
            prop_assert!(packed.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= size));
            prop_assert_eq!(&pack(bodies.iter(), size), &packed);
            prop_assert_eq!(unpack(&packed.chunks, packed.chunks.len(), &packed.sha256), Ok(bodies));
        }

        #[test]
        fn damage_is_noticed(bodies in bodies(), size in 1..60_usize, at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let packed = pack(bodies.iter(), size);
            let total = packed.chunks.len();
            let at = at.index(total);
            let check = |chunks: &[Vec<u8>]| unpack(chunks, total, &packed.sha256);

            let mut missing = packed.chunks.clone();
            missing.remove(at);
            prop_assert_eq!(check(&missing), Err(Damage::Missing { found: total - 1, total }));

            let mut changed = packed.chunks.clone();
            changed[at][0] ^= 1 << bit;
            prop_assert_eq!(check(&changed), Err(Damage::Checksum));

            let mut swapped = packed.chunks.clone();
            swapped.swap(at, 0);
            let same = swapped == packed.chunks;
            prop_assert_eq!(check(&swapped), if same { Ok(bodies) } else { Err(Damage::Checksum) });
        }
    }

    #[test]
    fn what_is_no_list_of_manifests_is_refused() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"{\"a\": 1}").unwrap();
        for bytes in [encoder.finish().unwrap(), b"plain".to_vec(), Vec::new()] {
            let sha256 = sum(&[&bytes]);
            assert_eq!(unpack(&[bytes], 1, &sha256), Err(Damage::Content));
        }
    }

    #[test]
    fn no_more_is_inflated_than_a_limit() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&vec![b' '; 1 << 20]).unwrap();
        let mut text = Vec::new();
        inflate(&encoder.finish().unwrap(), 1_000, &mut text).unwrap();
        assert_eq!(text.len(), 1_000);
    }

    #[test]
    fn content_is_not_shown() {
        let packed = pack([body("a", "hunter2")].iter(), 1_000_000);
        let shown = format!("{packed:?}");
        assert!(shown.starts_with("Packed { sizes: ["), "{shown}");
        assert!(!shown.contains(&format!("{:?}", packed.chunks)), "{shown}");
    }
}
