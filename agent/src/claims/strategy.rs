//! The strategy of engines that sync claimed resources.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{orphans::OrphanAction, v1alpha2::APIServiceNamespace};
use bindery_runtime::{
    cache::{Cache, ObjectKey},
    watch::Event,
};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use parking_lot::Mutex;
use tokio::sync::watch as channel;

use super::{
    descent::Descent,
    pair::{Both, Cluster, Pair, Role},
    plan::{self, Blocked, Mode, Op},
    rules::{ClaimChoice, ClaimRules},
    write::{self, Learned},
};
use crate::{
    connection::{Target, Writer},
    engine::{
        self, Deletions, Orders,
        report::{Cause, Issue, Problem},
        strategy::{Operation, Steps, SyncStrategy},
    },
    index::{Index, Known as _, Place, PlannedUids},
    model::object::{Object, Version},
};

/// The strategy for one claimed resource.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub rules: Arc<ClaimRules>,
    /// The APIServiceNamespaces of the contract, by consumer namespace.
    pub namespaces: Cache<APIServiceNamespace>,
    pub consumer_namespaces: Cache<Namespace>,
    /// The guard of deletions of each binding.
    pub guards: Mutex<BTreeMap<Arc<str>, Arc<Deletions>>>,
    /// What the user ordered for orphans.
    pub orders: Orders,
}

/// The progress of the engine of a claimed resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimedProgress {
    pub common: engine::Progress,
    pub from_consumer: usize,
    pub from_provider: usize,
    /// The number of copies that no claim selects.
    pub leftovers: usize,
    /// The provider claims the resource no more and refuses access to it, so that only copies on the consumer are counted.
    pub out_of_reach: bool,
    /// The first object of the provider that came down without all its labels and annotations, and the key of one of them.
    pub left_out: Option<(ObjectKey, Box<str>)>,
    /// No worker has an object, and none waits.
    pub is_idle: bool,
    /// Why not all references are known.
    pub complaint: Option<String>,
}

impl Claimed {
    /// What the user ordered for the copy of a pair, if it is an orphan still. A consent that the user gave a former version holds too.
    fn order(&self, pair: &Pair) -> Option<OrphanAction> {
        let Some(orphan) = pair.orphan() else {
            let copies = [pair.consumer(), pair.provider()].into_iter().flatten();
            for (copy, _) in copies {
                self.orders.of(Some(copy), false);
            }
            return None;
        };
        let consented = || self.guards.lock().values().any(|guard| guard.consents());
        let ordered = self.orders.of(Some(orphan.copy), true);
        ordered.or_else(|| consented().then_some(OrphanAction::Delete))
    }

    /// Tells whether a consumer namespace certainly has no provider namespace.
    fn has_no_place(&self, key: &ObjectKey) -> bool {
        let place = || self.namespaces.get(&self.rules.contract, &key.namespace);
        self.namespaces.is_synced() && place().is_none()
    }

    /// Whether the provider's object of a pair may come down.
    fn descent(&self, key: &ObjectKey, pair: &Pair) -> Descent {
        let source = pair.sides.provider.as_ref().filter(|side| side.is_source());
        source.map_or(Descent::Allowed, |source| {
            self.rules.descent(key, &source.labels, source.secret_type.as_deref())
        })
    }

    fn mode(&self, key: &ObjectKey, pair: &Pair, place: &Place) -> Mode {
        let namespace = self.consumer_namespaces.get("", &key.namespace);
        let namespace_is_gone = namespace.is_none() && self.consumer_namespaces.is_synced();
        Mode {
            namespace_is_gone,
            withdrawn: self.rules.is_withdrawn(),
            relink: self.rules.relinks(),
            order: self.order(pair),
            descent: self.descent(key, pair),
            room: Both {
                consumer: !place.closing && namespace.is_some_and(|it| it.metadata.deletion_timestamp.is_none()),
                // Of a namespace that was finalized by force, the provider namespace is given back, and its end would wait for the copy.
                provider: !place.closing && !namespace_is_gone,
            },
        }
    }
}

fn issue(blocked: &Blocked) -> Issue {
    Issue {
        cause: match blocked {
            Blocked::Orphan { .. } => Cause::Orphan,
            _ => Cause::Other,
        },
        ..Issue::blocked(blocked.reason(), blocked)
    }
}

impl SyncStrategy for Claimed {
    type Pair = Pair;
    type Op = Op;
    type Learned = Learned;
    type Progress = ClaimedProgress;

    const SHARES_WATCHES: bool = true;
    const ASSUMES_PLACES: bool = false;

    fn plan(&self, key: &ObjectKey, pair: &Pair, place: &Place) -> Steps<Op> {
        let plan = plan::plan(pair, self.mode(key, pair, place), &|cluster, side| {
            side.choice(cluster, key, &self.rules)
        });
        Steps {
            issue: plan.blocked.as_ref().map(issue),
            ops: plan.ops,
        }
    }

    fn is_at_rest(&self, key: &ObjectKey, pair: &Pair, _: &Place) -> bool {
        // An order ends with the source that is back.
        self.order(pair);
        plan::is_at_rest(pair, &|cluster, side| side.choice(cluster, key, &self.rules), || {
            self.descent(key, pair)
        })
    }

    fn unplaced(&self, _: &ObjectKey, pair: &Pair, has_place: bool) -> Option<Steps<Op>> {
        let (key, copy) = (pair.key.as_ref()?, pair.sides.consumer.as_ref()?);
        let withdrawn = self.rules.is_withdrawn();
        let has_lost_place = !has_place && self.has_no_place(key);
        let goes = matches!(copy.role, Role::Copy { .. })
            && !copy.deleting
            && (withdrawn || has_lost_place)
            && copy.choice(Cluster::Consumer, key, &self.rules) == ClaimChoice::Unselected;
        goes.then(|| {
            if copy.paused {
                return Steps {
                    ops: Vec::new(),
                    issue: Some(issue(&Blocked::Paused)),
                };
            }
            Steps::from(Op::Delete {
                on: Cluster::Consumer,
                uid: copy.uid.text(),
                guarded: !withdrawn,
            })
        })
    }

    async fn apply(&self, writer: &Writer, target: Target<'_>, op: &Op) -> Result<Option<Learned>, kube::Error> {
        write::apply(writer, &self.rules, target, op).await.map(Some)
    }

    fn written(learned: &Learned) -> Option<Version> {
        match learned {
            Learned::Written { copy, .. } => Some(copy.version),
            Learned::Read { .. } | Learned::Deleted { .. } => None,
        }
    }

    fn learn(&self, index: &mut Index<Pair>, key: &ObjectKey, learned: Learned, planned: &PlannedUids) {
        write::learn(index, key, learned, planned);
    }

    fn exports(&self) -> Vec<OwnerReference> {
        self.rules.terms().exports
    }

    fn counts_for(&self) -> Option<&Arc<Deletions>> {
        None
    }

    fn orders(&self) -> &Orders {
        &self.orders
    }

    fn guards(&self) -> Vec<Arc<Deletions>> {
        self.guards.lock().values().cloned().collect()
    }

    fn consumer_event(&self, _: &Event<Object>) {}

    fn relists(&self) -> Option<channel::Receiver<u64>> {
        None
    }

    fn observe(&self, common: engine::Progress, is_idle: bool, index: &Index<Pair>) -> ClaimedProgress {
        let mut progress = ClaimedProgress {
            is_idle,
            complaint: self.rules.complaint(),
            common,
            ..ClaimedProgress::default()
        };
        let is_refused = |problem: &Problem| problem.cause == Cause::ProviderForbids;
        progress.out_of_reach = self.rules.is_dropped() && progress.common.problem.as_ref().is_some_and(is_refused);
        for (key, pair) in index.pairs() {
            for (cluster, copy) in pair.copies() {
                match cluster {
                    Cluster::Consumer => progress.from_provider += 1,
                    Cluster::Provider => progress.from_consumer += 1,
                }
                if cluster == Cluster::Consumer
                    && progress.left_out.as_ref().is_none_or(|(first, _)| key < *first)
                    && let Some((_, source, _)) = pair.parts()
                    && let Some(left_out) = &source.left_out
                {
                    progress.left_out = Some((key.clone(), left_out.clone()));
                }
                let by = pair.parts().map_or(copy, |(_, source, _)| source);
                let is_countable = !progress.out_of_reach || cluster == Cluster::Consumer;
                let secret_type = by.secret_type.as_deref();
                let is_leftover = || self.rules.is_leftover(&key, &by.labels, secret_type);
                progress.leftovers += usize::from(is_countable && is_leftover());
            }
        }
        progress
    }
}

impl Operation for Op {
    fn name(&self) -> &'static str {
        match self {
            Self::Read { on: Cluster::Consumer } => "read_consumer",
            Self::Read { on: Cluster::Provider } => "read_provider",
            Self::Create { .. } => "create_copy",
            Self::Update { .. } => "update_copy",
            Self::Delete { .. } => "delete_copy",
            Self::DeleteOrphan { .. } => "delete_orphan",
        }
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Read { .. } => "get",
            Self::Create { .. } | Self::Update { .. } => "patch",
            Self::Delete { .. } | Self::DeleteOrphan { .. } => "delete",
        }
    }

    fn writes_copy(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Update { .. }) && !self.is_on_consumer()
    }

    fn is_on_consumer(&self) -> bool {
        let (Self::Read { on }
        | Self::Create { on, .. }
        | Self::Update { on, .. }
        | Self::Delete { on, .. }
        | Self::DeleteOrphan { on, .. }) = self;
        *on == Cluster::Consumer
    }

    fn is_guarded(&self) -> bool {
        matches!(self, Self::Delete { guarded: true, .. })
    }

    fn is_deletion(&self) -> bool {
        matches!(self, Self::Delete { .. } | Self::DeleteOrphan { .. })
    }

    fn carries_change(&self) -> bool {
        matches!(
            self,
            Self::Create { .. } | Self::Update { .. } | Self::Delete { guarded: false, .. }
        )
    }

    fn read(on_consumer: bool) -> Self {
        Self::Read {
            on: if on_consumer {
                Cluster::Consumer
            } else {
                Cluster::Provider
            },
        }
    }
}
