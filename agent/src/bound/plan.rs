//! Decides what to write for one bound object: a pure function from what was seen to operations.

use std::sync::Arc;

use bindery_api::{
    adoption::{Adoption, Candidate},
    orphans::OrphanAction,
    retention::RetentionAction,
};
use jiff::Timestamp;

use crate::{
    bound::pair::{Consumer, Owner, Pair, Provider},
    index::{Contents as _, OrphanKind},
    model::{object::Version, projection::LastProjection},
};

mod blocked;
mod op;
mod retained;

pub(crate) use blocked::Blocked;
pub(crate) use op::Op;

/// What a plan depends on besides the object itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Mode {
    /// The binding ends: the consumer's objects are deleted, and their copies too, unless the provider keeps them.
    pub draining: bool,
    /// The status is written through the subresource `/status`.
    pub status_subresource: bool,
    /// The APIServiceNamespace of the provider namespace is being deleted: no copy is created there.
    pub closing: bool,
    /// The provider namespace is only assumed to be the one that was assigned.
    pub assumed: bool,
    /// Several consumers may write the same provider object, and the last write wins.
    pub last_wins: bool,
    /// The user said that this cluster takes the place of another: a copy whose source is gone becomes the copy of the
    /// object that has its name now.
    pub relink: bool,
    /// The provider's objects are kept when the binding or the CRD ends, so that a deletion is evidence only while the CRD stays.
    pub keeps: bool,
    /// The consumer's object is in an older state than the copy was written from.
    pub older_source: bool,
    /// What the user ordered for the copy, which was an orphan then.
    pub order: Option<OrphanAction>,
    /// The copy of a deleted object is retained.
    pub retains: bool,
    /// The content of a retained copy is changed, which needs its content.
    pub suspends: bool,
    /// How the user ends the retention of the copy.
    pub ends_retention: Option<RetentionAction>,
    /// Which objects of the provider are created on the consumer.
    pub adoption: Adoption,
    /// When the export was created.
    pub since: Option<Timestamp>,
    /// When the CRD was created on the consumer.
    pub installed: Option<Timestamp>,
}

/// What to do for a pair, and why something is left undone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub ops: Vec<Op>,
    pub blocked: Option<Blocked>,
}

/// Plans one pair whose two sides are known. `place` is the provider namespace of its copy.
pub(crate) fn plan(pair: &Pair, place: &Arc<str>, mode: Mode) -> Plan {
    match (&pair.consumer, &pair.provider) {
        (None, None) => Plan::default(),
        (None, Some(provider)) => match provider.owner {
            Owner::Fresh { .. } => fresh(provider, place, mode),
            Owner::Retained(ref retained) => retained::alone(provider, retained, place, mode),
            _ => unsourced(pair, provider, mode),
        },
        (Some(consumer), _) if consumer.paused => Plan {
            ops: Vec::new(),
            blocked: (consumer.deleting || mode.draining).then_some(Blocked::Paused),
        },
        (Some(consumer), _) if mode.assumed && consumer.is_noted_elsewhere(place) => Plan {
            ops: Vec::new(),
            blocked: Some(Blocked::Elsewhere),
        },
        (Some(consumer), provider) if consumer.deleting => deleting(pair, consumer, provider.as_ref(), mode),
        (Some(consumer), _) if mode.draining => Plan::of(Op::DeleteConsumer {
            uid: consumer.uid.text(),
        }),
        (Some(_), None) if mode.closing => Plan::default(),
        (Some(consumer), None) => missing(consumer),
        (Some(consumer), Some(provider)) => present(pair, consumer, provider, place, mode),
    }
}

/// True if a pair certainly needs no operation: it is in sync, or has only an object of the provider that is not ours.
pub(crate) fn is_at_rest(pair: &Pair, place: &Arc<str>, mode: Mode) -> bool {
    match (&pair.consumer, &pair.provider) {
        (None, Some(provider)) => match &provider.owner {
            Owner::Ours { .. } | Owner::Fresh { .. } => false,
            Owner::Retained(retained) => !retained.restoring && mode.ends_retention.is_none(),
            _ => true,
        },
        (Some(consumer), Some(provider)) => {
            !mode.draining && !consumer.deleting && pair.agrees() && hold(consumer, provider, place).is_none()
        }
        _ => false,
    }
}

/// Plans an object that the provider made and the consumer does not have: adopts it, if the user wants that.
fn fresh(provider: &Provider, place: &Arc<str>, mode: Mode) -> Plan {
    if provider.deleting || mode.draining || mode.closing || !mode.takes(provider) {
        return Plan::default();
    }
    Plan::of(match &provider.content {
        None => Op::ReadProvider,
        Some(source) => Op::Adopt {
            source: Arc::clone(source),
            place: Arc::clone(place),
        },
    })
}

/// Plans a copy that is not that of the consumer's object: ends it if the deletion of its source was seen. Otherwise it is an
/// orphan, which stays until the user orders its end.
fn unsourced(pair: &Pair, provider: &Provider, mode: Mode) -> Plan {
    let Owner::Ours { source_uid } = &provider.owner else {
        return Plan::default();
    };
    if provider.deleting {
        return Plan::default();
    }
    let Some(orphan) = pair.orphan() else {
        return Plan::of(retained::end(provider, source_uid, mode));
    };
    let release = || Plan::of(release(provider));
    match (mode.order, orphan.kind) {
        // The binding ends, which is no word about what is missing.
        _ if mode.draining => release(),
        (Some(OrphanAction::Release), _) => release(),
        (Some(OrphanAction::Delete), OrphanKind::Missing) => Plan::of(Op::DeleteOrphan {
            uid: provider.uid.text(),
        }),
        // The object that has the name proves that the source is gone.
        (Some(OrphanAction::Delete), OrphanKind::Replaced) => Plan::of(delete(provider, mode)),
        (Some(OrphanAction::Relink) | None, _) => Plan {
            ops: Vec::new(),
            blocked: Some(match &provider.owner {
                Owner::Ours { source_uid } if orphan.kind == OrphanKind::Replaced => {
                    Blocked::OtherSource(source_uid.to_string().into())
                }
                _ => Blocked::Orphan,
            }),
        },
    }
}

/// Plans the deletion of a copy, in a known version where the copy is released instead if the CRD ends. Where the provider keeps its
/// objects and the binding ends, the copy is released in any case.
fn delete(provider: &Provider, mode: Mode) -> Op {
    if mode.keeps && mode.draining {
        return release(provider);
    }
    if mode.keeps && is_version_lost(provider.version) {
        return Op::ReadProvider;
    }
    Op::DeleteProvider {
        uid: provider.uid.text(),
        version: mode.keeps.then_some(provider.version),
    }
}

fn release(provider: &Provider) -> Op {
    if is_version_lost(provider.version) {
        return Op::ReadProvider;
    }
    Op::ReleaseProvider {
        uid: provider.uid.text(),
        version: provider.version,
    }
}

/// Whether the version of an object is not known, since its cluster went back in time: a write that names it is refused.
fn is_version_lost(version: Version) -> bool {
    version == Version::default()
}

fn deleting(pair: &Pair, consumer: &Consumer, provider: Option<&Provider>, mode: Mode) -> Plan {
    let release = || {
        if is_version_lost(consumer.version) {
            return Op::ReadConsumer;
        }
        Op::Release {
            version: consumer.version,
            finalizers: consumer.other_finalizers.to_vec(),
        }
    };
    let is_released = |provider: &Provider| matches!(provider.owner, Owner::Released(_));
    match provider {
        // What was released stays, also if it could be taken into use again.
        Some(provider)
            if !is_released(provider)
                && !provider.is_retained_for(consumer)
                && blocked(consumer, provider, mode).is_none() =>
        {
            let mut plan = Plan::default();
            if provider.deleting {
                // While finalizers hold the copy, its status tells how far they have come.
                status_down(&mut plan, consumer, provider, mode);
            } else if mode.keeps && provider.is_retained() {
                // Its restore has begun, and it may be released below: what is released is not suspended, and no time ends it.
                return retained::relink(consumer, provider);
            } else {
                plan.ops.push(retained::end(provider, &consumer.uid, mode));
            }
            plan
        }
        _ if !consumer.held => Plan::default(),
        None if !pair.provider_gone => Plan::of(Op::ReadProvider),
        _ => Plan::of(release()),
    }
}

/// Plans an object without a copy. Our finalizer is added later, so that an object that cannot be copied stays untouched.
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
    let blocked = blocked(consumer, provider, mode);
    let is_fresh = matches!(provider.owner, Owner::Fresh { .. });
    if is_fresh && pair.marked.as_deref() == Some(&consumer.projection) {
        // Somebody removed our annotations after this very content was written.
        return Plan {
            ops: Vec::new(),
            blocked: Some(Blocked::Drift),
        };
    }
    if blocked.is_none() && provider.is_retained() {
        return retained::relink(consumer, provider);
    }
    let is_unwritten = provider.last.is_none_or(|last| last.fingerprint != consumer.projection);
    if mode.older_source && is_unwritten && blocked.is_none() {
        return Plan {
            ops: Vec::new(),
            blocked: Some(Blocked::OlderSource),
        };
    }
    let takes_over = match &blocked {
        None => is_fresh || matches!(provider.owner, Owner::Released(_)),
        // An object that the provider made with the same content becomes the copy.
        Some(Blocked::Unmarked) if mode.takes(provider) => {
            if provider.seen.is_none_or(|seen| seen.content != consumer.projection) {
                return Plan {
                    ops: Vec::new(),
                    blocked: Some(Blocked::Differs),
                };
            }
            true
        }
        // A copy that was released becomes that of a new object which says the same.
        Some(Blocked::Released) if mode.links(provider) => match says_the_same(pair, consumer, provider) {
            Some(true) => true,
            Some(false) => {
                return Plan {
                    ops: Vec::new(),
                    blocked: Some(Blocked::ReleasedDiffers),
                };
            }
            None => return reads(consumer, provider),
        },
        Some(Blocked::OtherContract(_)) if mode.last_wins && provider.is_shared() => true,
        Some(Blocked::OtherSource(_)) if pair.orphan().is_some() && mode.relinks() => true,
        // If the end of the copy's source was seen, the copy is deleted, and makes room for a new one.
        Some(Blocked::OtherSource(_)) => return unsourced(pair, provider, mode),
        Some(Blocked::Retained(_)) if mode.ends_retention == Some(RetentionAction::Discard) => {
            return retained::discard(provider);
        }
        Some(_) => {
            return Plan {
                ops: Vec::new(),
                blocked,
            };
        }
    };
    let mut plan = Plan::default();
    if provider.deleting {
        // The next plan after its end creates a new copy.
    } else if takes_over {
        take_over(&mut plan, consumer, provider);
    } else {
        spec_up(&mut plan, pair, consumer, provider);
    }
    // The next plan updates the copy, in the version that the transfer makes.
    if !matches!(plan.ops[..], [Op::TransferOwnership { .. }]) {
        plan.ops.extend(hold(consumer, provider, place));
    }
    status_down(&mut plan, consumer, provider, mode);
    plan
}

fn blocked(consumer: &Consumer, provider: &Provider, mode: Mode) -> Option<Blocked> {
    match &provider.owner {
        Owner::Ours { source_uid } if *source_uid == consumer.uid => None,
        Owner::Ours { source_uid } => Some(Blocked::OtherSource(source_uid.to_string().into())),
        Owner::Other { contract } => Some(Blocked::OtherContract(contract.clone())),
        // The export was deleted and created again, and the source is still the same.
        Owner::Released(copy) if copy.source_uid.as_ref() == Some(&consumer.uid) && mode.came_after(copy.at) => None,
        Owner::Released(_) => Some(Blocked::Released),
        // The object was restored, or its cluster went back in time.
        Owner::Retained(retained) if retained.is_for(consumer, provider) => None,
        Owner::Retained(retained) => Some(Blocked::Retained(retained.until)),
        // It was adopted, and only its annotations are still missing.
        Owner::Fresh { .. } if consumer.adopted.as_deref() == Some(&provider.uid) => None,
        Owner::Fresh { .. } | Owner::Unmarked => Some(Blocked::Unmarked),
    }
}

/// Whether a released copy holds what the consumer's object says, and nothing that this contract wrote for another content. `None`
/// while the contents were not compared.
fn says_the_same(pair: &Pair, consumer: &Consumer, provider: &Provider) -> Option<bool> {
    if provider.seen.is_some_and(|seen| seen.content == consumer.projection) {
        return Some(true);
    }
    let is_written = provider
        .last
        .is_some_and(|last| last.fingerprint == consumer.projection);
    if is_written { pair.holds() } else { Some(false) }
}

/// Plans to read the contents that a comparison lacks.
fn reads(consumer: &Consumer, provider: &Provider) -> Plan {
    let mut plan = Plan::default();
    plan.ops.extend(consumer.content.is_none().then_some(Op::ReadConsumer));
    plan.ops.extend(provider.content.is_none().then_some(Op::ReadProvider));
    plan
}

fn hold(consumer: &Consumer, provider: &Provider, place: &Arc<str>) -> Option<Op> {
    let noted =
        consumer.noted_namespace.as_deref() == Some(&**place) && consumer.noted_uid.as_ref() == Some(&provider.uid);
    if consumer.held && noted {
        return None;
    }
    if is_version_lost(consumer.version) {
        return Some(Op::ReadConsumer);
    }
    let mut finalizers = consumer.other_finalizers.to_vec();
    finalizers.push(bindery_api::finalizers::SYNCER.into());
    Some(Op::Hold {
        version: consumer.version,
        finalizers,
        namespace: Arc::clone(place),
        provider_uid: provider.uid.text(),
    })
}

/// Makes a copy ours. One that another contract took over after our last write is left to it until the source changes.
fn take_over(plan: &mut Plan, consumer: &Consumer, provider: &Provider) {
    let is_others = matches!(provider.owner, Owner::Other { .. });
    let wrote = provider.last.map(|last| last.fingerprint);
    if !is_others || wrote != Some(consumer.projection) {
        plan.ops.push(update(consumer, provider, false));
    }
}

/// Whether another program wrote the content of a copy: we never wrote it, or it holds the source's content, which we have not
/// written. An object that contracts share is not taken from the others.
fn is_written_by_others(consumer: &Consumer, provider: &Provider) -> bool {
    let is_shared = matches!(provider.owner, Owner::Other { .. }) || provider.is_shared();
    let holds_unwritten = provider.last.is_none_or(|last| {
        let is_unwritten = last.fingerprint != consumer.projection;
        is_unwritten && provider.seen.is_some_and(|seen| seen.content == consumer.projection)
    });
    !is_shared && (holds_unwritten || matches!(provider.owner, Owner::Fresh { .. }))
}

/// Plans the write of a copy. If others wrote its content, their fields are transferred to us before, so that a field that the
/// consumer removes later is removed from the copy.
fn update(consumer: &Consumer, provider: &Provider, corrected: bool) -> Op {
    match &consumer.content {
        None => Op::ReadConsumer,
        Some(_) if is_version_lost(provider.version) => Op::ReadProvider,
        Some(source) if !provider.transferred && is_written_by_others(consumer, provider) => Op::TransferOwnership {
            uid: provider.uid.text(),
            source: Arc::clone(source),
        },
        Some(source) => Op::Update {
            source: Arc::clone(source),
            uid: provider.uid.text(),
            version: provider.version,
            last: LastProjection {
                fingerprint: consumer.projection,
                corrected,
            },
            projections: provider.projections.clone(),
            has_release: provider.has_release,
        },
    }
}

fn spec_up(plan: &mut Plan, pair: &Pair, consumer: &Consumer, provider: &Provider) {
    let wanted = consumer.projection;
    let written = provider.last.filter(|last| last.fingerprint == wanted);
    let corrected = match written {
        // The source changed since the last write.
        None => false,
        // The watch has not shown our own write yet.
        Some(_) if provider.seen.is_none() => return,
        Some(last) => match pair.holds() {
            Some(true) if provider.bound => return,
            Some(holds) if last.corrected => {
                plan.blocked = (!holds).then_some(Blocked::Drift);
                return;
            }
            Some(_) => true,
            None => {
                plan.ops.extend(reads(consumer, provider).ops);
                return;
            }
        },
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
        uid: consumer.uid.text(),
        source,
        fingerprint: seen.status,
        subresource: mode.status_subresource,
    });
}

/// Plans a pair without a provider namespace: while draining, an object that was never synced is deleted.
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
        uid: consumer.uid.text(),
    }))
}

/// True if an object needs a provider namespace: to be copied to, or to see that its copy is gone.
pub(crate) fn wants_place(pair: &Pair) -> bool {
    pair.consumer
        .as_ref()
        .is_some_and(|consumer| !consumer.deleting || consumer.held)
}

/// Whether one time is not before another, in whole seconds, as creation times are.
fn is_not_before(time: Option<Timestamp>, other: Option<Timestamp>) -> bool {
    let times = time.zip(other);
    times.is_some_and(|(time, other)| other.as_second() <= time.as_second())
}

impl Mode {
    /// Whether an orphan becomes the copy of the object that has the name of its source now.
    fn relinks(self) -> bool {
        self.relink || self.order == Some(OrphanAction::Relink)
    }

    /// Whether the export was created at this time or later.
    fn came_after(self, at: Option<Timestamp>) -> bool {
        is_not_before(self.since, at)
    }

    /// Whether a released copy may become that of a new object: the export or the CRD was created after the release.
    fn links(self, provider: &Provider) -> bool {
        match &provider.owner {
            Owner::Released(copy) => self.came_after(copy.at) || is_not_before(self.installed, copy.at),
            _ => false,
        }
    }

    /// Whether the user wants that an object of the provider is adopted.
    fn takes(self, provider: &Provider) -> bool {
        match provider.owner {
            Owner::Fresh { opted_in } => self.adoption.takes(&Candidate::Fresh { opted_in }),
            _ => false,
        }
    }
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
#[path = "tests/plan.rs"]
mod tests;
