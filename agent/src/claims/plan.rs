//! Decides what to write for one claimed object. No client, no `await`: what was seen in, operations out.

use std::sync::Arc;

use super::{
    pair::{Both, Cluster, Pair, Role, Side},
    selection::Choice,
};
use crate::model::{object::Object, projection::LastProjection, uid::Uid};

/// What holds at the time of planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Nobody claims the resource any more.
    pub withdrawn: bool,
    /// Copies of objects that are no more go to those that have their names now.
    pub relink: bool,
    /// Whether there is a namespace to make a copy in, which is to stay.
    pub room: Both<bool>,
}

/// One write or read. Operations of one plan are done in their order.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Reads an object: its content is needed.
    Read { on: Cluster },
    /// Creates a copy; fails if there is any object of that name.
    Create {
        on: Cluster,
        source: Arc<Object>,
        last: LastProjection,
    },
    /// Writes what the source says to the copy of this UID.
    Update {
        on: Cluster,
        source: Arc<Object>,
        uid: Arc<str>,
        last: LastProjection,
    },
    /// Deletes the copy of this UID. `guarded` where nobody said that it is to go: its source is there, and not claimed any
    /// more.
    Delete { on: Cluster, uid: Arc<str>, guarded: bool },
    /// Asks the other cluster whether the source of this UID is gone, and if so deletes the copy.
    DeleteOrphan {
        on: Cluster,
        uid: Arc<str>,
        source_uid: Box<str>,
    },
}

/// Why an object is left alone, in words for the user who looks at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Blocked {
    /// Neither is a copy of the other.
    #[error(
        "it is claimed, and consumer and provider both have an object of this name of their own; both are left alone: \
         rename or delete one of them"
    )]
    TwoSources,
    /// Either says it is a copy of the other.
    #[error("consumer and provider both have a copy of this name, made of each other; delete one of them")]
    TwoCopies,
    /// The place is taken by another contract's copy.
    #[error(
        "the {on} has a copy of this name that contract {contract:?} made; it is left alone: delete it, or give this object \
         another name"
    )]
    Others { on: Cluster, contract: Box<str> },
    /// The place is taken by what an earlier binding let go.
    #[error(
        "the {on} kept its copy of this name when an earlier binding ended; it is left alone: delete it there, or give \
         this object another name"
    )]
    Released { on: Cluster },
    /// The place is taken by an object that is synced for itself.
    #[error("the {on}'s object of this name is synced by a binding of its API; it is left alone")]
    Bound { on: Cluster },
    /// The copy was made of another object of this name.
    #[error(
        "the {on}'s copy was made of another object of this name (UID {source_uid}); it is left alone: delete this object, \
         and when the copy has followed create it again"
    )]
    OtherSource { on: Cluster, source_uid: Box<str> },
    /// It would be deleted, and must not be written.
    #[error("it is paused; remove the annotation kube-bind.io/paused, and its copy is deleted")]
    Paused,
    /// The copy was changed, and changed again after it was written back.
    #[error("the copy on the {on} was changed there; it was written back once and is now left as it is")]
    Overridden { on: Cluster },
}

/// What to do for a pair, and what is amiss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub ops: Vec<Op>,
    pub blocked: Option<Blocked>,
}

/// Whether an object is claimed, by what it says.
pub(crate) type Choose<'a> = &'a dyn Fn(&Side) -> Choice;

// === impl Blocked ===

impl Blocked {
    /// Stable reason of the event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Overridden { .. } => "CopyOverridden",
            Self::Paused => "Paused",
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

fn unpaused(pair: &Pair, mode: Mode, choose: Choose<'_>) -> Plan {
    let (consumer, provider) = (pair.sides.consumer.as_ref(), pair.sides.provider.as_ref());
    if let Some((cluster, source, copy)) = pair.parts() {
        return both(pair, cluster, source, copy, mode, choose);
    }
    match (consumer, provider) {
        (Some(consumer), Some(provider)) if consumer.is_source() && provider.is_source() => {
            let is_claimed = [consumer, provider].iter().any(|side| choose(side) == Choice::Selected);
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

/// Plans the object of one cluster to which the other has no counterpart: nothing, or something else.
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

/// A source without a copy.
fn missing(cluster: Cluster, source: &Side, mode: Mode, choose: Choose<'_>) -> Plan {
    let on = cluster.other();
    if source.deleting || !mode.room.of(on) || choose(source) != Choice::Selected {
        return Plan::default();
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

/// A source whose copy's place is taken.
fn taken(on: Cluster, source: &Side, other: &Side, choose: Choose<'_>) -> Plan {
    if source.deleting || choose(source) != Choice::Selected {
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

/// A copy whose source is missing, or is not the one that has its name.
fn orphan(pair: &Pair, cluster: Cluster, copy: &Side, source_uid: &Uid, mode: Mode, choose: Choose<'_>) -> Plan {
    if copy.deleting || choose(copy) == Choice::Held {
        return Plan::default();
    }
    let (on, uid) = (cluster, copy.uid.text());
    let has_ended = pair.ended.of(cluster.other()).as_ref() == Some(source_uid);
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

/// A source, and a copy of it or of one that had its name before.
fn both(pair: &Pair, cluster: Cluster, source: &Side, copy: &Side, mode: Mode, choose: Choose<'_>) -> Plan {
    let on = cluster.other();
    let Some(source_uid) = copy.source_uid() else {
        return Plan::default();
    };
    if copy.deleting {
        // It ends first.
        return Plan::default();
    }
    let is_its_own = *source_uid == source.uid;
    let choice = match choose(source) {
        Choice::Selected | Choice::Unknown if source.deleting => Choice::Unselected,
        choice => choice,
    };
    let delete = |guarded| {
        let uid = copy.uid.text();
        Plan::of(Op::Delete { on, uid, guarded })
    };
    match choice {
        Choice::Unknown | Choice::Held => Plan::default(),
        Choice::Unselected if is_its_own => delete(!source.deleting && !mode.withdrawn),
        Choice::Unselected => orphan(pair, on, copy, source_uid, mode, choose),
        Choice::Selected if is_its_own => current(pair, cluster, source, copy),
        // The copy of one whose end was seen goes, and makes room.
        Choice::Selected if pair.ended.of(cluster).as_ref() == Some(source_uid) => delete(false),
        Choice::Selected if mode.relink => write(cluster, source, copy, false),
        Choice::Selected => Plan::blocked(Blocked::OtherSource {
            on,
            source_uid: source_uid.to_string().into(),
        }),
    }
}

/// A source and its own copy, which is to say the same.
fn current(pair: &Pair, cluster: Cluster, source: &Side, copy: &Side) -> Plan {
    let on = cluster.other();
    let last = match &copy.role {
        Role::Copy { last, .. } => last.as_ref(),
        _ => None,
    };
    let Some(last) = last.filter(|last| Some(last.fingerprint) == source.print) else {
        // Not what the source says now.
        return write(cluster, source, copy, false);
    };
    if copy.print.is_none() {
        // Our own write, not shown by the watch yet.
        return Plan::default();
    }
    match pair.holds() {
        Some(true) => Plan::default(),
        Some(_) if last.corrected => Plan::blocked(Blocked::Overridden { on }),
        Some(_) => write(cluster, source, copy, true),
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

/// Writes the copy anew; by another object in its place, where the API server refuses any change.
fn write(cluster: Cluster, source: &Side, copy: &Side, corrected: bool) -> Plan {
    let on = cluster.other();
    let (Some(content), Some(fingerprint)) = (&source.content, source.print) else {
        return Plan::of(Op::Read { on: cluster });
    };
    let uid = copy.uid.text();
    // Deleted, it makes room for another.
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
            // Labels and annotations may change all the same.
            Some(_) => {}
        }
    }
    Plan::of(Op::Update {
        on,
        source: Arc::clone(content),
        uid,
        last: LastProjection { fingerprint, corrected },
    })
}

fn same_body(one: &Object, other: &Object) -> bool {
    let text = |object: &Object| -> Vec<_> {
        let body = object.body.iter();
        body.map(|(key, text)| (key.clone(), text.get().to_owned())).collect()
    };
    text(one) == text(other)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
