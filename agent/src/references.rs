//! Which objects bound objects refer to, kept current as the watches of the bound resources show them.
//!
//! The engines of bound resources tell of every object they see. What it refers to is noted, by the paths of the claims,
//! and whoever syncs a claim is told which of its objects are now referred to, or no longer.

mod feed;
pub(crate) mod path;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bindery_api::v1alpha2::GroupResource;
use bindery_runtime::cache::ObjectKey;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{index::give_back, model::object::Object};

pub(crate) use feed::Feed;
use path::Reference;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The references of one session. Clones are the same.
#[derive(Clone, Default)]
pub struct References {
    state: Arc<Mutex<State>>,
}

/// Which namespaces of the provider hold the provider's side of claimed objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Those that the consumer's are mapped to.
    #[default]
    Mapped,
    /// Those of the consumer's own names, which consumers share.
    Shared,
}

/// A claimed resource, for all bindings of a session that claim it alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClaimKey {
    pub resource: GroupResource,
    pub place: Place,
}

/// Whether bound objects refer to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Referenced {
    Yes,
    No,
    /// The objects that may refer to it are not all known.
    Unknown,
}

/// Who asks: what is claimed of a resource, or what is held as it is although nobody syncs it at the time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asker {
    pub claim: ClaimKey,
    pub held: bool,
}

/// What a claim asks of the objects of a bound resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    /// The resource that refers.
    pub from: GroupResource,
    /// The versions that the paths are for; all if there are none.
    pub versions: Vec<String>,
    pub reference: Reference,
    /// The namespace that a cluster-scoped object without a namespace path means; any if there is none.
    pub home: Option<Arc<str>>,
}

/// An object that is referred to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// The consumer's namespace; any if there is none.
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
}

/// What whoever syncs a claim is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Changed {
    /// These are now referred to, or no longer.
    Targets(Vec<Target>),
    /// Anything may be.
    All,
}

pub(crate) type Listener = Arc<dyn Fn(&Changed) + Send + Sync>;
type Told = Vec<(Listener, Changed)>;

#[derive(Default)]
struct State {
    questions: HashMap<Asker, Vec<Question>>,
    listeners: HashMap<Asker, Listener>,
    referrers: HashMap<GroupResource, Referrer>,
    /// How many references there are to each target.
    targets: HashMap<Arc<Asker>, HashMap<Target, u32>>,
}

/// A bound resource.
struct Referrer {
    id: u64,
    version: Arc<str>,
    /// What is asked of its objects, in this version.
    asked: Arc<[(Arc<Asker>, Question)]>,
    /// All its objects were asked all questions.
    complete: bool,
    /// Changes whenever all objects have to be seen again.
    round: watch::Sender<u64>,
    /// What each object refers to, as long as it is there; nothing of one that refers to nothing.
    objects: HashMap<ObjectKey, Vec<(Arc<Asker>, Target)>>,
    listing: Option<Listing>,
}

/// A list that is under way, and what of it refers to something.
struct Listing {
    round: u64,
    keys: HashSet<ObjectKey>,
}

// === impl References ===

impl fmt::Debug for References {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("References")
            .field("referrers", &state.referrers.len())
            .field("claims", &state.questions.len())
            .finish_non_exhaustive()
    }
}

impl References {
    /// A bound resource is watched from now on, in this version.
    pub(crate) fn feed(&self, resource: GroupResource, version: impl Into<Arc<str>>) -> Feed {
        let referrer = Referrer {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            version: version.into(),
            asked: Arc::new([]),
            complete: false,
            round: watch::Sender::new(0),
            objects: HashMap::new(),
            listing: None,
        };
        let id = referrer.id;
        let mut told = Told::new();
        let mut state = self.state.lock();
        state.forget(&resource, &mut told);
        state.referrers.insert(resource.clone(), referrer);
        state.note_asked(&resource);
        drop(state);
        tell(told);
        Feed {
            references: self.clone(),
            resource,
            id,
        }
    }

    /// What a claim asks from now on; nothing for one that has ended.
    pub(crate) fn ask(&self, claim: &Asker, questions: Vec<Question>) {
        let mut told = Told::new();
        let mut state = self.state.lock();
        let before = state.questions.remove(claim).unwrap_or_default();
        if before == questions {
            if !questions.is_empty() {
                state.questions.insert(claim.clone(), questions);
            }
            return;
        }
        let from = |questions: &[Question], resource: &GroupResource| {
            let these = questions.iter().filter(|question| question.from == *resource);
            these.cloned().collect::<Vec<_>>()
        };
        let concerned: HashSet<_> = before.iter().chain(&questions).map(|one| one.from.clone()).collect();
        for resource in &concerned {
            let now = from(&questions, resource);
            if from(&before, resource) != now {
                state.ask_anew(resource, claim, !now.is_empty());
            }
        }
        if !questions.is_empty() {
            state.questions.insert(claim.clone(), questions);
        }
        for resource in &concerned {
            state.note_asked(resource);
        }
        told.extend(state.told(claim, Changed::All));
        drop(state);
        tell(told);
    }

    /// Has somebody told of what changes for a claim, in the place of whoever was before; nobody, if there is none.
    pub(crate) fn listen(&self, claim: &Asker, listener: Option<Listener>) {
        let mut state = self.state.lock();
        match listener {
            Some(listener) => drop(state.listeners.insert(claim.clone(), listener)),
            None => drop(state.listeners.remove(claim)),
        }
    }

    /// Whether bound objects refer to an object of a claim, by its name on the consumer.
    pub(crate) fn referenced(&self, claim: &Asker, key: &ObjectKey) -> Referenced {
        let state = self.state.lock();
        let is_known = state.targets.get(claim).is_some_and(|targets| {
            let named = |namespace| Target {
                namespace,
                name: Arc::clone(&key.name),
            };
            targets.contains_key(&named(Some(Arc::clone(&key.namespace)))) || targets.contains_key(&named(None))
        });
        if is_known {
            return Referenced::Yes;
        }
        let mut questions = state.questions.get(claim).into_iter().flatten();
        if questions.all(|question| state.complaint(question).is_none()) {
            Referenced::No
        } else {
            Referenced::Unknown
        }
    }

    /// Why it is not known what bound objects refer to; `None` if it is.
    pub(crate) fn complaint(&self, claim: &Asker) -> Option<String> {
        let state = self.state.lock();
        let questions = state.questions.get(claim)?;
        questions.iter().find_map(|question| state.complaint(question))
    }
}

fn tell(told: Told) {
    for (listener, changed) in told {
        listener(&changed);
    }
}

// === impl State ===

impl State {
    fn complaint(&self, question: &Question) -> Option<String> {
        let from = &question.from;
        let Some(referrer) = self.referrers.get(from) else {
            return Some(format!(
                "objects are claimed to which {from} refer, and no binding syncs those"
            ));
        };
        if !question.is_for(&referrer.version) {
            return Some(format!(
                "{from} refer to claimed objects in version {}, and are synced in version {}",
                question.versions.join(" or "),
                referrer.version
            ));
        }
        (!referrer.complete).then(|| format!("{from} refer to claimed objects, and are not all known yet"))
    }

    fn told(&self, claim: &Asker, changed: Changed) -> Option<(Listener, Changed)> {
        let listener = self.listeners.get(claim)?;
        Some((Arc::clone(listener), changed))
    }

    /// The questions of a claim about a resource change: what was answered is void.
    fn ask_anew(&mut self, resource: &GroupResource, claim: &Asker, is_asked: bool) {
        let Some(referrer) = self.referrers.get_mut(resource) else {
            return;
        };
        for targets in referrer.objects.values_mut() {
            targets.retain(|(of, target)| {
                if **of == *claim {
                    count_down(&mut self.targets, of, target);
                }
                **of != *claim
            });
        }
        referrer.objects.retain(|_, targets| !targets.is_empty());
        if is_asked {
            referrer.complete = false;
            referrer.round.send_modify(|round| *round += 1);
        }
    }

    /// A resource is not watched any more.
    fn forget(&mut self, resource: &GroupResource, told: &mut Told) {
        let Some(referrer) = self.referrers.remove(resource) else {
            return;
        };
        for (claim, target) in referrer.objects.into_values().flatten() {
            count_down(&mut self.targets, &claim, &target);
        }
        self.tell_all(resource, told);
    }

    fn tell_all(&self, resource: &GroupResource, told: &mut Told) {
        for (claim, questions) in &self.questions {
            if questions.iter().any(|question| question.from == *resource) {
                told.extend(self.told(claim, Changed::All));
            }
        }
    }

    /// Notes what an object refers to now.
    fn set(&mut self, resource: &GroupResource, key: ObjectKey, targets: &[(Arc<Asker>, Target)], told: &mut Told) {
        let Some(referrer) = self.referrers.get_mut(resource) else {
            return;
        };
        let before = match referrer.objects.entry(key) {
            Entry::Occupied(entry) if targets.is_empty() => {
                let before = entry.remove();
                give_back(&mut referrer.objects);
                before
            }
            Entry::Occupied(mut entry) => std::mem::replace(entry.get_mut(), targets.to_vec()),
            Entry::Vacant(_) if targets.is_empty() => return,
            Entry::Vacant(entry) => {
                entry.insert(targets.to_vec());
                Vec::new()
            }
        };
        if before == targets {
            return;
        }
        let mut changed: HashMap<Arc<Asker>, Vec<Target>> = HashMap::new();
        // First those that came, so that what stays is at no time without a reference.
        for (claim, target) in targets {
            let count = self.targets.entry(Arc::clone(claim)).or_default().entry(target.clone());
            let count = count.or_default();
            *count += 1;
            if *count == 1 {
                changed.entry(Arc::clone(claim)).or_default().push(target.clone());
            }
        }
        for (claim, target) in &before {
            if count_down(&mut self.targets, claim, target) {
                changed.entry(Arc::clone(claim)).or_default().push(target.clone());
            }
        }
        for (claim, targets) in changed {
            told.extend(self.told(&claim, Changed::Targets(targets)));
        }
    }

    /// Notes with a bound resource what is asked of its objects.
    fn note_asked(&mut self, resource: &GroupResource) {
        let Some(referrer) = self.referrers.get_mut(resource) else {
            return;
        };
        let all = self.questions.iter();
        let all = all.flat_map(|(asker, questions)| questions.iter().map(move |question| (asker, question)));
        let asked = all.filter(|(_, question)| question.from == *resource && question.is_for(&referrer.version));
        referrer.asked = asked
            .map(|(asker, question)| (Arc::new(asker.clone()), question.clone()))
            .collect();
    }
}

/// One reference less; true if that was the last.
fn count_down(targets: &mut HashMap<Arc<Asker>, HashMap<Target, u32>>, claim: &Asker, target: &Target) -> bool {
    let Some(of_claim) = targets.get_mut(claim) else {
        return false;
    };
    let Some(count) = of_claim.get_mut(target) else {
        return false;
    };
    *count -= 1;
    if *count > 0 {
        return false;
    }
    of_claim.remove(target);
    give_back(of_claim);
    if of_claim.is_empty() {
        targets.remove(claim);
    }
    true
}

// === impl Question ===

impl Question {
    fn is_for(&self, version: &str) -> bool {
        self.versions.is_empty() || self.versions.iter().any(|one| one == version)
    }

    fn answer(&self, object: &Object) -> Vec<Target> {
        let own = Some(&object.meta.namespace).filter(|namespace| !namespace.is_empty());
        let meant = own.or(self.home.as_ref());
        let found = self.reference.evaluate(object).into_iter();
        found
            .map(|found| Target {
                namespace: found.namespace.map(Into::into).or_else(|| meant.cloned()),
                name: found.name.into(),
            })
            .collect()
    }
}

#[cfg(test)]
#[path = "references/tests/references.rs"]
mod tests;
