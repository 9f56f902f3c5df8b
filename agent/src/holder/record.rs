//! What the konnector's Lease records of the contracts that it holds.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bindery_api::{
    annotations,
    holder::{HolderChain, HolderOrder, HolderRecord, RecordedHolder},
    names,
};
use bindery_runtime::lease::LeaseNotes;
use parking_lot::Mutex;

use super::{Finding, Holding, Standing, rule};

/// The name part of an annotation's key has at most this many bytes.
const KEY_MAX: usize = 63;
/// The Lease keeps the records of this many contracts that nothing here is bound to any more, so that they can be bound again without the
/// user's word: their providers may still record this konnector.
const UNUSED_MAX: usize = 8;

/// The contracts of this konnector, each with one holder for all its bindings and bundles.
#[derive(Debug)]
pub struct Holders {
    notes: LeaseNotes,
    known: Mutex<KnownHolders>,
}

#[derive(Debug, Default)]
struct KnownHolders {
    /// By UID of the contract, or by its place while the UID could not be read.
    contracts: HashMap<Arc<str>, Arc<ContractHolder>>,
    /// The key in `contracts` of the holder that was asked for last, by place of the contract.
    by_place: HashMap<Arc<str>, Arc<str>>,
}

/// What this konnector knows of the holder of one contract.
#[derive(Debug)]
pub struct ContractHolder {
    key: String,
    /// The annotation that recorded the contract while its UID could not be read.
    unverified_key: Option<String>,
    notes: LeaseNotes,
    holding: Holding,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The step that was begun last, until the provider has it.
    attempt: Option<HolderRecord>,
    /// What the user said, until it is carried out.
    order: Option<HolderOrder>,
    /// How often the Lease had gone back in time when the contract was found to be held, in this process.
    held_at: Option<u64>,
    /// Whether the contract is to be given up.
    ending: bool,
    /// Whether the provider was seen to have no such contract any more.
    gone: bool,
}

// === impl Holders ===

impl Holders {
    /// The holders that are recorded in these annotations of the konnector's Lease.
    pub fn new(notes: LeaseNotes) -> Self {
        Self {
            notes,
            known: Mutex::default(),
        }
    }

    /// Returns the holder of a contract. `unverified` is its place, by which it is known while its UID cannot be read: a session by UID
    /// and one by place have the same holder, since they write to the same ClusterBinding. The holder begins anew if no session of the
    /// contract is `open`.
    pub(crate) fn of(&self, contract_uid: &Arc<str>, unverified: Option<&str>, open: bool) -> Arc<ContractHolder> {
        let mut known = self.known.lock();
        if let Some(shared) = known.of_place(contract_uid, unverified) {
            return shared;
        }
        if let Some(place) = unverified {
            known.by_place.insert(place.into(), Arc::clone(contract_uid));
        }
        let holder = known.contracts.entry(Arc::clone(contract_uid)).or_insert_with(|| {
            Arc::new(ContractHolder {
                key: key_of(contract_uid),
                unverified_key: unverified.map(key_of),
                notes: self.notes.clone(),
                holding: Holding::default(),
                state: Mutex::default(),
            })
        });
        if !open {
            holder.begin_anew();
        }
        Arc::clone(holder)
    }

    /// Forgets contracts that are gone, and those that are too many, among the contracts that have no session and no binding or bundle
    /// here. `used` are the UIDs of the contracts that have one.
    pub(crate) fn tidy(&self, used: &BTreeSet<String>) {
        let mut known = self.known.lock();
        let mut kept: BTreeSet<_> = used.iter().map(|uid| key_of(uid)).collect();
        let mut gone = BTreeSet::new();
        known.contracts.retain(|_, holder| {
            if Arc::strong_count(holder) > 1 {
                kept.insert(holder.key.clone());
            }
            let stays = kept.contains(&holder.key);
            if !stays {
                gone.extend(holder.state.lock().gone.then(|| holder.key.clone()));
                holder.holding.set(Standing::Released);
            }
            stays
        });
        let KnownHolders { contracts, by_place } = &mut *known;
        by_place.retain(|_, uid| contracts.contains_key(uid));
        drop(known);
        let unused = self.notes.keys(annotations::HOLDER).into_iter();
        let (over, mut left): (Vec<_>, Vec<_>) = unused
            .filter(|key| !kept.contains(key))
            .partition(|key| gone.contains(key));
        let surplus = left.len().saturating_sub(UNUSED_MAX);
        for key in over.into_iter().chain(left.drain(..surplus)) {
            tracing::info!(
                key,
                "the record of a contract is forgotten, since nothing here is bound to it"
            );
            self.notes.set(&key, None);
        }
    }
}

// === impl KnownHolders ===

impl KnownHolders {
    /// The holder that has an open session of the same place, if one of both is known by its place alone.
    fn of_place(&self, contract_uid: &str, place: Option<&str>) -> Option<Arc<ContractHolder>> {
        let place = place?;
        let by = self.by_place.get(place)?;
        let is_same = **by != *contract_uid && (**by == *place || contract_uid == place);
        let holder = self.contracts.get(by).filter(|_| is_same)?;
        (Arc::strong_count(holder) > 1).then(|| Arc::clone(holder))
    }
}

// === impl ContractHolder ===

impl ContractHolder {
    /// Tells whether objects of the contract may be written.
    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    /// What the Lease records. What cannot be read counts as nothing.
    fn chain(&self) -> HolderChain {
        let unverified = || self.notes.get(self.unverified_key.as_ref()?);
        let text = self.notes.get(&self.key).or_else(unverified);
        text.and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }

    /// All records that the provider may have by what the Lease records, separated by spaces, as a renewal of the credential sends them;
    /// `None` if there are none.
    pub(crate) fn records(&self) -> Option<String> {
        let chain = self.chain();
        let records = chain.attempts.iter().chain([&chain.current]).flatten();
        let records: Vec<_> = records.map(HolderRecord::to_string).collect();
        (!records.is_empty()).then(|| records.join(" "))
    }

    /// Decides whether this konnector holds the contract or may take it.
    pub(crate) fn judge(&self, recorded: &RecordedHolder) -> Result<(), Finding> {
        rule::judge(&self.chain(), recorded)
    }

    /// The doubts that a proof which begins now clears; `None` if there are none.
    pub(crate) fn doubts(&self) -> Option<u64> {
        self.holding.doubts()
    }

    /// Notes a proof that began when there were these doubts.
    pub(crate) fn clear(&self, doubts: u64) {
        self.holding.clear(doubts);
    }

    /// Whether only another konnector can have written this, also where a cache is behind.
    pub(crate) fn is_foreign(&self, recorded: &RecordedHolder) -> bool {
        self.judge(recorded).is_err_and(|finding| !finding.may_be_late())
    }

    /// Doubts at once that this konnector still holds the contract, if another one wrote what was seen. The next heartbeat asks the provider.
    pub(crate) fn suspect(&self, recorded: &RecordedHolder) {
        if self.holding.instance().is_some() && self.is_foreign(recorded) {
            self.holding.doubt();
        }
    }

    /// Waits until a renewal of the Lease is accepted that begins after this call.
    pub(crate) async fn renewed(&self) {
        self.notes.renewed().await;
    }

    /// Renews the Lease now, and waits until that is accepted. Where another replica leads, it never is, and the process ends.
    pub(crate) async fn renew_now(&self) {
        self.notes.hurry();
        self.notes.renewed().await;
    }

    /// Whether what was found says that a second konnector holds the contract that this one held until now. A konnector whose own
    /// cluster went back in time is itself the one that does not hold it.
    pub(crate) fn is_rival(&self, finding: Finding) -> bool {
        let held_at = self.state.lock().held_at;
        finding.is_rival() && held_at == Some(self.notes.rewinds())
    }

    /// Notes that the provider has a record that the Lease contains. It proves that this konnector holds the contract once the provider
    /// has taken a step that was begun in this process: a backup of the Lease contains the last step before that too. While the provider
    /// refuses a new one, the contract stays unfenced.
    pub(crate) fn hold(&self, record: &HolderRecord) {
        let is_unfenced = self.is_unfenced();
        let state = self.state.lock();
        let is_own = state.held_at.is_some() || state.attempt.as_ref() == Some(record);
        drop(state);
        if is_unfenced || is_own {
            self.note_held();
        }
        if is_own && !is_unfenced {
            self.set_held(record);
        }
    }

    /// Whether the provider keeps no record.
    pub(crate) fn is_unfenced(&self) -> bool {
        matches!(*self.holding.standing().borrow(), Standing::Unfenced { .. })
    }

    fn note_held(&self) {
        self.state.lock().held_at = Some(self.notes.rewinds());
    }

    fn set_held(&self, record: &HolderRecord) {
        let instance = record.instance.as_str().into();
        self.holding.set(Standing::Held { instance });
    }

    /// Notes that this konnector does not hold the contract.
    pub(crate) fn wait(&self, finding: Finding, recorded: &RecordedHolder) {
        let mut state = self.state.lock();
        state.held_at = None;
        state.attempt = None;
        drop(state);
        self.holding.set(Standing::Waiting {
            finding,
            recorded: recorded.digest(),
        });
    }

    /// Notes that the provider keeps no record. A konnector that waits for the user goes on waiting.
    pub(crate) fn go_unfenced(&self, why: &str) {
        if self.holding.standing().borrow().waiting().is_none() {
            self.holding.set(Standing::Unfenced { why: why.into() });
        }
    }

    /// Whether the user has said that this konnector goes on in place of the holder that the provider records. What was said about
    /// another one is dropped.
    pub(crate) fn is_accepted(&self, recorded: &RecordedHolder) -> bool {
        let is_held = self.judge(recorded).is_ok();
        let mut state = self.state.lock();
        let is_for = |order: &HolderOrder| match order {
            HolderOrder::Accept(digest) => *digest == recorded.digest(),
            HolderOrder::BeginAnew => is_held,
        };
        let is_accepted = state.order.as_ref().is_some_and(is_for);
        if !is_accepted {
            state.order = None;
        }
        is_accepted
    }

    /// Notes what the user said. It is carried out with the next heartbeat.
    pub(crate) fn order(&self, order: HolderOrder) {
        self.state.lock().order = Some(order);
    }

    /// The next step to write to the provider: the one that was begun last, unless the provider has it. `accepted` makes a new
    /// instance, as for a contract that nobody holds.
    pub(crate) fn next(&self, recorded: &RecordedHolder, accepted: bool) -> HolderRecord {
        let chain = self.chain();
        let mut state = self.state.lock();
        let begun = state.attempt.as_ref().filter(|attempt| {
            let is_known = chain.attempts.iter().flatten().any(|known| known == *attempt);
            let is_new = recorded.record.as_ref().map(|record| &record.instance) != Some(&attempt.instance);
            is_known && recorded.record.as_ref() != Some(*attempt) && (is_new || !accepted)
        });
        if let Some(begun) = begun {
            return begun.clone();
        }
        let before = recorded.record.as_ref();
        // Copies that were written after a step which the provider has no more name its instance.
        let known = before.or_else(|| chain.last());
        let instance = known.filter(|_| !accepted).map(|known| known.instance.clone());
        let generation = before.map_or(0, |before| before.generation).max(chain.generation());
        let next = HolderRecord {
            instance: instance.unwrap_or_else(nonce),
            generation: generation.saturating_add(1),
            nonce: nonce(),
        };
        state.attempt = Some(next.clone());
        next
    }

    /// Writes a step to the Lease, before it is written to the provider: now, or with the next renewal. `None` is the step that gives the
    /// contract up. Returns whether the Lease has it.
    pub(crate) async fn announce(&self, recorded: &RecordedHolder, step: Option<&HolderRecord>, now: bool) -> bool {
        let chain = self.chain();
        let is_known = chain.attempts.iter().any(|known| known.as_ref() == step);
        if is_known {
            return true;
        }
        let binding = if chain.contains(recorded.record.as_ref()) {
            recorded.binding.clone()
        } else {
            chain.binding.clone()
        };
        let chain = chain
            .begin(recorded.record.as_ref(), step.cloned())
            .on(binding.as_deref());
        let Ok(text) = serde_json::to_string(&chain) else {
            return false;
        };
        self.notes.set(&self.key, Some(text.clone()));
        if now {
            self.notes.hurry();
        }
        self.notes.renewed().await;
        self.notes.get(&self.key) == Some(text)
    }

    /// Whether the contract was not found to be held in this process yet, so that a step is written at once.
    pub(crate) fn is_new(&self) -> bool {
        self.state.lock().held_at.is_none()
    }

    /// Whether the first step of this process was begun, and the provider is not known to have it.
    pub(crate) fn has_begun(&self) -> bool {
        let state = self.state.lock();
        state.held_at.is_none() && state.attempt.is_some()
    }

    /// Notes that the provider has accepted a step, on the ClusterBinding of this UID. The Lease forgets the other ones with its next
    /// renewal.
    pub(crate) fn accepted(&self, step: HolderRecord, binding: Option<&str>) {
        let mut state = self.state.lock();
        (state.attempt, state.order) = (None, None);
        drop(state);
        self.note_held();
        self.set_held(&step);
        let text = serde_json::to_string(&HolderChain::fold(step).on(binding)).ok();
        if text.is_some() {
            self.notes.set(&self.key, text);
        }
    }

    /// Notes whether the provider has no such contract any more.
    pub(crate) fn note_gone(&self, is_gone: bool) {
        self.state.lock().gone = is_gone;
    }

    /// Gives the contract up with the next heartbeat, because its last binding ends.
    pub(crate) fn end(&self) {
        self.state.lock().ending = true;
    }

    /// Whether the contract is to be given up.
    pub(crate) fn is_ending(&self) -> bool {
        self.state.lock().ending
    }

    /// Takes the contract again, for a binding that does not end.
    pub(crate) fn resume(&self) {
        if std::mem::take(&mut self.state.lock().ending) {
            self.begin_anew();
        }
    }

    /// Notes that the contract was given up. `is_cleared` says whether the provider has no record any more; otherwise the Lease keeps
    /// its own, by which this konnector may take the contract again.
    pub(crate) fn ended(&self, is_cleared: bool) {
        if is_cleared {
            self.notes.set(&self.key, None);
        }
        self.holding.set(Standing::Released);
    }

    fn begin_anew(&self) {
        *self.state.lock() = State::default();
        self.holding.set(Standing::Pending);
    }
}

/// The annotation that records a contract.
fn key_of(contract_uid: &str) -> String {
    format!(
        "{}/{}",
        annotations::HOLDER,
        names::fit(contract_uid.to_owned(), KEY_MAX)
    )
}

/// A random name.
fn nonce() -> String {
    format!("{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn holder() -> Arc<ContractHolder> {
        Holders::new(LeaseNotes::default()).of(&"uid".into(), None, false)
    }

    fn recorded(text: &str) -> RecordedHolder {
        RecordedHolder {
            record: Some(text.parse().unwrap()),
            ..RecordedHolder::default()
        }
    }

    #[test]
    fn a_step_keeps_the_instance_unless_the_user_accepts_this_konnector() {
        let holder = holder();
        let first = holder.next(&RecordedHolder::default(), false);
        assert_eq!(first.generation, 1);
        let known = recorded("i/7/n");
        let next = holder.next(&known, false);
        assert_eq!((next.instance.as_str(), next.generation), ("i", 8));
        assert_ne!(next.nonce, "n");
        let accepted = holder.next(&known, true);
        assert_eq!(accepted.generation, 8);
        assert_ne!(accepted.instance, "i");
    }

    #[test]
    fn a_konnector_whose_first_step_never_arrived_keeps_its_instance() {
        let lease = BTreeMap::from([(key_of("uid"), r#"{"attempts":["i/1/n"]}"#.to_owned())]);
        let holder = Holders::new(LeaseNotes::of(Some(&lease))).of(&"uid".into(), None, false);
        let next = holder.next(&RecordedHolder::default(), false);
        assert_eq!((next.instance.as_str(), next.generation), ("i", 2));
        assert_ne!(holder.next(&RecordedHolder::default(), true).instance, "i");
    }

    #[test]
    fn records_of_contracts_that_are_gone_or_too_many_are_forgotten() {
        let notes = LeaseNotes::default();
        let holders = Holders::new(notes.clone());
        let recorded = || -> Vec<_> {
            let keys = notes.keys(annotations::HOLDER).into_iter();
            keys.filter_map(|key| Some(key.split_once('/')?.1.to_owned())).collect()
        };
        let record = |uid: &str| notes.set(&key_of(uid), Some("{}".to_owned()));
        for uid in ["bound", "gone", "open", "was-gone"] {
            record(uid);
        }
        notes.set("kube-bind.io/other", Some("stays".to_owned()));
        let open = holders.of(&"open".into(), None, false);
        holders.of(&"gone".into(), None, false).note_gone(true);
        holders.of(&"bound".into(), None, false).note_gone(true);
        holders.of(&"was-gone".into(), None, false).note_gone(true);
        holders.of(&"was-gone".into(), None, true).note_gone(false);
        open.note_gone(true);
        let used = BTreeSet::from(["bound".to_owned()]);
        holders.tidy(&used);
        assert_eq!(recorded(), ["bound", "open", "was-gone"]);
        drop(open);
        for unused in 0..UNUSED_MAX + 2 {
            record(&format!("unused-{unused:02}"));
        }
        holders.tidy(&used);
        assert_eq!(recorded().len(), UNUSED_MAX + 1, "and that of the contract in use");
        assert!(recorded().contains(&"bound".to_owned()));
        assert!(notes.keys("kube-bind.io").contains(&"kube-bind.io/other".to_owned()));
    }

    #[test]
    fn a_contract_that_was_known_by_its_place_keeps_its_record() {
        let lease = BTreeMap::from([(key_of("unverified-p"), r#"{"current":"i/1/a"}"#.to_owned())]);
        let holders = Holders::new(LeaseNotes::of(Some(&lease)));
        let holder = holders.of(&"uid".into(), Some("unverified-p"), false);
        assert_eq!(holder.judge(&recorded("i/1/a")), Ok(()));
        let elsewhere = holders.of(&"other".into(), Some("unverified-q"), false);
        assert_eq!(elsewhere.judge(&recorded("i/1/a")), Err(Finding::SecondInstall));
    }

    #[test]
    fn a_session_by_uid_and_one_by_place_have_the_same_holder() {
        let holders = Holders::new(LeaseNotes::default());
        let of = |uid: &str, open| holders.of(&uid.into(), Some("unverified-p"), open);
        for (first, second) in [("unverified-p", "uid"), ("uid", "unverified-p")] {
            let held = of(first, false);
            held.accepted("i/1/a".parse().unwrap(), None);
            let same = of(second, false);
            assert!(Arc::ptr_eq(&held, &same) && held.holding().is_proven(), "{second}");
            drop(same);
            drop(held);
            holders.tidy(&BTreeSet::new());
            assert_eq!(*of(second, false).holding().standing().borrow(), Standing::Pending);
            holders.tidy(&BTreeSet::new());
        }
        let gone = of("uid", false);
        assert!(
            !Arc::ptr_eq(&gone, &of("made-anew", false)),
            "its namespace has another UID"
        );
    }

    #[test]
    fn an_order_holds_for_what_the_user_saw() {
        let holder = holder();
        let (seen, later, other) = (recorded("i/7/n"), recorded("i/8/m"), recorded("j/8/m"));
        assert!(!holder.is_accepted(&seen));
        holder.order(HolderOrder::Accept(seen.digest()));
        assert!(holder.is_accepted(&seen) && holder.is_accepted(&later));
        assert!(!holder.is_accepted(&other) && !holder.is_accepted(&seen), "it is over");
        holder.order(HolderOrder::BeginAnew);
        assert!(!holder.is_accepted(&seen), "this konnector does not hold it");
        holder.order(HolderOrder::BeginAnew);
        assert!(holder.is_accepted(&RecordedHolder::default()));
    }

    #[test]
    fn a_renewal_sends_every_record_that_the_provider_may_have() {
        assert_eq!(holder().records(), None);
        let lease = r#"{"current":"i/7/n","attempts":["i/8/m",null]}"#;
        let lease = BTreeMap::from([(key_of("uid"), lease.to_owned())]);
        let holder = Holders::new(LeaseNotes::of(Some(&lease))).of(&"uid".into(), None, false);
        assert_eq!(holder.records().as_deref(), Some("i/8/m i/7/n"));
        // The Lease forgets the others with its next renewal.
        holder.accepted("i/8/m".parse().unwrap(), None);
        assert!(holder.records().is_some_and(|sent| sent.contains("i/8/m")));
    }

    #[test]
    fn a_contract_is_held_from_the_first_step_of_the_process_on() {
        let holder = holder();
        let standing = || holder.holding().standing().borrow().clone();
        let held = || Standing::Held { instance: "i".into() };
        let last = recorded("i/7/n");
        holder.hold(last.record.as_ref().unwrap());
        assert_eq!(standing(), Standing::Pending, "a clone has the last step too");
        assert!(holder.is_new() && !holder.is_rival(Finding::RestoredOrCloned));
        // The provider has the step, and its answer was lost.
        assert!(!holder.has_begun());
        let next = holder.next(&last, false);
        assert!(holder.has_begun());
        holder.hold(&next);
        assert_eq!(standing(), held());
        assert!(!holder.has_begun() && !holder.is_new() && holder.is_rival(Finding::RestoredOrCloned));
        // Later steps need no answer.
        holder.hold(&holder.next(&recorded(&next.to_string()), false));
        assert_eq!(standing(), held());
        holder.wait(Finding::Contested, &last);
        holder.hold(&next);
        assert!(standing().waiting().is_some() && holder.is_new());
    }

    #[test]
    fn what_only_another_konnector_writes_stops_all_writes_at_once() {
        let lease = BTreeMap::from([(key_of("uid"), r#"{"current":"i/8/m"}"#.to_owned())]);
        let holder = Holders::new(LeaseNotes::of(Some(&lease))).of(&"uid".into(), None, false);
        let later = recorded("i/9/x");
        holder.suspect(&later);
        assert_eq!(holder.doubts(), None, "it holds nothing yet");
        holder.accepted("i/8/m".parse().unwrap(), Some("u"));
        holder.suspect(&recorded("i/8/m"));
        holder.suspect(&recorded("i/7/n"));
        assert!(
            holder.holding().is_proven(),
            "a cache that is behind shows the last step but one"
        );
        holder.suspect(&later);
        assert!(!holder.holding().is_proven());
        assert!(holder.is_rival(Finding::RestoredOrCloned), "it may contest it");
        holder.clear(holder.doubts().unwrap());
        let contested = RecordedHolder {
            is_contested: true,
            ..recorded("i/8/m")
        };
        holder.suspect(&contested);
        assert!(!holder.holding().is_proven());
    }

    #[test]
    fn who_waits_goes_on_only_as_the_holder() {
        let holder = holder();
        let standing = || holder.holding().standing().borrow().clone();
        assert_eq!(standing(), Standing::Pending);
        let foreign = recorded("i/7/n");
        assert_eq!(holder.judge(&foreign), Err(Finding::SecondInstall));
        holder.wait(Finding::SecondInstall, &foreign);
        holder.go_unfenced("it may not be read");
        assert!(
            standing().waiting().is_some(),
            "what cannot be read any more is not forgotten"
        );
        holder.accepted("j/8/m".parse().unwrap(), Some("u"));
        assert_eq!(standing(), Standing::Held { instance: "j".into() });
        assert!(holder.is_rival(Finding::OtherHolder) && !holder.is_rival(Finding::ProviderWentBack));
        holder.go_unfenced("it may not be written");
        holder.hold(&"j/8/m".parse().unwrap());
        assert!(
            matches!(standing(), Standing::Unfenced { .. }),
            "a new step is refused still"
        );
        holder.end();
        holder.ended(true);
        assert_eq!(standing(), Standing::Released);
        holder.resume();
        assert_eq!(standing(), Standing::Pending);
    }
}
