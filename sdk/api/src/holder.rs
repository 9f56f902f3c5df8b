//! The holder of a contract: the one konnector deployment that may write its objects. Provider and consumer both record it, each
//! by the last record that it has seen, so that a clone or a restored backup of either is noticed.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Condition, Severity,
    conditions::{self, false_condition, true_condition},
    hash,
    v1alpha2::ClusterBinding,
};

/// Type of the condition of a ClusterBinding whose message ends with the [`HolderRecord`] of the contract. It is False
/// ([`CONTESTED`]) once a konnector has found that a second one holds the contract too.
pub const HELD: &str = "Held";
/// Reason of [`HELD`]: two konnectors hold the contract, and neither goes on.
pub const CONTESTED: &str = "Contested";
/// Number of attempts that a chain keeps.
const ATTEMPTS_MAX: usize = 4;
/// What comes before the digest at the end of a message.
const CLOSING: &str = " (holder ";
/// Number of hexadecimal digits of a digest.
const DIGEST_LENGTH: usize = 32;

/// One step of a holder: each heartbeat makes a new one, with a random nonce. Its text is `<instance>/<generation>/<nonce>`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(try_from = "String", into = "String")]
pub struct HolderRecord {
    /// Random name of the holder. A new one is made only when a contract is taken, or when the user accepts a holder.
    pub instance: String,
    /// Number of the step. It only words messages.
    pub generation: u64,
    /// Random name of the step.
    pub nonce: String,
}

/// What the consumer records of a contract: the holder's last step that the provider is known to have, and the steps that it may have.
/// In `attempts`, `None` stands for a provider without a record.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderChain {
    /// The last step that the provider is known to have; `None` if it is known to have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<HolderRecord>,
    /// Steps that were begun since, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Option<HolderRecord>>,
    /// UID of the ClusterBinding that has `current`; `None` if that is not known. It only words messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
}

/// What the ClusterBinding of a contract says of its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedHolder {
    /// The last step; `None` if no konnector with this record has served the contract.
    pub record: Option<HolderRecord>,
    /// Whether a konnector found that a second one holds the contract.
    pub is_contested: bool,
    /// Whether the last heartbeat came without a step, as those of older konnectors do.
    pub is_bypassed: bool,
    /// UID of the ClusterBinding; `None` if there is none.
    pub binding: Option<String>,
}

/// Digest of what a ClusterBinding says of its holder: 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderDigest(String);

/// What the user says about the holder of a contract, as annotation [`crate::annotations::ACCEPT_HOLDER`] holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderOrder {
    /// This konnector becomes the holder in place of the recorded one that has this digest, which the user saw.
    Accept(HolderDigest),
    /// This konnector, which holds the contract, begins anew, so that older states of objects are written: `held`.
    BeginAnew,
}

/// The text is no record or no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is neither a record <instance>/<generation>/<nonce>, nor an order <digest|held>")]
pub struct HolderTextError;

// === impl HolderRecord ===

impl fmt::Display for HolderRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.instance, self.generation, self.nonce)
    }
}

impl FromStr for HolderRecord {
    type Err = HolderTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('/');
        let (Some(instance), Some(generation), Some(nonce), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(HolderTextError);
        };
        Ok(Self {
            instance: instance.to_owned(),
            generation: generation.parse().map_err(|_| HolderTextError)?,
            nonce: nonce.to_owned(),
        })
    }
}

impl TryFrom<String> for HolderRecord {
    type Error = HolderTextError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HolderRecord> for String {
    fn from(record: HolderRecord) -> Self {
        record.to_string()
    }
}

impl HolderRecord {
    /// The condition of a ClusterBinding that holds the record.
    pub fn condition(&self) -> Condition {
        Condition {
            message: self.to_string(),
            ..true_condition(HELD)
        }
    }

    /// The condition of a ClusterBinding on which another konnector than ours has put the record while ours holds the contract.
    pub fn contested(&self) -> Condition {
        let message = format!(
            "two konnectors hold this contract, so that neither writes; the consumer's user ends that by kubectl bind accept: {self}"
        );
        false_condition(HELD, Severity::Error, CONTESTED, message)
    }
}

// === impl HolderChain ===

impl HolderChain {
    /// Whether the provider may have this record by what this chain knows. An empty chain knows a provider without a record.
    pub fn contains(&self, record: Option<&HolderRecord>) -> bool {
        self.current.as_ref() == record || self.attempts.iter().any(|attempt| attempt.as_ref() == record)
    }

    /// The chain after an attempt was begun, `None` being the attempt to leave the provider without a record. `recorded` is what the
    /// provider has; it becomes the current step if the chain contains it.
    #[must_use]
    pub fn begin(&self, recorded: Option<&HolderRecord>, attempt: Option<HolderRecord>) -> Self {
        let current = if self.contains(recorded) {
            recorded.cloned()
        } else {
            self.current.clone()
        };
        let before = self
            .attempts
            .iter()
            .filter(|known| **known != current && **known != attempt);
        let mut attempts: Vec<_> = before.cloned().collect();
        attempts.push(attempt);
        let surplus = attempts.len().saturating_sub(ATTEMPTS_MAX);
        attempts.drain(..surplus);
        Self {
            current,
            attempts,
            binding: self.binding.clone(),
        }
    }

    /// The chain after the provider was seen to have a record.
    #[must_use]
    pub fn fold(record: HolderRecord) -> Self {
        Self {
            current: Some(record),
            attempts: Vec::new(),
            binding: None,
        }
    }

    /// The chain with the UID of the ClusterBinding that has its current step.
    #[must_use]
    pub fn on(self, binding: Option<&str>) -> Self {
        Self {
            binding: binding.map(str::to_owned),
            ..self
        }
    }

    /// Whether the ClusterBinding that had the current step is known to be gone: there is none of this UID any more.
    pub fn has_lost_binding(&self, binding: Option<&str>) -> bool {
        self.binding.is_some() && self.binding.as_deref() != binding
    }

    /// The step that was begun last, or else the one that the provider has.
    pub fn last(&self) -> Option<&HolderRecord> {
        self.attempts.iter().rev().chain([&self.current]).flatten().next()
    }

    /// The highest generation of its steps; 0 if it has none.
    pub fn generation(&self) -> u64 {
        let steps = self.attempts.iter().chain([&self.current]).flatten();
        steps.map(|step| step.generation).max().unwrap_or_default()
    }
}

// === impl RecordedHolder ===

impl RecordedHolder {
    /// Reads what a ClusterBinding says.
    pub fn of(binding: &ClusterBinding) -> Self {
        let none = Self {
            binding: binding.metadata.uid.clone(),
            ..Self::default()
        };
        let Some(status) = &binding.status else {
            return none;
        };
        let Some(held) = conditions::get(&status.conditions, HELD) else {
            return none;
        };
        let text = held.message.rsplit(' ').next().unwrap_or_default();
        // What cannot be read is nobody's known step.
        let record = text.parse().unwrap_or_else(|_| HolderRecord {
            instance: text.replace('/', "-"),
            generation: 0,
            nonce: String::new(),
        });
        let beaten = status.last_heartbeat_time.as_ref().map(|beaten| seconds(beaten.0));
        Self {
            record: Some(record),
            is_contested: !held.is_true(),
            // A heartbeat with a step sets both times.
            is_bypassed: held.is_true() && beaten != Some(seconds(held.last_transition_time.0)),
            ..none
        }
    }

    /// The digest by which the user accepts it. A holder that goes on has the same one with each of its steps, and an order that was
    /// carried out is for no later holder, since each acceptance makes a new instance.
    pub fn digest(&self) -> HolderDigest {
        let instance = self.record.as_ref().map_or("", |record| record.instance.as_str());
        let contested = if self.is_contested { CONTESTED } else { "" };
        let mut digest = hash::hex(&hash::of_parts([instance, contested]));
        digest.truncate(DIGEST_LENGTH);
        HolderDigest(digest)
    }
}

fn seconds(time: Timestamp) -> i64 {
    // As conditions hold times.
    time.as_second()
}

// === impl HolderDigest ===

impl HolderDigest {
    /// Reads the digest that ends a message of the condition [`HELD`] of a binding, as [`Self::closing`] writes it.
    pub fn of_message(message: &str) -> Option<Self> {
        let (_, told) = message.rsplit_once(CLOSING)?;
        told.strip_suffix(')')?.parse().ok()
    }

    /// The end of a message that names the digest, so that a program can accept it.
    pub fn closing(&self) -> String {
        format!("{CLOSING}{})", self.0)
    }
}

impl fmt::Display for HolderDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HolderDigest {
    type Err = HolderTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digest =
            text.len() == DIGEST_LENGTH && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_digest.then(|| Self(text.to_owned())).ok_or(HolderTextError)
    }
}

// === impl HolderOrder ===

impl HolderOrder {
    const BEGIN_ANEW: &'static str = "held";
}

impl fmt::Display for HolderOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept(digest) => digest.fmt(f),
            Self::BeginAnew => f.write_str(Self::BEGIN_ANEW),
        }
    }
}

impl FromStr for HolderOrder {
    type Err = HolderTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            Self::BEGIN_ANEW => Ok(Self::BeginAnew),
            digest => digest.parse().map(Self::Accept),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use proptest::prelude::*;

    use super::*;
    use crate::v1alpha2::{ClusterBindingSpec, ClusterBindingStatus};

    fn step(generation: u64, nonce: &str) -> HolderRecord {
        HolderRecord {
            instance: "i".to_owned(),
            generation,
            nonce: nonce.to_owned(),
        }
    }

    fn binding(condition: Option<Condition>, beaten: i64) -> ClusterBinding {
        let mut binding = ClusterBinding::new("cluster", ClusterBindingSpec::default());
        let mut status = ClusterBindingStatus {
            last_heartbeat_time: Some(Time(Timestamp::from_second(beaten).unwrap())),
            ..ClusterBindingStatus::default()
        };
        if let Some(condition) = condition {
            conditions::set(&mut status.conditions, condition, Timestamp::from_second(5).unwrap());
        }
        binding.status = Some(status);
        binding
    }

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let record = step(7, "n");
        assert_eq!(record.to_string(), "i/7/n");
        assert_eq!("i/7/n".parse(), Ok(record));
        for wrong in ["", "i", "i/7", "i/x/n", "i/7/n/m"] {
            assert_eq!(wrong.parse::<HolderRecord>(), Err(HolderTextError), "{wrong}");
        }
    }

    #[test]
    fn a_cluster_binding_tells_its_holder() {
        assert_eq!(RecordedHolder::of(&binding(None, 5)), RecordedHolder::default());
        let held = RecordedHolder::of(&binding(Some(step(7, "n").condition()), 5));
        let record = Some(step(7, "n"));
        assert_eq!(
            held,
            RecordedHolder {
                record: record.clone(),
                ..RecordedHolder::default()
            }
        );
        let bypassed = RecordedHolder::of(&binding(Some(step(7, "n").condition()), 6));
        assert!(bypassed.is_bypassed && bypassed.record == record);
        assert_eq!(bypassed.digest(), held.digest());
        let later = RecordedHolder::of(&binding(Some(step(8, "o").condition()), 5));
        assert_eq!(later.digest(), held.digest(), "a step of the same holder");
        let contested = RecordedHolder::of(&binding(Some(step(7, "n").contested()), 5));
        assert!(contested.is_contested && !contested.is_bypassed && contested.record == record);
        assert_ne!(contested.digest(), held.digest());
        let mut odd = step(7, "n").condition();
        odd.message = "hello".to_owned();
        let odd = RecordedHolder::of(&binding(Some(odd), 5));
        assert!(odd.record.is_some(), "a record that cannot be read is not none");
    }

    #[test]
    fn an_order_is_read_as_it_is_written() {
        let digest = RecordedHolder::default().digest();
        for order in [HolderOrder::BeginAnew, HolderOrder::Accept(digest.clone())] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        assert_eq!("later".parse::<HolderOrder>(), Err(HolderTextError));
        let message = format!("it waits{}", digest.closing());
        assert_eq!(HolderDigest::of_message(&message), Some(digest));
        assert_eq!(HolderDigest::of_message("it waits"), None);
    }

    #[test]
    fn a_chain_is_read_as_it_is_written() {
        let chain = HolderChain::fold(step(1, "a")).begin(Some(&step(1, "a")), None);
        let text = serde_json::to_string(&chain).unwrap();
        assert_eq!(text, r#"{"current":"i/1/a","attempts":[null]}"#);
        assert_eq!(serde_json::from_str::<HolderChain>(&text).unwrap(), chain);
        assert_eq!(serde_json::to_string(&HolderChain::default()).unwrap(), "{}");
        let chain = chain.on(Some("u"));
        let text = serde_json::to_string(&chain).unwrap();
        assert_eq!(text, r#"{"current":"i/1/a","attempts":[null],"binding":"u"}"#);
        assert_eq!(serde_json::from_str::<HolderChain>(&text).unwrap(), chain);
        assert_eq!(
            chain.begin(Some(&step(1, "a")), Some(step(2, "b"))).binding.as_deref(),
            Some("u")
        );
    }

    #[test]
    fn a_chain_knows_the_cluster_binding_of_its_step() {
        let chain = HolderChain::fold(step(1, "a"));
        assert!(
            !chain.has_lost_binding(None) && !chain.has_lost_binding(Some("u")),
            "it is not known"
        );
        let chain = chain.on(Some("u"));
        assert!(!chain.has_lost_binding(Some("u")));
        assert!(chain.has_lost_binding(None) && chain.has_lost_binding(Some("v")));
        let mut anew = binding(None, 5);
        anew.metadata.uid = Some("v".to_owned());
        let recorded = RecordedHolder::of(&anew);
        assert_eq!(
            (recorded.record.is_none(), recorded.binding.as_deref()),
            (true, Some("v"))
        );
        assert_eq!(
            recorded.digest(),
            RecordedHolder::default().digest(),
            "an order holds when it is made anew"
        );
    }

    proptest! {
        /// Whatever of its attempts arrives, and whenever the process ends, the provider's record is in the chain.
        #[test]
        fn the_providers_record_stays_in_the_chain(steps in prop::collection::vec((any::<bool>(), any::<bool>()), 0..12)) {
            let (mut chain, mut recorded) = (HolderChain::default(), None);
            for (at, (arrives, folds)) in (0_u64..).zip(steps) {
                let attempt = Some(step(at, "n"));
                chain = chain.begin(recorded.as_ref(), attempt.clone());
                prop_assert!(chain.attempts.len() <= ATTEMPTS_MAX);
                if arrives {
                    recorded = attempt;
                    if let Some(record) = recorded.clone().filter(|_| folds) {
                        chain = HolderChain::fold(record);
                    }
                }
                prop_assert!(chain.contains(recorded.as_ref()));
                // A backup of the consumer from before a step that arrived does not know it.
                prop_assert!(!arrives || !HolderChain::default().contains(recorded.as_ref()));
            }
        }
    }
}
