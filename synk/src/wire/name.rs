//! Defines the names of sets and of their versions.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The name of a set. It is used as a label value and in names of objects, so it has at most 63 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SetName(String);

/// One version of a set: the name of its ResourceSet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The set.
    pub set: SetName,
    /// The number of the version, from 1.
    pub number: u64,
}

/// The reason why a text is no name of a set or version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The text is no name of a set.
    #[error(
        "{0:?} cannot be the name of a set: at most 63 of a-z, 0-9, '-' and '.', beginning and ending with a letter or a digit"
    )]
    Set(String),
    /// The text is the name of a version.
    #[error("{0:?} is a version of a set: a set is named without `.vN`")]
    IsVersion(String),
    /// The text is no name of a version.
    #[error("{0:?} is no version of a set: versions are named NAME.vN, such as web.v3")]
    NotVersion(String),
}

// === impl SetName ===

impl SetName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the Lease that a process must hold to change this set.
    pub fn lease(&self) -> String {
        format!("synk-{self}")
    }

    /// Returns one version of this set.
    pub fn version(&self, number: u64) -> Version {
        Version {
            set: self.clone(),
            number,
        }
    }
}

impl FromStr for SetName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_part = |part: &str| {
            let bytes = part.as_bytes();
            bytes.iter().all(|byte| is_alphanumeric(*byte) || *byte == b'-')
                && bytes.first().is_some_and(|byte| is_alphanumeric(*byte))
                && bytes.last().is_some_and(|byte| is_alphanumeric(*byte))
        };
        if text.len() > 63 || !text.split('.').all(is_part) {
            return Err(InvalidName::Set(text.to_owned()));
        }
        if split(text).is_some() {
            return Err(InvalidName::IsVersion(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for SetName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<SetName> for String {
    fn from(name: SetName) -> Self {
        name.0
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Version ===

impl FromStr for Version {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (set, number) = split(text).ok_or_else(|| InvalidName::NotVersion(text.to_owned()))?;
        Ok(Self {
            set: set.parse()?,
            number,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.v{}", self.set, self.number)
    }
}

/// Splits `NAME.vN`. A number has exactly one spelling.
fn split(text: &str) -> Option<(&str, u64)> {
    let (set, number) = text.rsplit_once(".v")?;
    let parsed = number.parse().ok()?;
    (!set.is_empty() && u64::to_string(&parsed) == number).then_some((set, parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_set_and_a_number() {
        let version: Version = "my.chart-2.v10".parse().unwrap();
        assert_eq!((version.set.as_str(), version.number), ("my.chart-2", 10));
        assert_eq!(version.to_string(), "my.chart-2.v10");
        for text in [
            "web",
            "web.v",
            "web.v01",
            "web.v-1",
            ".v1",
            "web.v1x",
            "web.v18446744073709551616",
        ] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_set_is_named_so_that_its_label_and_its_objects_can_be() {
        for text in ["web", "a.b", "0-1", &"a".repeat(63)] {
            assert_eq!(text.parse::<SetName>().unwrap().as_str(), text);
        }
        for text in ["", "Web", "-a", "a-", "a..b", "a_b", "a/b", &"a".repeat(64)] {
            assert!(matches!(text.parse::<SetName>(), Err(InvalidName::Set(_))), "{text}");
        }
        assert!(matches!("web.v1".parse::<SetName>(), Err(InvalidName::IsVersion(_))));
    }
}
