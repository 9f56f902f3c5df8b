//! By what replicas know that they speak of the same history of a cluster: after a restore from a backup, resource versions
//! are given out a second time, for other objects.

use std::{collections::VecDeque, fmt};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// So many are kept, of the latest versions of a kind.
const KEPT: usize = 32_768;

/// An object that was seen in some version.
pub(crate) trait Landmark: fmt::Debug {
    /// A hash of the object as it was then.
    fn landmark(&self) -> u64;
}

/// What was there at which version, in the order of versions.
#[derive(Debug, Default)]
pub(super) struct Landmarks(VecDeque<(u64, u64)>);

impl<T: Serialize + fmt::Debug> Landmark for T {
    fn landmark(&self) -> u64 {
        // What came as JSON can be written as JSON.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        let hash = Sha256::digest(bytes);
        hash.first_chunk().copied().map_or(0, u64::from_be_bytes)
    }
}

impl Landmarks {
    /// Notes what was there at a version, which is higher than any before.
    pub(super) fn push(&mut self, version: u64, hash: u64) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((version, hash));
    }

    /// Whether that was there at that version, as far as is known.
    pub(super) fn has(&self, version: u64, hash: u64) -> bool {
        let at = self.0.binary_search_by_key(&version, |(version, _)| *version);
        at.is_ok_and(|at| self.0[at].1 == hash)
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceExport;

    use super::*;

    #[test]
    fn the_latest_are_kept() {
        let mut landmarks = Landmarks::default();
        let last = 3 * KEPT as u64;
        for version in (3..=last).step_by(3) {
            landmarks.push(version, version + 1);
        }
        landmarks.push(last + 3, 0);
        assert!(landmarks.has(last + 3, 0) && landmarks.has(6, 7));
        assert!(!landmarks.has(3, 4), "the oldest goes");
        assert!(!landmarks.has(6, 8) && !landmarks.has(7, 8));
    }

    #[test]
    fn who_reads_the_same_agrees_and_a_change_is_told_apart() {
        let read = |json: &str| serde_json::from_str::<APIServiceExport>(json).unwrap().landmark();
        let metadata = r#""name": "a", "labels": {"x": "1", "y": "2"}"#;
        let object = |metadata: &str, spec: &str| format!(r#"{{"metadata": {{{metadata}}}, "spec": {{{spec}}}}}"#);
        let spec = r#""isolation": "Prefixed", "resources": [], "informerScope": "Cluster""#;
        let once = read(&object(metadata, spec));
        let again = object(r#""labels": {"y": "2", "x": "1"}, "name": "a""#, spec);
        assert_eq!(once, read(&again));
        assert_ne!(once, read(&object(metadata, &spec.replace("Cluster", "Namespaced"))));
    }
}
