//! Decides what to write for one object. No client, no `await`: what was seen in, operations out.

use std::sync::Arc;

use super::{
    object::{Object, Version},
    pair::{Consumer, Owner, Pair, Provider},
    projection::{Fingerprint, LastProjection},
};

/// What an engine does at the time of planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Mode {
    /// The binding is being undone: the consumer's objects go.
    pub draining: bool,
    /// The resource serves `/status` apart.
    pub status_subresource: bool,
    /// The provider namespace is being taken away: nothing new is put into it.
    pub closing: bool,
    /// Several consumers write one object, each of which may take it over.
    pub last_wins: bool,
    /// The user said that this cluster takes the place of another: copies that were made of objects which are no more
    /// belong to those that now have their names.
    pub relink: bool,
}

/// One write or read. Operations of one plan are done in their order.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Reads the consumer's object again: its content is needed and was let go.
    ReadConsumer,
    /// Reads the provider's object: its content is needed, or its absence is to be confirmed.
    ReadProvider,
    /// Puts our finalizer, and namespace and UID of the provider's copy, on the consumer's object.
    Hold {
        version: Version,
        finalizers: Vec<Box<str>>,
        namespace: Arc<str>,
        provider_uid: Arc<str>,
    },
    /// Creates the provider's copy; fails if there is any object of that name.
    Create { source: Arc<Object>, last: LastProjection },
    /// Writes what the consumer's object says to the provider's copy of this UID.
    Update {
        source: Arc<Object>,
        uid: Arc<str>,
        last: LastProjection,
        /// What others wrote last, to be remembered.
        projections: Vec<(Box<str>, Box<str>)>,
    },
    /// Puts the provider's status on the consumer's object of this UID, or removes it there.
    Status {
        uid: Arc<str>,
        source: Option<Arc<Object>>,
        fingerprint: Option<Fingerprint>,
        subresource: bool,
    },
    /// Deletes the provider's copy of this UID.
    DeleteProvider { uid: Arc<str> },
    /// Asks the consumer whether the source of a copy is gone, and if so deletes the copy of this UID.
    DeleteOrphan { uid: Arc<str> },
    /// Deletes the consumer's object of this UID.
    DeleteConsumer { uid: Arc<str> },
    /// Takes our finalizer off the consumer's object.
    Release {
        version: Version,
        finalizers: Vec<Box<str>>,
    },
}

/// Why an object is left alone, in words for the user who looks at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Blocked {
    /// The place is taken by an object without our marks.
    #[error("the provider has an object of this name that is not managed by this binding; it is left alone")]
    Unmarked,
    /// The copy was let go when an earlier binding ended.
    #[error(
        "the provider kept its object of this name when an earlier binding ended; it is left alone: delete it on the \
         provider, or give this object another name"
    )]
    Released,
    /// The place is taken by another contract.
    #[error("the provider's object of this name belongs to contract {0}; it is left alone")]
    OtherContract(Box<str>),
    /// The copy was made of an object of the same name that is not this one.
    #[error(
        "the provider's copy was made of another object of this name (UID {0}); delete the copy on the provider, or \
         restore the object it was made of"
    )]
    OtherSource(Box<str>),
    /// The provider changed what we wrote, and changed it again after it was written back.
    #[error(
        "the provider changed fields that this object sets; they were written back once and are now left as they are"
    )]
    Drift,
    /// It would be deleted, and must not be written.
    #[error("it is paused; remove the annotation kube-bind.io/paused, and its deletion goes on")]
    Paused,
}

/// What to do for a pair, and what is amiss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub ops: Vec<Op>,
    pub blocked: Option<Blocked>,
}

impl Blocked {
    /// Stable reason of the event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Unmarked | Self::Released | Self::OtherContract(_) | Self::OtherSource(_) => "Conflict",
            Self::Drift => "ProviderOverrides",
            Self::Paused => "Paused",
        }
    }
}

impl Op {
    /// True for operations on the consumer's cluster.
    pub(crate) fn on_consumer(&self) -> bool {
        match self {
            Self::ReadConsumer
            | Self::Hold { .. }
            | Self::Status { .. }
            | Self::DeleteConsumer { .. }
            | Self::Release { .. } => true,
            Self::ReadProvider
            | Self::Create { .. }
            | Self::Update { .. }
            | Self::DeleteProvider { .. }
            | Self::DeleteOrphan { .. } => false,
        }
    }

    /// Name of the operation in metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ReadConsumer => "read_consumer",
            Self::ReadProvider => "read_provider",
            Self::Hold { .. } => "hold",
            Self::Create { .. } => "create",
            Self::Update { .. } => "update",
            Self::Status { .. } => "status",
            Self::DeleteProvider { .. } => "delete_provider",
            Self::DeleteOrphan { .. } => "delete_orphan",
            Self::DeleteConsumer { .. } => "delete_consumer",
            Self::Release { .. } => "release",
        }
    }
}

/// Plans one pair whose two sides are known, with the provider namespace that its copy belongs to.
pub(crate) fn plan(pair: &Pair, place: &Arc<str>, mode: Mode) -> Plan {
    match (&pair.consumer, &pair.provider) {
        (None, None) => Plan::default(),
        (None, Some(provider)) => orphan(pair, provider),
        (Some(consumer), _) if consumer.paused => Plan {
            ops: Vec::new(),
            blocked: (consumer.deleting || mode.draining).then_some(Blocked::Paused),
        },
        (Some(consumer), provider) if consumer.deleting => deleting(pair, consumer, provider.as_ref(), mode),
        (Some(consumer), _) if mode.draining => Plan::of(Op::DeleteConsumer {
            uid: Arc::clone(&consumer.uid),
        }),
        (Some(_), None) if mode.closing => Plan::default(),
        (Some(consumer), None) => missing(consumer),
        (Some(consumer), Some(provider)) => present(pair, consumer, provider, place, mode),
    }
}

fn orphan(pair: &Pair, provider: &Provider) -> Plan {
    let Owner::Ours { source_uid } = &provider.owner else {
        return Plan::default();
    };
    if provider.deleting {
        return Plan::default();
    }
    let uid = Arc::clone(&provider.uid);
    Plan::of(if pair.source_gone.as_deref() == Some(&**source_uid) {
        Op::DeleteProvider { uid }
    } else {
        Op::DeleteOrphan { uid }
    })
}

fn deleting(pair: &Pair, consumer: &Consumer, provider: Option<&Provider>, mode: Mode) -> Plan {
    let release = || Op::Release {
        version: consumer.version,
        finalizers: consumer.other_finalizers.clone(),
    };
    match provider {
        Some(provider) if blocked(consumer, provider).is_none() => {
            let mut plan = Plan::default();
            if provider.deleting {
                // What holds the copy tells how far it has come.
                status_down(&mut plan, consumer, provider, mode);
            } else {
                plan.ops.push(Op::DeleteProvider {
                    uid: Arc::clone(&provider.uid),
                });
            }
            plan
        }
        _ if !consumer.held => Plan::default(),
        None if !pair.provider_gone => Plan::of(Op::ReadProvider),
        _ => Plan::of(release()),
    }
}

/// The copy comes before our finalizer: where there can be none, the consumer's object is not touched.
fn missing(consumer: &Consumer) -> Plan {
    Plan::of(match &consumer.content {
        None => Op::ReadConsumer,
        Some(source) => Op::Create {
            source: Arc::clone(source),
            last: LastProjection {
                fingerprint: consumer.projection,
                corrected: false,
            },
        },
    })
}

fn present(pair: &Pair, consumer: &Consumer, provider: &Provider, place: &Arc<str>, mode: Mode) -> Plan {
    let blocked = blocked(consumer, provider);
    let takes_over = match &blocked {
        None => false,
        Some(Blocked::OtherContract(_)) if mode.last_wins && provider.is_shared() => true,
        // The copy of one whose end was seen goes, and makes room.
        Some(Blocked::OtherSource(source)) if pair.source_gone.as_deref() == Some(&**source) => {
            return orphan(pair, provider);
        }
        Some(Blocked::OtherSource(_)) if mode.relink => true,
        Some(_) => {
            return Plan {
                ops: Vec::new(),
                blocked,
            };
        }
    };
    let mut plan = Plan::default();
    if provider.deleting {
        // It ends first.
    } else if takes_over {
        take_over(&mut plan, consumer, provider);
    } else {
        spec_up(&mut plan, pair, consumer, provider);
    }
    plan.ops.extend(hold(consumer, provider, place));
    status_down(&mut plan, consumer, provider, mode);
    plan
}

fn blocked(consumer: &Consumer, provider: &Provider) -> Option<Blocked> {
    match &provider.owner {
        Owner::Ours { source_uid } if **source_uid == *consumer.uid => None,
        Owner::Ours { source_uid } => Some(Blocked::OtherSource(source_uid.clone())),
        Owner::Other { contract } => Some(Blocked::OtherContract(contract.clone())),
        Owner::Released => Some(Blocked::Released),
        Owner::Unmarked => Some(Blocked::Unmarked),
    }
}

fn hold(consumer: &Consumer, provider: &Provider, place: &Arc<str>) -> Option<Op> {
    let noted =
        consumer.noted_namespace.as_deref() == Some(&**place) && consumer.noted_uid.as_deref() == Some(&*provider.uid);
    if consumer.held && noted {
        return None;
    }
    let mut finalizers = consumer.other_finalizers.clone();
    finalizers.push(bindery_api::finalizers::SYNCER.into());
    Some(Op::Hold {
        version: consumer.version,
        finalizers,
        namespace: Arc::clone(place),
        provider_uid: Arc::clone(&provider.uid),
    })
}

/// Makes a copy ours. One that another contract took over after our last write stays with that until the object changes.
fn take_over(plan: &mut Plan, consumer: &Consumer, provider: &Provider) {
    let is_others = matches!(provider.owner, Owner::Other { .. });
    let wrote = provider.last.map(|last| last.fingerprint);
    if !is_others || wrote != Some(consumer.projection) {
        plan.ops.push(update(consumer, provider, false));
    }
}

fn update(consumer: &Consumer, provider: &Provider, corrected: bool) -> Op {
    match &consumer.content {
        None => Op::ReadConsumer,
        Some(source) => Op::Update {
            source: Arc::clone(source),
            uid: Arc::clone(&provider.uid),
            last: LastProjection {
                fingerprint: consumer.projection,
                corrected,
            },
            projections: provider.projections.clone(),
        },
    }
}

fn spec_up(plan: &mut Plan, pair: &Pair, consumer: &Consumer, provider: &Provider) {
    let wanted = consumer.projection;
    let written = provider.last.filter(|last| last.fingerprint == wanted);
    let corrected = match (written, provider.seen) {
        // Not what the object says now.
        (None, _) => false,
        // Our own write, not shown by the watch yet.
        (Some(_), None) => return,
        (Some(last), Some(seen)) => {
            let compared = pair
                .compared
                .filter(|it| it.projection == wanted && it.content == seen.content);
            match compared {
                Some(compared) if compared.holds => return,
                Some(_) if last.corrected => {
                    plan.blocked = Some(Blocked::Drift);
                    return;
                }
                Some(_) => true,
                None => {
                    if consumer.content.is_none() {
                        plan.ops.push(Op::ReadConsumer);
                    }
                    if provider.content.is_none() {
                        plan.ops.push(Op::ReadProvider);
                    }
                    return;
                }
            }
        }
    };
    plan.ops.push(update(consumer, provider, corrected));
}

fn status_down(plan: &mut Plan, consumer: &Consumer, provider: &Provider, mode: Mode) {
    let Some(seen) = provider.seen.filter(|seen| seen.status != consumer.status) else {
        return;
    };
    let source = match (seen.status, &provider.content) {
        (None, _) => None,
        (Some(_), Some(content)) => Some(Arc::clone(content)),
        (Some(_), None) => {
            plan.ops.push(Op::ReadProvider);
            return;
        }
    };
    plan.ops.push(Op::Status {
        uid: Arc::clone(&consumer.uid),
        source,
        fingerprint: seen.status,
        subresource: mode.status_subresource,
    });
}

/// What can be done for a pair that has no place: while draining, an object that was never synced just goes.
pub(crate) fn unplaced(pair: &Pair, mode: Mode) -> Option<Plan> {
    let consumer = pair.consumer.as_ref().filter(|consumer| !consumer.held)?;
    if !mode.draining || consumer.deleting {
        return None;
    }
    if consumer.paused {
        return Some(Plan {
            ops: Vec::new(),
            blocked: Some(Blocked::Paused),
        });
    }
    Some(Plan::of(Op::DeleteConsumer {
        uid: Arc::clone(&consumer.uid),
    }))
}

/// True if an object needs a provider namespace: to be copied to, or to see that its copy is gone.
pub(crate) fn wants_place(pair: &Pair) -> bool {
    pair.consumer
        .as_ref()
        .is_some_and(|consumer| !consumer.deleting || consumer.held)
}

impl Plan {
    pub(crate) fn of(op: Op) -> Self {
        Self {
            ops: vec![op],
            blocked: None,
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
