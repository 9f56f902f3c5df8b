//! The lines of the audit log.

use std::io;

use jiff::Timestamp;
use serde::Serialize;

/// Number of the principal's groups in a line.
const GROUPS_MAX: usize = 64;
/// Longest text of a field, in bytes; longer ones are cut.
const TEXT_LENGTH_MAX: usize = 1_024;

/// One line of the audit log. It holds no token and no credential, and nothing that a caller sent except names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// When the call ended.
    pub time: Timestamp,
    /// Id of the call, as its caller got it and as the program's log has it; empty for a request made as a resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// Who called; absent if the call has no valid token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<AuditPrincipal>,
    /// The author that a request made as a resource names, where the request was refused before anybody verified that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claimed_author: String,
    /// Address and port of the connection's other end; absent for a request made as a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The method, such as `CredentialService/RenewKubeconfig`, or `BindableResourcesRequest` for a request made as a resource.
    pub method: String,
    /// The contract namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub contract: String,
    /// The template.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub template: String,
    /// Name of the export, or of the request that becomes one; for a request made as a resource with its namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Groups that a call added to the owner groups, or removed from them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whether the call only asked what would happen.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// What became of the call.
    pub decision: Decision,
    /// Why it was refused or failed, such as `TEMPLATE_BIND_DENIED`; empty if it was not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A principal in the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditPrincipal {
    /// The Kubernetes username.
    pub username: String,
    /// The UID, where the token has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The issuer of an ID token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The subject of an ID token, which its issuer never gives to another user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The groups that the token carries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// How many further groups the token carries.
    #[serde(skip_serializing_if = "is_zero")]
    pub groups_omitted: usize,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It was done.
    Allowed,
    /// It was accepted, and the controllers were not done when the call was answered.
    Pending,
    /// The caller may not do this, or asked for something that cannot be.
    Refused,
    /// The server, or the API server, could not do it, or its client gave the call up. It may have been done in part.
    Failed,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl AuditPrincipal {
    /// A principal with the first of its groups.
    pub fn new(username: &str, uid: Option<&str>, groups: &[String]) -> Self {
        Self {
            username: cut(username),
            uid: uid.map(cut),
            issuer: None,
            subject: None,
            groups: groups.iter().take(GROUPS_MAX).map(|group| cut(group)).collect(),
            groups_omitted: groups.len().saturating_sub(GROUPS_MAX),
        }
    }

    /// The principal, with issuer and subject of its ID token.
    #[must_use]
    pub fn of_token(self, source: Option<&(String, String)>) -> Self {
        Self {
            issuer: source.map(|(issuer, _)| cut(issuer)),
            subject: source.map(|(_, subject)| cut(subject)),
            ..self
        }
    }
}

impl AuditEntry {
    /// The line, with its end.
    pub(super) fn to_line(&self) -> io::Result<String> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        Ok(line)
    }
}

/// A text, cut if it is too long.
pub(crate) fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_LENGTH_MAX)].to_owned()
}
