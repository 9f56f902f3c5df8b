//! Compares versions of programs.

/// The oldest minor version of Kubernetes that has ValidatingAdmissionPolicies.
const KUBERNETES_MINOR_MIN: u64 = 30;
/// How many minor versions programs may be apart.
const SKEW_MAX: u64 = 1;

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    major: u64,
    minor: u64,
}

/// Reads `1.2.3`, `v1.2.3-rc.1+build` or `1.2`.
fn parse(text: &str) -> Option<Version> {
    let mut parts = text.trim().trim_start_matches('v').split(['.', '-', '+']);
    let mut number = || {
        // Some providers of Kubernetes write 30+.
        let digits: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let (major, minor) = (number()?, number()?);
    Some(Version { major, minor })
}

/// Whether two programs are too far apart to be supported together; none if a version cannot be read.
pub(super) fn is_too_far(one: &str, other: &str) -> Option<bool> {
    let (one, other) = (parse(one)?, parse(other)?);
    Some(one.major != other.major || one.minor.abs_diff(other.minor) > SKEW_MAX)
}

/// Whether two versions are of the same release. A leading `v` and what follows a `+` are no part of it.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let release = |text: &str| {
        let text = text.trim().trim_start_matches('v');
        text.split_once('+').map_or(text, |(release, _)| release).to_owned()
    };
    release(one) == release(other)
}

/// Whether a version of Kubernetes is too old; none if it cannot be read.
pub(super) fn is_too_old(kubernetes: &str) -> Option<bool> {
    let version = parse(kubernetes)?;
    Some((version.major, version.minor) < (1, KUBERNETES_MINOR_MIN))
}

/// The version in the tag of an image, if the tag is one.
pub(super) fn of_image(image: &str) -> Option<&str> {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    let (_, tag) = image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'))?;
    parse(tag).map(|_| tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_minor_apart_is_fine() {
        for (one, other, expect) in [
            ("0.1.0", "v0.1.9", Some(false)),
            ("0.1.0", "0.2.0", Some(false)),
            ("0.2.0", "0.1.0", Some(false)),
            ("0.1.0", "0.3.0", Some(true)),
            ("0.9.0", "1.9.0", Some(true)),
            ("0.1.0-rc.1", "0.1.0+debug", Some(false)),
            ("0.1.0", "main", None),
            ("", "0.1.0", None),
        ] {
            assert_eq!(is_too_far(one, other), expect, "{one} {other}");
        }
    }

    #[test]
    fn patches_and_candidates_are_releases() {
        for (other, expect) in [
            ("v0.1.0", true),
            ("0.1.0+debug", true),
            ("0.1.1", false),
            ("0.1.0-rc.1", false),
        ] {
            assert_eq!(is_same("0.1.0", other), expect, "{other}");
        }
    }

    #[test]
    fn kubernetes_needs_policies() {
        for (version, expect) in [
            ("v1.29.9", Some(true)),
            ("v1.30.0", Some(false)),
            ("v1.31+", Some(false)),
            ("v2.0.0", Some(false)),
            ("1.30-gke.5", Some(false)),
            ("unknown", None),
        ] {
            assert_eq!(is_too_old(version), expect, "{version}");
        }
    }

    #[test]
    fn a_tag_may_be_a_version() {
        assert_eq!(of_image("bindery-konnector:0.1.0"), Some("0.1.0"));
        assert_eq!(of_image("registry:5000/bindery-konnector"), None);
        assert_eq!(of_image("registry:5000/k:v1.2@sha256:0"), Some("v1.2"));
        assert_eq!(of_image("k:latest"), None);
    }
}
