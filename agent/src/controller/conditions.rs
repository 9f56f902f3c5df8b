//! Conditions and status writes that bindings and bundles have in common.

use bindery_api::{
    Condition, Severity, annotations,
    conditions::{
        self, CONTRACT_UNVERIFIED, EXPORT_NOT_SELECTED, EXPORT_REMOVED, INVALID_NAMES, PROVIDER_ACCESS_COMPLETE,
        PROVIDER_DATA_ACCEPTED, PROVIDER_LIMIT_EXCEEDED, RIGHTS_MISSING, SECRET_VALID, false_condition, true_condition,
        unknown_condition,
    },
    holder::HELD,
};
use bindery_runtime::guard::Limit;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{access::ContractAccess, consent::Consent, observed_session::ObservedSession};
use crate::{
    holder::Standing,
    session::{connect::ConnectError, provider_rights},
};

/// Reason of a Connected condition that is False: a CRD on the consumer belongs to another owner.
pub const FOREIGN_CRD: &str = "ForeignCustomResourceDefinition";
/// Reason of a Connected condition that is False: a CRD on the consumer is offered to the binding, and its schema and the
/// provider's do not agree.
pub const SCHEMAS_DISAGREE: &str = "SchemasDisagree";
/// Reasons of a Connected condition that is False because of a CRD on the consumer.
pub const CRD_CONFLICTS: [&str; 2] = [FOREIGN_CRD, SCHEMAS_DISAGREE];
/// Reason of a SecretValid condition that is False: the backend renews no credential of the contract until the owner binds again.
pub const CREDENTIAL_RENEWAL_LOCKED: &str = "CredentialRenewalLocked";
/// Reason of an OrphanedObjects condition that is True: copies have lost their source, and nobody was seen to delete it.
pub const SOURCES_MISSING: &str = "SourcesMissing";

/// Reason of a Held condition that is Unknown: the provider keeps no record of the holder of the contract.
pub const UNFENCED: &str = "Unfenced";
/// Reason of a condition that is False: the contract serves another cluster.
pub const CONSUMER_CLUSTER_MISMATCH: &str = "ConsumerClusterMismatch";

/// How a binding or a bundle words its condition SecretValid.
#[derive(Debug)]
pub struct CredentialWording<'a> {
    /// `binding` or `bundle`.
    pub kind: &'a str,
    /// How the user gives it a new credential.
    pub renew: String,
    /// Whether reasons tell apart what is wrong with the Secret.
    pub exact: bool,
    /// Whether the user lets another provider take over.
    pub takeover: Consent,
}

/// The condition SecretValid of a binding or a bundle.
pub fn secret_valid(
    access: &ContractAccess,
    session: Option<&ObservedSession>,
    wording: &CredentialWording<'_>,
) -> Condition {
    let renew = &wording.renew;
    match access {
        ContractAccess::Problem(problem) if wording.exact => invalid(problem.exact_reason(), problem.to_string()),
        ContractAccess::Problem(problem) => invalid(problem.reason(), problem.to_string()),
        ContractAccess::Connecting => true_condition(SECRET_VALID),
        ContractAccess::Failed(failure) => unusable(failure, renew),
        ContractAccess::Changed { pinned, found } => invalid(
            "ProviderChanged",
            format!(
                "the Secret leads to contract {} ({}), but this {kind} was made for contract {pinned}; put the old Secret \
                 back, or consent by annotating the {kind} with kube-bind.io/accept-provider-change=<time, RFC 3339>{}",
                found.namespace,
                found.uid,
                wording.takeover.complaint(annotations::ACCEPT_PROVIDER_CHANGE),
                kind = wording.kind,
            ),
        ),
        ContractAccess::Reached(_) => match session {
            Some(session) => credential(session, renew),
            None => true_condition(SECRET_VALID),
        },
    }
}

/// The condition SecretValid, False for this reason.
fn invalid(reason: &str, message: String) -> Condition {
    false_condition(SECRET_VALID, Severity::Error, reason, message)
}

/// The condition SecretValid after the provider was asked with the Secret's credential and refused it or did not answer.
fn unusable(failure: &ConnectError, renew: &str) -> Condition {
    match failure {
        ConnectError::Unauthorized { .. } => invalid(
            "CredentialExpired",
            format!("{failure}; objects stay, and sync resumes with a new credential: {renew}"),
        ),
        ConnectError::Denied { .. } => invalid(
            "CredentialDenied",
            format!("{failure}; {renew}, or ask the provider's admin"),
        ),
        ConnectError::Unverified { .. } => invalid(
            CONTRACT_UNVERIFIED,
            format!("{failure}; until then nothing is synced, and objects stay"),
        ),
        ConnectError::Setup { .. } => invalid("KubeconfigSecretInvalid", format!("{failure}; {renew}")),
        // The Secret may be well: no API server has refused it.
        ConnectError::Unreachable { .. } => unknown_condition(SECRET_VALID, "ProviderUnreachable", ""),
        ConnectError::Gone { .. } => true_condition(SECRET_VALID),
    }
}

/// The condition SecretValid while a session is open.
fn credential(session: &ObservedSession, renew: &str) -> Condition {
    match (&session.expired, &session.renewal_fails) {
        (Some(why), _) => invalid(
            "CredentialExpired",
            format!("the credential has expired, and {why}; objects stay, and sync resumes with a new one: {renew}"),
        ),
        (None, Some(why)) if session.is_renewal_locked => false_condition(
            SECRET_VALID,
            Severity::Warning,
            CREDENTIAL_RENEWAL_LOCKED,
            format!("the credential works until it expires, and is not renewed any more: {why}; to go on, {renew}"),
        ),
        (None, Some(why)) => false_condition(
            SECRET_VALID,
            Severity::Warning,
            "CredentialRenewalFailing",
            format!("the credential works but cannot be renewed: {why}; if that lasts, {renew}"),
        ),
        (None, None) => true_condition(SECRET_VALID),
    }
}

/// The condition ProviderAccessComplete; `None` unless rights in the contract namespace are missing, or its UID is not the pinned one.
/// `kind` is `binding` or `bundle`, whose user may consent to the contract.
pub fn provider_access(
    access: &ContractAccess,
    session: Option<&ObservedSession>,
    kind: &str,
    takeover: &Consent,
) -> Option<Condition> {
    let session = session.filter(|session| !session.missing_rights.is_empty() || !session.is_verified())?;
    if !matches!(access, ContractAccess::Reached(_)) {
        return None;
    }
    let mut told = Vec::new();
    let reason = if session.is_known() {
        RIGHTS_MISSING
    } else {
        told.push(format!(
            "nothing tells whether namespace {} of the provider is still the same contract and serves this cluster: objects are synced \
             as far as the rights go, and nothing is deleted or unbound",
            session.contract
        ));
        CONTRACT_UNVERIFIED
    };
    if let Some(found) = &session.found
        && !session.is_verified()
    {
        told.push(format!(
            "the {kind} is pinned to {}, the namespace has UID {found} now; if that is the contract that you bound, consent to it by \
             annotating the {kind} with kube-bind.io/accept-provider-change=<time, RFC 3339>{}",
            session.contract_uid,
            takeover.complaint(annotations::ACCEPT_PROVIDER_CHANGE),
        ));
    }
    if session.is_gone() {
        told.push(format!("namespace {} does not exist on the provider", session.contract));
    }
    if !session.missing_rights.is_empty() {
        told.push(format!(
            "the konnector lacks rights in namespace {} of the provider; the provider's admin mends it by these rules in a Role of that \
             namespace: {}",
            session.contract,
            provider_rights::granting(&session.missing_rights),
        ));
    }
    Some(false_condition(
        PROVIDER_ACCESS_COMPLETE,
        Severity::Warning,
        reason,
        told.join("; "),
    ))
}

/// The condition ProviderDataAccepted; `None` unless the provider exceeds a limit, or objects of it have invalid names.
pub fn provider_data(session: Option<&ObservedSession>) -> Option<Condition> {
    let session = session?;
    let of = |severity, reason, message| Some(false_condition(PROVIDER_DATA_ACCEPTED, severity, reason, message));
    if let Some(exceeded) = session.faults.exceeded() {
        let flag = match exceeded.limit {
            Limit::Objects => Some("--provider-max-objects"),
            Limit::Bytes => Some("--provider-max-bytes"),
            Limit::Answer => None,
        };
        let raise = flag.map_or_else(String::new, |flag| {
            format!(", or raise {flag} of the konnector and its memory limit")
        });
        let message = format!(
            "the provider of contract {} sends more than {} {}, the limit of the konnector: {} were counted at {}; nothing is synced with it \
             and nothing is deleted until it sends less; ask the provider's admin what it sends{raise}",
            session.contract, exceeded.max, exceeded.limit, exceeded.count, exceeded.path,
        );
        return of(Severity::Error, PROVIDER_LIMIT_EXCEEDED, message);
    }
    let invalid = session.faults.invalid_names()?;
    let message = format!(
        "the provider of contract {} has objects at {} whose names cannot be used, such as {}; these are skipped, and all others are synced; \
         ask the provider's admin to delete them or to name them otherwise",
        session.contract, invalid.path, invalid.first,
    );
    of(Severity::Warning, INVALID_NAMES, message)
}

/// Tells why this konnector does not hold a contract, and what ends that; `None` if it is not known to be so.
pub fn not_held(session: &ObservedSession) -> Option<(&'static str, String)> {
    let (finding, recorded) = session.standing.waiting()?;
    let message = format!(
        "{}; nothing of contract {} is written on either cluster until the user accepts this cluster as the one that goes on: kubectl \
         bind accept, which first shows what would be written{}",
        finding.seen(),
        session.contract,
        recorded.closing()
    );
    Some((finding.reason(), message))
}

/// The condition Held of a binding or bundle whose conditions are `known`; `None` while this konnector is the one that holds the
/// contract.
pub fn held(access: &ContractAccess, session: Option<&ObservedSession>, known: &[Condition]) -> Option<Condition> {
    let is_found_out = |session: &&ObservedSession| {
        matches!(access, ContractAccess::Reached(_)) && session.standing != Standing::Pending
    };
    let Some(session) = session.filter(is_found_out) else {
        // What was seen last is known until it is found out again.
        return conditions::get(known, HELD).cloned();
    };
    if let Some((reason, message)) = not_held(session) {
        return Some(false_condition(HELD, Severity::Error, reason, message));
    }
    let Standing::Unfenced { why } = &session.standing else {
        return None;
    };
    let message = format!(
        "{why}, so nothing keeps a clone or a restored backup of this cluster from writing to contract {} too",
        session.contract
    );
    Some(unknown_condition(HELD, UNFENCED, message))
}

/// The condition of this type, if it says that the contract serves another cluster.
pub fn mismatch<'a>(known: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions::get(known, type_).filter(|known| known.reason == CONSUMER_CLUSTER_MISMATCH)
}

/// The conditions that deserve an event: those that stopped to hold or say something new, and Ready when it begins to hold.
pub fn turned<'a>(before: &'a [Condition], after: &'a [Condition]) -> impl Iterator<Item = &'a Condition> {
    after.iter().filter(move |condition| {
        let known = conditions::get(before, &condition.type_);
        if condition.type_ == conditions::READY {
            return condition.is_true() && !known.is_some_and(Condition::is_true);
        }
        let serious = matches!(condition.severity, Severity::Error | Severity::Warning);
        // The messages of these reasons contain counts: one event is enough, though the counts change.
        let counts = [EXPORT_REMOVED, EXPORT_NOT_SELECTED];
        let says_more = |known: &Condition| {
            known.reason != condition.reason
                || (known.message != condition.message && !counts.contains(&condition.reason.as_str()))
        };
        serious && known.is_none_or(says_more)
    })
}

/// Returns the fields of a status that a merge patch has to write, with null for fields that go.
pub fn status_changes(before: &impl Serialize, after: &impl Serialize) -> Value {
    let mut changes: Map<String, Value> = fields(before)
        .into_iter()
        .map(|(field, _)| (field, Value::Null))
        .collect();
    changes.extend(fields(after));
    Value::Object(changes)
}

/// Returns the fields of a status as JSON.
fn fields(status: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
