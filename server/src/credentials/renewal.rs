//! Generations of the renewal tokens of a contract, recorded on its ClusterBinding. The first use of a new token ends those before
//! it. What an owner got by binding is good until it, or what an owner got later, is used: it may be installed long after. A token that ended and is used again by the konnector that holds the contract proves that a second party renewed with a copy:
//! renewal is locked then, until an owner binds again. All functions decide without a client.

use std::{fmt::Write as _, time::Duration};

use bindery_api::{
    annotations,
    holder::{HolderRecord, RecordedHolder},
    revocation::Revocation,
    v1alpha2::ClusterBinding,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Number of tokens that may be granted, for another token or to an owner, and not used yet. Each lost answer leaves one behind; the oldest
/// ends when there are more.
const UNUSED_MAX: usize = 8;

/// Digest of a renewal token: SHA-256 in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenDigest(String);

/// The renewal tokens of a contract that are good, as the annotation `backend.kube-bind.io/renewal` of its ClusterBinding holds them.
/// One that is newer than all that were used or granted for another is good, too: a server that keeps no record granted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RenewalRecord {
    /// The token that was used last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<TokenDigest>,
    /// Tokens that were granted for it and not used yet, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<TokenDigest>,
    /// Tokens that owners got by binding and that were not used yet, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owned: Vec<IssuedToken>,
    /// The latest time of issue of all tokens that were used, or granted for another, by the API server's clock.
    pub newest: Timestamp,
    /// When the chain of renewals began, with the first token of an owner's bind.
    pub began: Timestamp,
    /// Why renewal is locked, since when, and which requests to bind do not end that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<Revocation>,
}

/// A renewal token, with its time of issue by the API server's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedToken {
    /// Digest of the token.
    pub digest: TokenDigest,
    /// When the API server issued it.
    pub issued: Timestamp,
}

/// What a konnector proves of the holder of the contract that it renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderProof {
    /// Nothing: it sent no record, as older konnectors do, or the provider has none that settles it.
    Absent,
    /// It sent the record that the provider has.
    Present,
    /// It sent records, and the provider has another one: it is a clone, a restored backup, or a second install.
    Stale,
}

/// Why a token is not renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalRefusal {
    /// Renewal is locked since this time.
    Locked(Timestamp),
    /// The token ended, and the konnector that holds the contract uses it: renewal has to be locked.
    Reused,
    /// The token ended when a newer one was used.
    Ended,
    /// Another konnector holds the contract.
    OtherHolder,
    /// The chain of renewals began at this time, which is longer ago than the provider allows.
    TooOld(Timestamp),
}

// === impl TokenDigest ===

impl TokenDigest {
    /// The digest with these bytes.
    pub fn new(digest: [u8; 32]) -> Self {
        let mut text = String::with_capacity(2 * digest.len());
        for byte in digest {
            // A String takes everything.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }
}

// === impl HolderProof ===

impl HolderProof {
    /// Compares the records that a konnector sent, separated by spaces, with the one that a ClusterBinding has. The konnector sends
    /// all records that the provider may have by what it knows, for the answer to its last heartbeat may have been lost.
    pub fn of(sent: &str, binding: Option<&ClusterBinding>) -> Self {
        if sent.trim().is_empty() {
            return Self::Absent;
        }
        let recorded = binding.map(RecordedHolder::of).unwrap_or_default();
        let Some(record) = recorded
            .record
            .filter(|_| !recorded.is_contested && !recorded.is_bypassed)
        else {
            return Self::Absent;
        };
        let mut sent = sent.split_whitespace();
        let is_sent = sent.any(|text| text.parse::<HolderRecord>().as_ref() == Ok(&record));
        if is_sent { Self::Present } else { Self::Stale }
    }
}

// === impl RenewalRecord ===

/// The record of a contract, if a renewal has made one. A record that cannot be read counts as locked.
pub fn renewal(binding: &ClusterBinding) -> Option<RenewalRecord> {
    let text = binding.annotations().get(annotations::RENEWAL)?;
    let unreadable = || RenewalRecord {
        lock: Some(Revocation::default()),
        ..RenewalRecord::default()
    };
    Some(serde_json::from_str(text).unwrap_or_else(|_| unreadable()))
}

/// The lock of a contract's renewal, if it is locked.
pub fn lock(binding: &ClusterBinding) -> Option<Revocation> {
    renewal(binding)?.lock
}

/// Decides whether a token may be renewed, and returns the record after its use. `record` is that of the contract, `max_age` the
/// longest time from a bind to the last renewal; `None` is no limit.
pub fn use_token(
    record: Option<&RenewalRecord>,
    token: &IssuedToken,
    proof: HolderProof,
    max_age: Option<Duration>,
    now: Timestamp,
) -> Result<RenewalRecord, RenewalRefusal> {
    if let Some(lock) = record.and_then(|record| record.lock.as_ref()) {
        return Err(RenewalRefusal::Locked(lock.time));
    }
    if proof == HolderProof::Stale {
        return Err(RenewalRefusal::OtherHolder);
    }
    let used = match record {
        Some(record) => record.used(token).ok_or(match proof {
            HolderProof::Present => RenewalRefusal::Reused,
            HolderProof::Absent | HolderProof::Stale => RenewalRefusal::Ended,
        })?,
        None => RenewalRecord::begun(token),
    };
    match max_age.and_then(|max_age| SignedDuration::try_from(max_age).ok()) {
        Some(max_age) if now.duration_since(used.began) > max_age => Err(RenewalRefusal::TooOld(used.began)),
        _ => Ok(used),
    }
}

impl RenewalRecord {
    /// The record of a chain whose first token is used.
    fn begun(token: &IssuedToken) -> Self {
        Self {
            current: Some(token.digest.clone()),
            newest: token.issued,
            began: token.issued,
            ..Self::default()
        }
    }

    /// The record after the use of a token; `None` if the token has ended.
    fn used(&self, token: &IssuedToken) -> Option<Self> {
        if self.current.as_ref() == Some(&token.digest) {
            return Some(self.clone());
        }
        if let Some(place) = self.owned.iter().position(|owned| owned.digest == token.digest) {
            return Some(Self {
                owned: self.owned[place + 1..].to_vec(),
                newest: self.newest.max(token.issued),
                ..Self::begun(token)
            });
        }
        if self.pending.contains(&token.digest) {
            return Some(Self {
                current: Some(token.digest.clone()),
                pending: Vec::new(),
                ..self.clone()
            });
        }
        // What is granted is recorded before it is handed out, so a later token that is not recorded is from a server that keeps no record.
        (token.issued > self.newest).then(|| Self {
            owned: self.owned.clone(),
            ..Self::begun(token)
        })
    }

    /// The record after a token was granted for the current one.
    #[must_use]
    pub fn granted(mut self, token: &IssuedToken) -> Self {
        self.pending.push(token.digest.clone());
        keep_last(&mut self.pending);
        self.newest = self.newest.max(token.issued);
        self
    }

    /// The record after an owner got a token by binding.
    #[must_use]
    pub fn granted_to_owner(mut self, token: &IssuedToken) -> Self {
        self.owned.push(token.clone());
        keep_last(&mut self.owned);
        self
    }

    /// The record of a contract whose renewal is locked from now on.
    #[must_use]
    pub fn locked(self, lock: Revocation) -> Self {
        Self {
            lock: Some(lock),
            ..self
        }
    }

    /// The record after an owner bound again, which ends a lock and all tokens that were issued before.
    #[must_use]
    pub fn unlocked(&self, now: Timestamp) -> Self {
        Self {
            newest: self.newest.max(now),
            began: now,
            ..Self::default()
        }
    }

    /// The annotation of a ClusterBinding with this record.
    pub fn annotation(&self) -> Value {
        json!({ annotations::RENEWAL: json!(self).to_string() })
    }
}

/// Forgets the oldest of too many tokens that were not used.
fn keep_last<T>(unused: &mut Vec<T>) {
    let surplus = unused.len().saturating_sub(UNUSED_MAX);
    unused.drain(..surplus);
}

#[cfg(test)]
#[path = "renewal/tests.rs"]
mod tests;
