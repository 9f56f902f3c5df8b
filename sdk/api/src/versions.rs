//! The choice between several versions of an API.

use std::cmp::Reverse;

use kube::core::Version;

/// A version as a CRD or a BoundSchema lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Name of the version, such as v1beta1.
    pub name: &'a str,
    /// Whether the version is served.
    pub served: bool,
    /// Whether objects are stored in this version.
    pub storage: bool,
}

/// Sorts by Kubernetes' order, the most stable and newest first: v2, v1, v1beta2, v1beta1, v1alpha1, and the rest by name.
pub fn sort<T: AsRef<str>>(versions: &mut [T]) {
    versions.sort_by_cached_key(|version| Reverse(Version::parse(version.as_ref()).priority()));
}

/// Returns the first version in Kubernetes' order.
pub fn highest<'a>(versions: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    versions
        .into_iter()
        .max_by_key(|version| Version::parse(version).priority())
}

/// Returns the version to use: the storage version if it is served, else the highest served one.
pub fn preferred<'a>(versions: impl IntoIterator<Item = Listed<'a>>) -> Option<&'a str> {
    let served: Vec<_> = versions.into_iter().filter(|version| version.served).collect();
    let stored = served
        .iter()
        .find(|version| version.storage)
        .map(|version| version.name);
    stored.or_else(|| highest(served.iter().map(|version| version.name)))
}

/// Returns the version to sync in: the provider's storage version if both sides serve it, else the highest one that both serve.
pub fn common<'a>(
    provider: impl IntoIterator<Item = Listed<'a>>,
    consumer: impl IntoIterator<Item = Listed<'a>>,
) -> Option<&'a str> {
    let consumer: Vec<_> = consumer.into_iter().filter(|version| version.served).collect();
    let shared = provider
        .into_iter()
        .filter(|version| consumer.iter().any(|other| other.name == version.name));
    preferred(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Vec<Listed<'_>> {
        // A star marks the stored version, a dash one that is not served.
        text.split_whitespace()
            .map(|word| Listed {
                name: word.trim_matches(['*', '-']),
                served: !word.starts_with('-'),
                storage: word.ends_with('*'),
            })
            .collect()
    }

    #[test]
    fn sorted_by_stability_then_number() {
        let mut versions = [
            "v1alpha1",
            "foo10",
            "v2",
            "v10beta3",
            "v1",
            "foo1",
            "v11beta2",
            "v10",
            "v3beta1",
            "v12alpha1",
        ];
        sort(&mut versions);
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v1alpha1",
                "foo1",
                "foo10"
            ]
        );
        assert_eq!(highest(versions), Some("v10"));
        assert_eq!(highest([]), None);
    }

    #[track_caller]
    fn check_preferred(versions: &str, expect: Option<&str>) {
        assert_eq!(preferred(listed(versions)), expect, "{versions}");
    }

    #[test]
    fn the_stored_version_is_preferred_while_it_is_served() {
        check_preferred("", None);
        check_preferred("-v1*", None);
        check_preferred("v1 v1beta1*", Some("v1beta1"));
        check_preferred("v1beta1 v1 -v2*", Some("v1"));
        check_preferred("v1alpha1 v1beta1", Some("v1beta1"));
    }

    #[track_caller]
    fn check_common(provider: &str, consumer: &str, expect: Option<&str>) {
        assert_eq!(
            common(listed(provider), listed(consumer)),
            expect,
            "{provider} | {consumer}"
        );
    }

    #[test]
    fn two_sides_meet_in_a_version_both_serve() {
        check_common("v1 v1beta1*", "v1* v1beta1", Some("v1beta1"));
        check_common("v1* v1beta1", "v1beta1*", Some("v1beta1"));
        check_common("v2* v1 v1beta1", "-v2 v1 v1beta1*", Some("v1"));
        check_common("v2*", "v1*", None);
        check_common("-v1* v1beta1", "v1*", None);
    }
}
