//! Describes the content of history Secrets in their metadata, so that it is known without reading them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Stored;
pub(super) use crate::wire::{HISTORY_TYPE as TYPE, LABEL_SET as SET};
use crate::wire::{LABEL_VERSION as VERSION, SetName, Version};

/// Annotations of a history Secret.
const CHUNK: &str = "synk.cloudrobotics.com/chunk";
const CHUNKS: &str = "synk.cloudrobotics.com/chunks";
const SHA256: &str = "synk.cloudrobotics.com/sha256";
const TIME: &str = "synk.cloudrobotics.com/time";
const OBJECTS: &str = "synk.cloudrobotics.com/objects";

/// The description that all chunks of a version share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) version: Version,
    /// Number of chunks.
    pub(super) total: usize,
    /// SHA-256 of the content.
    pub(super) sha256: String,
    pub(super) time: Timestamp,
    /// Number of objects.
    pub(super) objects: usize,
}

/// A Secret with a chunk, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    /// The number of the chunk and its description; `None` if the annotations are damaged.
    pub(super) mark: Option<(usize, Mark)>,
}

/// All history Secrets of a set, by version number.
pub(super) type Versions = BTreeMap<u64, Vec<Found>>;

// === impl Mark ===

impl Mark {
    /// Returns the metadata of the Secret with this chunk.
    pub(super) fn metadata(&self, chunk: usize) -> ObjectMeta {
        let text = |key: &str, value: String| (key.to_owned(), value);
        ObjectMeta {
            name: Some(name(&self.version, chunk)),
            labels: Some(BTreeMap::from([
                text(SET, self.version.set.to_string()),
                text(VERSION, self.version.number.to_string()),
            ])),
            annotations: Some(BTreeMap::from([
                text(CHUNK, chunk.to_string()),
                text(CHUNKS, self.total.to_string()),
                text(SHA256, self.sha256.clone()),
                text(TIME, self.time.to_string()),
                text(OBJECTS, self.objects.to_string()),
            ])),
            ..ObjectMeta::default()
        }
    }

    fn read(version: Version, metadata: &ObjectMeta) -> Option<(usize, Self)> {
        let annotations = metadata.annotations.as_ref()?;
        let chunk = annotations.get(CHUNK)?.parse().ok()?;
        let mark = Self {
            total: annotations.get(CHUNKS)?.parse().ok()?,
            sha256: annotations.get(SHA256)?.clone(),
            time: annotations.get(TIME)?.parse().ok()?,
            objects: annotations.get(OBJECTS)?.parse().ok()?,
            version,
        };
        (metadata.name.as_ref()? == &name(&mark.version, chunk)).then_some((chunk, mark))
    }
}

fn name(version: &Version, chunk: usize) -> String {
    format!("synk-{version}-{chunk}")
}

/// Groups Secrets by version. A Secret that names no version gets version 0, which never exists.
pub(super) fn sorted(set: &SetName, secrets: impl Iterator<Item = ObjectMeta>) -> Versions {
    let mut versions = Versions::new();
    for metadata in secrets {
        let label = metadata.labels.as_ref().and_then(|labels| labels.get(VERSION));
        let number = label.and_then(|label| label.parse().ok()).unwrap_or(0);
        let mark = Mark::read(set.version(number), &metadata);
        versions.entry(number).or_default().push(Found {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid,
            mark,
        });
    }
    versions
}

/// Returns the description that all Secrets of a version share, if none is missing.
pub(super) fn whole(found: &[Found]) -> Option<&Mark> {
    let marks: Option<Vec<_>> = found.iter().map(|found| found.mark.as_ref()).collect();
    let marks = marks?;
    let (_, first) = marks.first()?;
    let agree = marks.iter().all(|(_, mark)| mark == first);
    let chunks: BTreeSet<_> = marks.iter().map(|(chunk, _)| *chunk).collect();
    (agree && chunks.len() == marks.len() && chunks.into_iter().eq(0..first.total)).then_some(first)
}

/// Returns the stored versions, newest first.
pub(super) fn stored(set: &SetName, versions: &Versions) -> Vec<Stored> {
    let numbered = versions.iter().rev().filter(|(number, _)| **number > 0);
    let stored = numbered.map(|(number, found)| {
        let said = found.iter().find_map(|found| found.mark.as_ref()).map(|(_, mark)| mark);
        Stored {
            version: set.version(*number),
            time: said.map(|mark| mark.time),
            objects: said.map(|mark| mark.objects),
            whole: whole(found).is_some(),
        }
    });
    stored.collect()
}

/// Selects the Secrets to delete after `current` was stored, if `keep` versions are kept: older versions, incomplete
/// versions of interrupted applies, and higher numbers, which belong to a deleted set of the same name. If two
/// consecutive versions have the same content, as after retries, the earlier one is deleted first.
pub(super) fn surplus(versions: &Versions, current: u64, keep: usize) -> Vec<&Found> {
    let numbered = versions.iter().filter(|(number, _)| (1..=current).contains(*number));
    let whole: Vec<_> = numbered
        .filter_map(|(number, found)| Some((*number, &whole(found)?.sha256)))
        .collect();
    let repeated = whole.windows(2).filter(|pair| pair[0].1 == pair[1].1);
    let repeated: BTreeSet<_> = repeated
        .map(|pair| pair[0].0)
        .take(whole.len().saturating_sub(keep))
        .collect();
    let kept = whole.iter().rev().map(|(number, _)| *number);
    let kept: BTreeSet<_> = kept.filter(|number| !repeated.contains(number)).take(keep).collect();
    let gone = versions.iter().filter(|(number, _)| !kept.contains(number));
    gone.flat_map(|(_, found)| found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: u64, total: usize) -> Mark {
        Mark {
            version: set().version(number),
            total,
            sha256: format!("sum-{number}"),
            time: "2026-01-02T03:04:05Z".parse().unwrap(),
            objects: 7,
        }
    }

    fn set() -> SetName {
        "web".parse().unwrap()
    }

    /// Versions, each with the chunks that are there and how many there should be.
    fn versions(all: &[(u64, &[usize], usize)]) -> Versions {
        let secrets = all.iter().flat_map(|(number, chunks, total)| {
            let mark = mark(*number, *total);
            chunks.iter().map(move |chunk| mark.metadata(*chunk))
        });
        sorted(&set(), secrets)
    }

    #[track_caller]
    fn check_whole(chunks: &[usize], total: usize, expect: bool) {
        let versions = versions(&[(3, chunks, total)]);
        let found = versions.get(&3).map_or(&[][..], Vec::as_slice);
        assert_eq!(whole(found), expect.then(|| mark(3, total)).as_ref());
    }

    #[test]
    fn a_version_is_whole_with_each_chunk_once() {
        check_whole(&[0], 1, true);
        check_whole(&[2, 0, 1], 3, true);
        check_whole(&[0, 1], 3, false);
        check_whole(&[1, 2], 3, false);
        check_whole(&[0, 0], 2, false);
        check_whole(&[0, 1], 1, false);
        check_whole(&[], 0, false);
    }

    #[test]
    fn chunks_of_two_applies_do_not_make_a_whole() {
        let mut other = mark(3, 2);
        other.sha256 = "another".to_owned();
        let versions = sorted(&set(), [mark(3, 2).metadata(0), other.metadata(1)].into_iter());
        assert_eq!(whole(&versions[&3]), None);
    }

    #[test]
    fn marks_that_somebody_changed_are_not_believed() {
        let mut renamed = mark(3, 1).metadata(0);
        renamed.name = Some("synk-web.v4-0".to_owned());
        let mut bare = mark(5, 1).metadata(0);
        bare.annotations = None;
        let mut nameless = mark(6, 1).metadata(0);
        nameless.labels.as_mut().unwrap().remove(VERSION);
        let versions = sorted(&set(), [renamed, bare, nameless].into_iter());
        let listed = stored(&set(), &versions);
        let listed: Vec<_> = listed
            .iter()
            .map(|stored| (stored.version.number, stored.whole))
            .collect();
        assert_eq!(listed, [(5, false), (3, false)]);
        assert_eq!(surplus(&versions, 9, 3).len(), 3, "they go with the next apply");
    }

    #[test]
    fn the_list_is_the_newest_first_and_says_what_is_damaged() {
        let listed = stored(&set(), &versions(&[(9, &[0], 1), (10, &[1], 2), (2, &[0, 1], 2)]));
        let shown: Vec<_> = listed
            .iter()
            .map(|stored| (stored.version.to_string(), stored.whole))
            .collect();
        assert_eq!(
            shown,
            [
                ("web.v10".to_owned(), false),
                ("web.v9".to_owned(), true),
                ("web.v2".to_owned(), true)
            ]
        );
        assert_eq!((listed[0].objects, listed[0].time), (Some(7), Some(mark(1, 1).time)));
    }

    #[track_caller]
    fn check_surplus(all: &[(u64, &[usize], usize)], current: u64, keep: usize, expect: &[&str]) {
        let versions = versions(all);
        let mut names: Vec<_> = surplus(&versions, current, keep)
            .iter()
            .map(|found| found.name.as_str())
            .collect();
        names.sort_unstable();
        assert_eq!(names, expect);
    }

    #[test]
    fn the_newest_whole_versions_are_kept() {
        let all: &[(u64, &[usize], usize)] = &[(1, &[0], 1), (2, &[0, 1], 2), (3, &[0], 1), (4, &[0], 1)];
        check_surplus(all, 4, 3, &["synk-web.v1-0"]);
        check_surplus(all, 4, 2, &["synk-web.v1-0", "synk-web.v2-0", "synk-web.v2-1"]);
        check_surplus(all, 4, 9, &[]);
        check_surplus(&[(1, &[0], 1), (2, &[0], 1)], 2, 0, &["synk-web.v1-0", "synk-web.v2-0"]);
    }

    #[test]
    fn what_was_stored_again_and_again_pushes_nothing_else_out() {
        #[track_caller]
        fn check(sums: &str, keep: usize, expect: &[u64]) {
            let secrets = (1..).zip(sums.chars()).map(|(number, sum)| {
                let mut mark = mark(number, 1);
                mark.sha256 = sum.to_string();
                mark.metadata(0)
            });
            let versions = sorted(&set(), secrets);
            let current = versions.len() as u64;
            let gone: BTreeSet<_> = surplus(&versions, current, keep)
                .iter()
                .map(|found| &found.name)
                .collect();
            let kept = versions.iter().filter(|(_, found)| !gone.contains(&found[0].name));
            let kept: Vec<_> = kept.map(|(number, _)| *number).collect();
            assert_eq!(kept, expect, "{sums}");
        }
        check("abcccc", 3, &[1, 2, 6]);
        check("abccd", 3, &[2, 4, 5]);
        check("aab", 3, &[1, 2, 3]);
        check("aaab", 3, &[2, 3, 4]);
        check("ababab", 3, &[4, 5, 6]);
        check("aaaa", 2, &[3, 4]);
        check("aaaa", 1, &[4]);
        check("aaaa", 0, &[]);
    }

    #[test]
    fn what_is_not_whole_or_of_an_earlier_life_is_not_kept() {
        check_surplus(&[(1, &[0], 1), (2, &[1], 2), (3, &[0], 1)], 3, 2, &["synk-web.v2-1"]);
        check_surplus(
            &[(1, &[0], 1), (8, &[0], 1), (9, &[0], 1)],
            1,
            3,
            &["synk-web.v8-0", "synk-web.v9-0"],
        );
    }
}
