//! Decides what to write for one claimed object: a pure function from what was seen to operations.

use std::sync::Arc;

use bindery_api::orphans::OrphanAction;

use super::{
    descent::{Descent, Refusal},
    pair::{Both, Cluster, Pair, Role, Side},
    rules::ClaimChoice,
};
use crate::{
    index::Contents as _,
    model::{
        object::{Object, Version},
        projection::LastProjection,
        uid::Uid,
    },
};

/// What a plan depends on besides the object itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// No binding claims the resource any more.
    pub withdrawn: bool,
    /// A copy whose source is gone becomes the copy of the object that has its name now.
    pub relink: bool,
    /// What the user ordered for the copy, which was an orphan then.
    pub order: Option<OrphanAction>,
    /// Whether a cluster has a namespace for the copy, and the namespace is not being deleted.
    pub room: Both<bool>,
    /// Whether the provider's object may come down.
    pub descent: Descent,
    /// Whether the consumer's namespace does not exist. If it was forced to end, objects are left in it, and the API server accepts
    /// nothing but their deletion.
    pub namespace_is_gone: bool,
}

/// One write or read. The operations of a plan run one after the other.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Reads an object, because the plan needs its content.
    Read { on: Cluster },
    /// Creates a copy; fails if there is any object of that name.
    Create {
        on: Cluster,
        source: Arc<Object>,
        last: LastProjection,
    },
    /// Writes the content of the source to the copy of this UID; fails if the copy has another version. If others wrote the copy,
    /// ownership of its fields is `transferred` to us before, which makes a new version of it.
    Update {
        on: Cluster,
        source: Arc<Object>,
        uid: Arc<str>,
        version: Version,
        last: LastProjection,
        transferred: bool,
    },
    /// Deletes the copy of this UID. It is `guarded` where only the claim ended: the source is there, and the guard of deletions
    /// may hold the deletion back.
    Delete { on: Cluster, uid: Arc<str>, guarded: bool },
    /// Deletes the copy of this UID if the other cluster, asked now, does not have the source of that UID.
    DeleteOrphan {
        on: Cluster,
        uid: Arc<str>,
        source_uid: Box<str>,
    },
}

/// Why an object is left alone, in a sentence for the user who looks at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Blocked {
    /// Both clusters have an object of this name, and neither is a copy.
    #[error(
        "it is claimed, and consumer and provider both have an object of this name of their own; both are left alone: \
         rename or delete one of them"
    )]
    TwoSources,
    /// Both clusters have a copy of this name, each made of the other.
    #[error("consumer and provider both have a copy of this name, made of each other; delete one of them")]
    TwoCopies,
    /// The name is taken by another contract's copy.
    #[error(
        "the {on} has a copy of this name that contract {contract:?} made; it is left alone: delete it, or give this object \
         another name"
    )]
    Others { on: Cluster, contract: Box<str> },
    /// The name is taken by a copy that the provider kept when an earlier binding ended.
    #[error(
        "the {on} kept its copy of this name when an earlier binding ended; it is left alone: delete it there, or give \
         this object another name"
    )]
    Released { on: Cluster },
    /// The name is taken by an object that is synced because its API is bound.
    #[error("the {on}'s object of this name is synced by a binding of its API; it is left alone")]
    Bound { on: Cluster },
    /// The copy was made of an earlier object of this name.
    #[error(
        "the {on}'s copy was made of another object of this name (UID {source_uid}); it is left alone: delete this object, \
         and when the copy has followed create it again"
    )]
    OtherSource { on: Cluster, source_uid: Box<str> },
    /// The source is missing since its cluster went back in time.
    #[error(
        "the {on}'s copy of it is kept: it is missing on the other cluster, which was restored to an earlier state; restore it there, \
         or delete the copy: kubectl bind orphans --delete"
    )]
    Orphan { on: Cluster },
    /// The object is in a namespace that the consumer did not list.
    #[error(
        "the provider's object is claimed, and does not come down into this namespace, which spec.claimNamespaces of the binding does not \
         list; to let it come, add the namespace to the list"
    )]
    NamespaceNotListed,
    /// The object is in a namespace without bound objects.
    #[error(
        "the provider's object is claimed, and does not come down into this namespace, which has no object of the bound API; to let it \
         come, list the namespace in spec.claimNamespaces of the binding"
    )]
    NoBoundObject,
    /// The object is a Secret of a type that does not come down.
    #[error(
        "the provider's Secret is claimed, and does not come down, because Secrets of type {secret_type:?} may have a meaning for a tool of \
         this cluster; ask the provider for one of type Opaque, or list the type in spec.claimSecretTypes of the binding"
    )]
    SecretType { secret_type: Box<str> },
    /// The copy would be deleted, and it or its source is paused.
    #[error("it is paused; remove the annotation kube-bind.io/paused, and its copy is deleted")]
    Paused,
    /// The copy was changed again after the konnector had written it back once.
    #[error("the copy on the {on} was changed there; it was written back once and is now left as it is")]
    Overridden { on: Cluster },
}

/// What to do for a pair, and why something is left undone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub ops: Vec<Op>,
    pub blocked: Option<Blocked>,
}

/// Decides whether an object of a cluster is claimed, by its labels and key.
pub(crate) type Choose<'a> = &'a dyn Fn(Cluster, &Side) -> ClaimChoice;

// === impl Blocked ===

impl Blocked {
    /// The stable reason of the event that reports it.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Overridden { .. } => "CopyOverridden",
            Self::Orphan { .. } => "Orphaned",
            Self::Paused => "Paused",
            Self::NamespaceNotListed | Self::NoBoundObject => "NamespaceNotClaimed",
            Self::SecretType { .. } => "SecretTypeNotClaimed",
            _ => "Conflict",
        }
    }
}

// === impl Plan ===

impl Plan {
    fn of(op: Op) -> Self {
        Self {
            ops: vec![op],
            blocked: None,
        }
    }

    fn blocked(blocked: Blocked) -> Self {
        Self {
            ops: Vec::new(),
            blocked: Some(blocked),
        }
    }
}

/// Plans one pair whose two sides are known.
pub(crate) fn plan(pair: &Pair, mode: Mode, choose: Choose<'_>) -> Plan {
    let plan = unpaused(pair, mode, choose);
    let mut sides = [&pair.sides.consumer, &pair.sides.provider].into_iter().flatten();
    if !sides.any(|side| side.paused) {
        return plan;
    }
    let is_deletion = |op: &Op| matches!(op, Op::Delete { .. } | Op::DeleteOrphan { .. });
    Plan {
        blocked: plan.ops.iter().any(is_deletion).then_some(Blocked::Paused),
        ops: Vec::new(),
    }
}

/// True if there is nothing to do for a pair in any case: a claimed source and its copy agree, or nothing is claimed and
/// nothing is a copy.
pub(crate) fn is_at_rest(pair: &Pair, choose: Choose<'_>, descent: impl FnOnce() -> Descent) -> bool {
    let is_claimed = |cluster, source: &Side| choose(cluster, source) == ClaimChoice::Selected;
    if let Some((cluster, source, _)) = pair.parts() {
        let comes = || cluster == Cluster::Consumer || descent() == Descent::Allowed;
        return !source.deleting && pair.agrees() && is_claimed(cluster, source) && comes();
    }
    let mut sides = [Cluster::Consumer, Cluster::Provider]
        .into_iter()
        .filter_map(|cluster| Some((cluster, pair.sides.of(cluster).as_ref()?)));
    sides.all(|(cluster, side)| match side.role {
        Role::Source => !is_claimed(cluster, side),
        Role::Copy { .. } => false,
        Role::Others { .. } | Role::Released | Role::Bound => true,
    })
}

fn unpaused(pair: &Pair, mode: Mode, choose: Choose<'_>) -> Plan {
    let (consumer, provider) = (pair.sides.consumer.as_ref(), pair.sides.provider.as_ref());
    if let Some((cluster, source, copy)) = pair.parts() {
        return both(pair, cluster, source, copy, mode, choose);
    }
    match (consumer, provider) {
        (Some(consumer), Some(provider)) if consumer.is_source() && provider.is_source() => {
            let is_claimed = [(Cluster::Consumer, consumer), (Cluster::Provider, provider)]
                .into_iter()
                .any(|(cluster, side)| choose(cluster, side) == ClaimChoice::Selected);
            if is_claimed {
                Plan::blocked(Blocked::TwoSources)
            } else {
                Plan::default()
            }
        }
        (Some(consumer), Some(provider)) if are_copies_of_each_other(consumer, provider) && !mode.withdrawn => {
            Plan::blocked(Blocked::TwoCopies)
        }
        _ => {
            let consumer = alone(pair, Cluster::Consumer, mode, choose);
            let mut plan = alone(pair, Cluster::Provider, mode, choose);
            plan.ops.extend(consumer.ops);
            plan.blocked = plan.blocked.or(consumer.blocked);
            plan
        }
    }
}

fn are_copies_of_each_other(one: &Side, other: &Side) -> bool {
    one.source_uid() == Some(&other.uid) && other.source_uid() == Some(&one.uid)
}

/// Plans the object of one cluster where the other has none of this name, or one that has nothing to do with it.
fn alone(pair: &Pair, cluster: Cluster, mode: Mode, choose: Choose<'_>) -> Plan {
    let Some(side) = pair.sides.of(cluster) else {
        return Plan::default();
    };
    let other = pair.sides.of(cluster.other()).as_ref();
    match &side.role {
        Role::Source => match other {
            None => missing(cluster, side, mode, choose),
            Some(other) => taken(cluster.other(), side, other, choose),
        },
        Role::Copy { source_uid, .. } => orphan(pair, cluster, side, source_uid, mode, choose),
        Role::Others { .. } | Role::Released | Role::Bound => Plan::default(),
    }
}

/// Plans a source without a copy.
fn missing(cluster: Cluster, source: &Side, mode: Mode, choose: Choose<'_>) -> Plan {
    let on = cluster.other();
    if source.deleting || !mode.room.of(on) || choose(cluster, source) != ClaimChoice::Selected {
        return Plan::default();
    }
    match (cluster, mode.descent) {
        (Cluster::Provider, Descent::Unknown) => return Plan::default(),
        (Cluster::Provider, Descent::Refused(why)) => return Plan::blocked(refused(source, why)),
        _ => {}
    }
    match (&source.content, source.print) {
        (Some(content), Some(fingerprint)) => Plan::of(Op::Create {
            on,
            source: Arc::clone(content),
            last: LastProjection {
                fingerprint,
                corrected: false,
            },
        }),
        _ => Plan::of(Op::Read { on: cluster }),
    }
}

/// Why a provider's object does not come down, for the user.
fn refused(source: &Side, why: Refusal) -> Blocked {
    match why {
        Refusal::NotListed => Blocked::NamespaceNotListed,
        Refusal::NoBoundObject => Blocked::NoBoundObject,
        Refusal::SecretType => Blocked::SecretType {
            secret_type: source.secret_type.clone().unwrap_or_default(),
        },
    }
}

/// Plans a source where another object has the name of its copy.
fn taken(on: Cluster, source: &Side, other: &Side, choose: Choose<'_>) -> Plan {
    if source.deleting || choose(on.other(), source) != ClaimChoice::Selected {
        return Plan::default();
    }
    match &other.role {
        Role::Others { contract } => Plan::blocked(Blocked::Others {
            on,
            contract: contract.clone(),
        }),
        Role::Released => Plan::blocked(Blocked::Released { on }),
        Role::Bound => Plan::blocked(Blocked::Bound { on }),
        Role::Source | Role::Copy { .. } => Plan::default(),
    }
}

/// Plans a copy whose source is missing, or where another object has the source's name.
fn orphan(pair: &Pair, cluster: Cluster, copy: &Side, source_uid: &Uid, mode: Mode, choose: Choose<'_>) -> Plan {
    if copy.deleting || choose(cluster, copy) == ClaimChoice::Kept {
        return Plan::default();
    }
    let (on, uid) = (cluster, copy.uid.text());
    let has_ended = pair.ended.of(cluster.other()).as_ref() == Some(source_uid);
    let is_orphan = pair.orphan().is_some_and(|orphan| *orphan.copy == copy.uid);
    if is_orphan && !mode.withdrawn && mode.order != Some(OrphanAction::Delete) {
        return Plan::blocked(Blocked::Orphan { on });
    }
    Plan::of(if has_ended || mode.withdrawn {
        Op::Delete {
            on,
            uid,
            guarded: false,
        }
    } else {
        Op::DeleteOrphan {
            on,
            uid,
            source_uid: source_uid.to_string().into(),
        }
    })
}

/// Plans a source and a copy, which was made of it or of an earlier object of its name.
fn both(pair: &Pair, cluster: Cluster, source: &Side, copy: &Side, mode: Mode, choose: Choose<'_>) -> Plan {
    let on = cluster.other();
    let Some(source_uid) = copy.source_uid() else {
        return Plan::default();
    };
    if copy.deleting {
        // The next plan comes when the copy is gone.
        return Plan::default();
    }
    let is_its_own = *source_uid == source.uid;
    let choice = match choose(cluster, source) {
        ClaimChoice::Selected | ClaimChoice::Unknown if source.deleting => ClaimChoice::Unselected,
        choice => choice,
    };
    let delete = |guarded| {
        let uid = copy.uid.text();
        Plan::of(Op::Delete { on, uid, guarded })
    };
    let is_refused = match mode.descent {
        _ if cluster == Cluster::Consumer || choice != ClaimChoice::Selected => false,
        Descent::Allowed => false,
        Descent::Unknown => return Plan::default(),
        Descent::Refused(_) => true,
    };
    match choice {
        ClaimChoice::Unknown | ClaimChoice::Kept => Plan::default(),
        // The next plan says why it does not come.
        ClaimChoice::Selected if is_refused && is_its_own => delete(true),
        ClaimChoice::Selected if is_refused => orphan(pair, on, copy, source_uid, mode, choose),
        ClaimChoice::Unselected if is_its_own => delete(!source.deleting && !mode.withdrawn),
        ClaimChoice::Unselected => orphan(pair, on, copy, source_uid, mode, choose),
        ClaimChoice::Selected if is_its_own => current(pair, cluster, source, copy, mode),
        // The end of the copy's source was seen: the copy is deleted, and makes room for a new one.
        ClaimChoice::Selected if pair.ended.of(cluster).as_ref() == Some(source_uid) => delete(false),
        ClaimChoice::Selected if mode.relink => write(cluster, source, copy, mode, false),
        ClaimChoice::Selected => Plan::blocked(Blocked::OtherSource {
            on,
            source_uid: source_uid.to_string().into(),
        }),
    }
}

/// Plans a source and the copy that was made of it.
fn current(pair: &Pair, cluster: Cluster, source: &Side, copy: &Side, mode: Mode) -> Plan {
    let on = cluster.other();
    let last = match &copy.role {
        Role::Copy { last, .. } => last.as_ref(),
        _ => None,
    };
    let Some(last) = last.filter(|last| Some(last.fingerprint) == source.print) else {
        // The source changed since the copy was written.
        return write(cluster, source, copy, mode, false);
    };
    if copy.print.is_none() {
        // The watch has not shown our own write yet.
        return Plan::default();
    }
    match pair.holds() {
        Some(true) => Plan::default(),
        Some(_) if last.corrected => Plan::blocked(Blocked::Overridden { on }),
        Some(_) => write(cluster, source, copy, mode, true),
        None => {
            let missing = [(cluster, source), (on, copy)].into_iter();
            let missing = missing.filter(|(_, side)| side.content.is_none());
            Plan {
                ops: missing.map(|(on, _)| Op::Read { on }).collect(),
                blocked: None,
            }
        }
    }
}

/// Writes the copy anew. Where the API server refuses the change, the copy is deleted, and the next plan creates another. A copy whose
/// namespace is gone stays as it is until the namespace is created again, as a missing copy stays missing.
fn write(cluster: Cluster, source: &Side, copy: &Side, mode: Mode, corrected: bool) -> Plan {
    let on = cluster.other();
    if mode.namespace_is_gone && on == Cluster::Consumer {
        return Plan::default();
    }
    let (Some(content), Some(fingerprint)) = (&source.content, source.print) else {
        return Plan::of(Op::Read { on: cluster });
    };
    let uid = copy.uid.text();
    let replace = |uid| {
        Plan::of(Op::Delete {
            on,
            uid,
            guarded: false,
        })
    };
    if source.secret_type != copy.secret_type {
        return replace(uid);
    }
    if copy.immutable {
        match &copy.content {
            None => return Plan::of(Op::Read { on }),
            Some(actual) if !same_body(actual, content) => return replace(uid),
            // Labels and annotations of an immutable object may change.
            Some(_) => {}
        }
    }
    if copy.version == Version::default() {
        // The cluster went back in time, and has not shown the copy since.
        return Plan::of(Op::Read { on });
    }
    Plan::of(Op::Update {
        on,
        source: Arc::clone(content),
        uid,
        version: copy.version,
        last: LastProjection { fingerprint, corrected },
        transferred: is_written_by_others(copy),
    })
}

/// Whether another program made a copy, so that we never wrote it.
fn is_written_by_others(copy: &Side) -> bool {
    matches!(copy.role, Role::Copy { last: None, .. })
}

fn same_body(one: &Object, other: &Object) -> bool {
    let text = |object: &Object| -> Vec<_> {
        let body = object.body.iter();
        body.map(|(key, text)| (key.clone(), text.get().to_owned())).collect()
    };
    text(one) == text(other)
}

#[cfg(test)]
#[path = "tests/plan.rs"]
mod tests;
