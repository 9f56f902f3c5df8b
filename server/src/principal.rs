//! Principals: verified callers, and their form in annotations.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A verified caller: its Kubernetes username, with its UID if it is a ServiceAccount, or with issuer and subject if it showed an
/// ID token.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Principal {
    /// The username.
    pub username: String,
    /// The UID. A record without one means the username, whatever the UID of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The issuer of the caller's ID token. A record without issuer and subject means the username, whoever vouches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The subject of that token, which its issuer never gives to another user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl Principal {
    /// A principal with that username, and any UID, issuer and subject.
    pub fn named(username: impl Into<String>) -> Self {
        Self {
            username: username.into(),
            uid: None,
            issuer: None,
            subject: None,
        }
    }

    /// Whether this recorded principal is `caller`. A ServiceAccount that was deleted and made anew is another principal, and so
    /// is a person who got the name of another.
    pub fn is(&self, caller: &Self) -> bool {
        let is = |recorded: &Option<String>, actual: &Option<String>| recorded.is_none() || recorded == actual;
        self.username == caller.username
            && is(&self.uid, &caller.uid)
            && is(&self.issuer, &caller.issuer)
            && is(&self.subject, &caller.subject)
    }

    /// All records that are this caller by [`Principal::is`], the fullest first.
    pub fn records(&self) -> Vec<Self> {
        let with_and_without = |value: &Option<String>| match value {
            Some(_) => vec![value.clone(), None],
            None => vec![None],
        };
        let mut records = Vec::new();
        for uid in with_and_without(&self.uid) {
            for issuer in with_and_without(&self.issuer) {
                for subject in with_and_without(&self.subject) {
                    records.push(Self {
                        username: self.username.clone(),
                        uid: uid.clone(),
                        issuer: issuer.clone(),
                        subject,
                    });
                }
            }
        }
        records
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
            uid: uid.map(ToOwned::to_owned),
            ..Principal::named(username)
        }
    }

    fn person(issuer: &str, subject: &str) -> Principal {
        Principal {
            issuer: Some(issuer.to_owned()),
            subject: Some(subject.to_owned()),
            ..Principal::named("jane")
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

    #[test]
    fn a_name_that_returns_with_another_subject_is_another_person() {
        let jane = person("https://issuer", "1");
        assert_eq!(Principal::from_json(&jane.to_json()).as_ref(), Some(&jane));
        assert!(jane.is(&jane));
        assert!(!jane.is(&person("https://issuer", "2")));
        assert!(!jane.is(&person("https://other", "1")));
        assert!(!jane.is(&Principal::named("jane")), "a caller without an ID token");
        assert!(
            Principal::named("jane").is(&jane),
            "an owner whom an admin wrote down by name"
        );
    }
}
