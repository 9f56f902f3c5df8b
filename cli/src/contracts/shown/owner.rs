//! An owner of a contract as it is printed.

use std::fmt;

use bindery_proto::v1alpha2 as proto;
use serde::{Deserialize, Serialize};

/// An owner, also as it is recorded in the annotation of a contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownOwner {
    pub(crate) username: String,
    /// UID of a ServiceAccount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
    /// Issuer of a person's ID token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) issuer: Option<String>,
    /// Subject of that token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
}

/// The usernames of owners.
pub(super) fn usernames(owners: &[ShownOwner]) -> Vec<String> {
    owners.iter().map(|owner| owner.username.clone()).collect()
}

impl From<proto::ContractOwner> for ShownOwner {
    fn from(owner: proto::ContractOwner) -> Self {
        let known = |text: String| Some(text).filter(|text| !text.is_empty());
        Self {
            username: owner.username,
            uid: known(owner.uid),
            issuer: known(owner.issuer),
            subject: known(owner.subject),
        }
    }
}

/// The username, and what tells two owners of one username apart.
impl fmt::Display for ShownOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.username)?;
        match (&self.uid, &self.issuer, &self.subject) {
            (_, Some(issuer), Some(subject)) => write!(f, " (subject {subject} of {issuer})"),
            (Some(uid), ..) => write!(f, " (UID {uid})"),
            _ => Ok(()),
        }
    }
}
