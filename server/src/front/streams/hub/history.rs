//! Checksums by which two replicas know that they followed the same history of a cluster: after a restore from a backup, the
//! API server gives out resource versions a second time, for other objects.

use std::{collections::VecDeque, fmt};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// Number of checksums that are kept per kind, of the latest resource versions.
const KEPT: usize = 32_768;

/// An object whose content can be told by a checksum.
pub(crate) trait Checksum: fmt::Debug {
    /// A hash of the whole object, which takes a while.
    fn checksum(&self) -> u64;
}

/// Pairs of resource version and checksum of the object that was seen there, in order of the versions.
#[derive(Debug, Default)]
pub(super) struct HistoryChecksums(VecDeque<(u64, u64)>);

impl<T: Serialize + fmt::Debug> Checksum for T {
    fn checksum(&self) -> u64 {
        // An object that was read from JSON can be written as JSON.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        let hash = Sha256::digest(bytes);
        hash.first_chunk().copied().map_or(0, u64::from_be_bytes)
    }
}

impl HistoryChecksums {
    /// Adds the checksum of a resource version, which is higher than all before.
    pub(super) fn push(&mut self, version: u64, checksum: u64) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((version, checksum));
    }

    /// Whether this replica saw an object with this checksum at this resource version.
    pub(super) fn contains(&self, version: u64, checksum: u64) -> bool {
        let at = self.0.binary_search_by_key(&version, |(version, _)| *version);
        at.is_ok_and(|at| self.0[at].1 == checksum)
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceExport;

    use super::*;

    #[test]
    fn the_latest_checksums_are_kept() {
        let mut checksums = HistoryChecksums::default();
        let last = 3 * KEPT as u64;
        for version in (3..=last).step_by(3) {
            checksums.push(version, version + 1);
        }
        checksums.push(last + 3, 0);
        assert!(checksums.contains(last + 3, 0) && checksums.contains(6, 7));
        assert!(!checksums.contains(3, 4), "the oldest goes");
        assert!(!checksums.contains(6, 8) && !checksums.contains(7, 8));
    }

    #[test]
    fn equal_objects_have_one_checksum_and_a_change_has_another() {
        let read = |json: &str| serde_json::from_str::<APIServiceExport>(json).unwrap().checksum();
        let metadata = r#""name": "a", "labels": {"x": "1", "y": "2"}"#;
        let object = |metadata: &str, spec: &str| format!(r#"{{"metadata": {{{metadata}}}, "spec": {{{spec}}}}}"#);
        let spec = r#""isolation": "Prefixed", "resources": [], "informerScope": "Cluster""#;
        let once = read(&object(metadata, spec));
        let again = object(r#""labels": {"y": "2", "x": "1"}, "name": "a""#, spec);
        assert_eq!(once, read(&again));
        assert_ne!(once, read(&object(metadata, &spec.replace("Cluster", "Namespaced"))));
    }
}
