//! Conditions as kube-bind defines them: with a severity, sorted with `Ready` first, which summarizes the others.
//!
//! The present time is always an argument, so that callers can be tested.

use std::cmp::Ordering;

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::times;

mod access;

pub use access::Conditions;

/// Type of the condition that summarizes all others.
pub const READY: &str = "Ready";
/// Type of the condition of a binding or bundle that says whether its Secret gives access to the provider. It is False if the
/// Secret is missing or is no kubeconfig, if its credential has expired, or if it leads to another provider
/// (`ProviderChanged`).
pub const SECRET_VALID: &str = "SecretValid";
/// Type of the condition of a binding that says whether its export exists and its APIs are installed. It is False if the
/// provider cannot be reached, has no such export or removed it (`ExportRemoved`), if the bundle of the binding no longer
/// selects it (`ExportNotSelected`), or if an API cannot be installed here (`ProtectedGroup`,
/// `ForeignCustomResourceDefinition`, ...).
pub const CONNECTED: &str = "Connected";
/// Type of the condition of a binding that says whether the provider receives heartbeats. It is also False if the contract
/// serves another cluster (`ConsumerClusterMismatch`).
pub const HEARTBEATING: &str = "Heartbeating";
/// Type of the condition of a binding that says whether both clusters are watched.
pub const INFORMERS_SYNCED: &str = "InformersSynced";
/// Type of the condition of a binding that says whether the consumer's CRDs match the provider's schemas. It is also False if
/// a change would break objects (`IncompatibleSchema`): then sync continues with the installed schema.
pub const SCHEMA_IN_SYNC: &str = "SchemaInSync";
/// Type of the condition of a binding that is True (`SourcesMissing`) while copies have lost their source and nobody was seen to
/// delete it: these orphans are kept. Its message says how many there are, why, and how they end. Otherwise there is no such
/// condition. It does not make a binding less ready.
pub const ORPHANED_OBJECTS: &str = "OrphanedObjects";
/// Type of a condition that former versions set on bindings, to say whether so many objects were missing at once that no copy was
/// deleted. It is removed where it is found.
pub const DELETIONS_SYNCED: &str = "DeletionsSynced";
/// Type of the condition of a bundle that says whether its provider answers. It is False if the provider cannot be reached
/// (`ProviderUnreachable`), refuses the credential (`ProviderUnauthorized`), denies access (`ProviderForbidden`), or no longer
/// has the contract (`ContractNotFound`).
pub const PROVIDER_REACHABLE: &str = "ProviderReachable";
/// Type of the condition of a binding or bundle that is False while the konnector lacks rights in the contract namespace
/// (`RightsMissing`, or `ContractUnverified`); otherwise there is no such condition.
pub const PROVIDER_ACCESS_COMPLETE: &str = "ProviderAccessComplete";
/// Type of the condition of a binding or bundle that is False while the konnector does not use all that the provider sends: it exceeds a
/// limit, so that nothing is synced with it ([`PROVIDER_LIMIT_EXCEEDED`]), or objects have invalid names and are skipped
/// ([`INVALID_NAMES`]). Otherwise there is no such condition.
pub const PROVIDER_DATA_ACCEPTED: &str = "ProviderDataAccepted";
/// Type of the condition of a binding that says whether all objects are in sync.
pub const OBJECTS_IN_SYNC: &str = "ObjectsInSync";
/// Type of the condition of a binding that says whether claimed objects are in sync. The message lists what is claimed and
/// what is rejected. It is False if the record of accepted claims is unreadable (`AcceptedClaimsUnreadable`), the konnector
/// refuses a claim (`ClaimRefused`), a claim is wider than what the user accepted (`ClaimNotAccepted`), lacks rights
/// (`RightsMissing`) or fails (`ClaimFailing`), while copies are being deleted (`Withdrawing`), and until the first lists
/// (`ClaimsSyncing`).
pub const PERMISSION_CLAIMS_IN_SYNC: &str = "PermissionClaimsInSync";
/// Type of the condition of a binding that is False (`Paused`) while the user pauses it.
pub const ACTIVE: &str = "Active";
/// Type of the condition of a binding that says how far its deletion is. Its reason is `Unbinding`, `Stuck` if the user must
/// act, or `Paused`.
pub const DRAINING: &str = "Draining";

/// Reason of [`CONNECTED`]: the provider removed the export.
pub const EXPORT_REMOVED: &str = "ExportRemoved";
/// Reason of [`PROVIDER_ACCESS_COMPLETE`]: the konnector may not do all that it needs in the contract namespace.
pub const RIGHTS_MISSING: &str = "RightsMissing";
/// Reason of [`PROVIDER_DATA_ACCEPTED`]: the provider sends more than the limits of the konnector allow.
pub const PROVIDER_LIMIT_EXCEEDED: &str = "ProviderLimitExceeded";
/// Reason of [`PROVIDER_DATA_ACCEPTED`]: objects of the provider have names that cannot be used.
pub const INVALID_NAMES: &str = "InvalidNames";
/// Reason of several conditions: the konnector may not read what tells one contract from another, so that it deletes and ends
/// nothing.
pub const CONTRACT_UNVERIFIED: &str = "ContractUnverified";
/// Reason of [`CONNECTED`]: the selector of the bundle no longer matches the export.
pub const EXPORT_NOT_SELECTED: &str = "ExportNotSelected";
/// Reason of [`PERMISSION_CLAIMS_IN_SYNC`]: a claim is wider than what the user accepted.
pub const CLAIM_NOT_ACCEPTED: &str = "ClaimNotAccepted";

/// One aspect of an object's state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about, such as Ready or SecretValid.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    #[schemars(with = "String")]
    pub status: ConditionStatus,
    /// How bad it is; only where the status is False.
    #[serde(default, skip_serializing_if = "Severity::is_none")]
    #[schemars(with = "String")]
    pub severity: Severity,
    /// When status, reason, message or severity last changed.
    #[serde(deserialize_with = "times::or_epoch")]
    pub last_transition_time: Time,
    /// When it was last looked at, where that is told. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// Why, as one word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, as a sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Whether the condition holds.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[serde(from = "String", into = "&'static str")]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is unknown whether it holds, or the status is not one of Kubernetes'.
    Unknown,
}

/// How bad a condition is that does not hold.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[serde(from = "String", into = "&'static str")]
pub enum Severity {
    /// Somebody must act.
    Error,
    /// It works, but not as it should.
    Warning,
    /// Nothing is wrong; it is on its way.
    Info,
    /// Not stated, as in conditions that hold.
    #[default]
    None,
}

/// Makes a condition with status True. [`set`] sets its time.
pub fn true_condition(type_: impl Into<String>) -> Condition {
    Condition {
        type_: type_.into(),
        status: ConditionStatus::True,
        severity: Severity::None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        last_probe_time: None,
        reason: String::new(),
        message: String::new(),
    }
}

/// Makes a condition with status False, with its reason. [`set`] sets its time.
pub fn false_condition(
    type_: impl Into<String>,
    severity: Severity,
    reason: impl Into<String>,
    message: impl Into<String>,
) -> Condition {
    Condition {
        status: ConditionStatus::False,
        severity,
        reason: reason.into(),
        message: message.into(),
        ..true_condition(type_)
    }
}

/// Makes a condition with status Unknown, with its reason. [`set`] sets its time.
pub fn unknown_condition(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> Condition {
    Condition {
        status: ConditionStatus::Unknown,
        reason: reason.into(),
        message: message.into(),
        ..true_condition(type_)
    }
}

/// Returns the condition of a type.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether there is a condition of a type with status True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// Adds or replaces a condition. Returns whether anything but its times differs from the former one.
///
/// The transition time is `now` in whole seconds if anything differs, else it stays. The time of the last probe is replaced, but
/// does not count as a difference.
pub fn set(conditions: &mut Vec<Condition>, condition: Condition, now: Timestamp) -> bool {
    let before = conditions.iter().position(|other| other.type_ == condition.type_);
    if let Some(at) = before.filter(|at| conditions[*at].says_the_same(&condition)) {
        conditions[at].last_probe_time = condition.last_probe_time;
        sort(conditions);
        return false;
    }
    let condition = Condition {
        last_transition_time: Time(whole_seconds(now)),
        ..condition
    };
    match before {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    sort(conditions);
    true
}

/// Removes the condition of a type; returns whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// Sets `Ready` to the summary of all other conditions; returns whether it changed. Without others it stays as it is.
pub fn set_summary(conditions: &mut Vec<Condition>, now: Timestamp) -> bool {
    match summary(conditions) {
        Some(ready) => set(conditions, ready, now),
        None => false,
    }
}

/// Returns `Ready` with the status of the worst of all other conditions: the first by type of several equally bad ones.
pub fn summary(conditions: &[Condition]) -> Option<Condition> {
    let worst = conditions
        .iter()
        .filter(|condition| condition.type_ != READY)
        .min_by_key(|condition| (condition.rank(), condition.type_.as_str()))?;
    Some(match worst.status {
        ConditionStatus::True => true_condition(READY),
        ConditionStatus::False | ConditionStatus::Unknown => Condition {
            type_: READY.to_owned(),
            last_probe_time: None,
            ..worst.clone()
        },
    })
}

impl Condition {
    /// Whether the condition holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.status == other.status
            && self.severity == other.severity
            && self.reason == other.reason
            && self.message == other.message
    }

    /// Ranks a condition from 0, the worst. False without a severity counts as an error, so that it does not hide a failure.
    fn rank(&self) -> u8 {
        match (self.status, self.severity) {
            (ConditionStatus::False, Severity::Error | Severity::None) => 0,
            (ConditionStatus::False, Severity::Warning) => 1,
            (ConditionStatus::False, Severity::Info) => 2,
            (ConditionStatus::True, _) => 3,
            (ConditionStatus::Unknown, _) => 4,
        }
    }
}

impl ConditionStatus {
    /// Returns the status as it is in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Severity {
    /// Returns the severity as it is in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
            Self::None => "",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl From<String> for ConditionStatus {
    fn from(status: String) -> Self {
        match status.as_str() {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

impl From<ConditionStatus> for &'static str {
    fn from(status: ConditionStatus) -> Self {
        status.as_str()
    }
}

impl From<String> for Severity {
    fn from(severity: String) -> Self {
        match severity.as_str() {
            "Error" => Self::Error,
            "Warning" => Self::Warning,
            "Info" => Self::Info,
            _ => Self::None,
        }
    }
}

impl From<Severity> for &'static str {
    fn from(severity: Severity) -> Self {
        severity.as_str()
    }
}

fn sort(conditions: &mut [Condition]) {
    conditions.sort_by(|a, b| match (a.type_ == READY, b.type_ == READY) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        _ => a.type_.cmp(&b.type_),
    });
}

fn whole_seconds(now: Timestamp) -> Timestamp {
    // Rounding to seconds fails only beyond the year 9999.
    now.round(
        jiff::TimestampRound::new()
            .smallest(Unit::Second)
            .mode(jiff::RoundMode::Floor),
    )
    .unwrap_or(now)
}

#[cfg(test)]
mod tests;
