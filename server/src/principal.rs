//! Principals: verified callers, and their form in annotations.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A verified caller: its Kubernetes username, and its UID if it is a ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Principal {
    /// The username.
    pub username: String,
    /// The UID. A record without one means the username, whatever the UID of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl Principal {
    /// A principal with that username and any UID.
    pub fn named(username: impl Into<String>) -> Self {
        Self {
            username: username.into(),
            uid: None,
        }
    }

    /// Whether this recorded principal is `caller`. A ServiceAccount that was deleted and made anew is another principal.
    pub fn is(&self, caller: &Self) -> bool {
        self.username == caller.username && (self.uid.is_none() || self.uid == caller.uid)
    }

    /// The JSON form in annotations.
    pub fn to_json(&self) -> String {
        // A struct of strings is always JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the JSON form that [`Principal::to_json`] writes.
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.username)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(username: &str, uid: Option<&str>) -> Principal {
        Principal {
            username: username.to_owned(),
            uid: uid.map(ToOwned::to_owned),
        }
    }

    #[track_caller]
    fn check(recorded: (&str, Option<&str>), caller: (&str, Option<&str>), expect: bool) {
        let (recorded, caller) = (principal(recorded.0, recorded.1), principal(caller.0, caller.1));
        assert_eq!(recorded.is(&caller), expect, "{recorded:?} is {caller:?}");
        assert_eq!(Principal::from_json(&recorded.to_json()), Some(recorded));
    }

    #[test]
    fn a_recorded_uid_counts_and_a_missing_one_does_not() {
        check(("jane", None), ("jane", None), true);
        check(("jane", None), ("jane", Some("1")), true);
        check(("jane", Some("1")), ("jane", Some("1")), true);
        check(("jane", Some("1")), ("jane", Some("2")), false);
        check(("jane", Some("1")), ("jane", None), false);
        check(("jane", None), ("john", None), false);
    }
}
