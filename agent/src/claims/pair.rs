//! What is known of one claimed object on both clusters, and which of the two is the source.

use std::{fmt, sync::Arc};

use bindery_api::{
    annotations, claims::is_local_field, finalizers, labels, placement::ClaimedPlacement, v1alpha2::Owner,
};
use bindery_runtime::cache::ObjectKey;

use super::rules::{ClaimChoice, ClaimRules};
use crate::{
    index::{Compared, Contents, Known, Orphan, OrphanKind, Shown},
    model::{
        labels::Marks,
        object::{Object, Version},
        projection::{self, Fingerprint, LastProjection},
        uid::Uid,
    },
};

/// One of the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cluster {
    Consumer,
    Provider,
}

/// One value for each cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Both<T> {
    pub consumer: T,
    pub provider: T,
}

/// What is known of the objects of one name on both clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    /// The key of the consumer's object, once either cluster has shown an object.
    pub key: Option<ObjectKey>,
    pub sides: Both<Option<Side>>,
    /// UIDs of the objects whose end was seen last, which is proof enough to delete their copies.
    pub ended: Both<Option<Uid>>,
    /// UIDs of the objects that disappeared last, seen or not. The answer to a write of one may still come.
    lost: Both<Option<Uid>>,
    /// Clusters that went back in time, as after a restore, and have not shown the object since. That they lack it is no evidence.
    went_back: Both<bool>,
    /// The last comparison of contents with different fingerprints, until either changes.
    pub compared: Option<Box<Compared>>,
}

/// The longest key of a label or annotation that Kubernetes allows, in bytes: a DNS subdomain of 253, a slash and a name of 63.
const KEY_MAX: usize = 317;

/// What is known of the object of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub uid: Uid,
    pub version: Version,
    pub deleting: bool,
    /// Whether the user paused it by annotation, so that nothing is written.
    pub paused: bool,
    pub role: Role,
    pub labels: Marks,
    /// The type of a Secret.
    pub secret_type: Option<Box<str>>,
    /// Whether it is immutable: the API server refuses to change its data.
    pub immutable: bool,
    /// Key of the first label or annotation of a provider's source that does not come down.
    pub left_out: Option<Box<str>>,
    /// Fingerprint of its content. `None` for our own write that the watch has not shown yet.
    pub print: Option<Fingerprint>,
    /// The object itself, while a plan may need it.
    pub content: Option<Arc<Object>>,
}

/// What an object is, by its labels and annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A user or the provider made it on this cluster.
    Source,
    /// This contract made it as the copy of the object of this UID on the other cluster.
    Copy {
        source_uid: Uid,
        last: Option<LastProjection>,
    },
    /// A copy that another contract made.
    Others { contract: Box<str> },
    /// A copy of this contract that the provider kept when an earlier binding ended.
    Released,
    /// It is synced because its API is bound.
    Bound,
}

// === impl Cluster ===

impl Cluster {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Consumer => Self::Provider,
            Self::Provider => Self::Consumer,
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Consumer => "consumer",
            Self::Provider => "provider",
        })
    }
}

// === impl Both ===

impl<T> Both<T> {
    pub(crate) fn of(&self, cluster: Cluster) -> &T {
        match cluster {
            Cluster::Consumer => &self.consumer,
            Cluster::Provider => &self.provider,
        }
    }

    pub(crate) fn of_mut(&mut self, cluster: Cluster) -> &mut T {
        match cluster {
            Cluster::Consumer => &mut self.consumer,
            Cluster::Provider => &mut self.provider,
        }
    }
}

// === impl Side ===

impl Side {
    /// Reads an object as a source. Its content is not kept yet.
    pub(crate) fn source(object: &Object) -> Self {
        let meta = &object.meta;
        let field = |name: &str| {
            let found = object.body.iter().find(|(key, _)| **key == *name);
            found.map(|(_, text)| text.get())
        };
        Self {
            uid: Uid::from(&meta.uid),
            version: meta.resource_version,
            deleting: meta.deletion_timestamp,
            paused: meta.is_paused(),
            role: Role::Source,
            labels: meta.labels.clone(),
            secret_type: field("type").and_then(|text| serde_json::from_str(text).ok()),
            immutable: field("immutable") == Some("true"),
            left_out: None,
            print: Some(projection::fingerprint(object)),
            content: None,
        }
    }

    /// Our own write of the copy of a source, which the watch has not shown yet.
    pub(crate) fn copy(source: &Object, uid: &str, version: Version, last: LastProjection) -> Self {
        Self {
            uid: uid.into(),
            version,
            role: Role::Copy {
                source_uid: Uid::from(&source.meta.uid),
                last: Some(last),
            },
            print: None,
            ..Self::source(source)
        }
    }

    fn read(object: &Object, cluster: Cluster, rules: &ClaimRules) -> Self {
        let mut side = Self::source(object);
        side.role = role(object, cluster, rules);
        if !matches!(side.role, Role::Source | Role::Copy { .. }) {
            // Only sources and copies are selected by labels; for others, labels would only take memory.
            side.labels = Marks::default();
        }
        side
    }

    fn shown(&self) -> Option<Shown<'_>> {
        Some(Shown::of(self.print?, self.content.as_ref()))
    }

    pub(crate) fn is_source(&self) -> bool {
        self.role == Role::Source
    }

    /// Whether the object is claimed, which is one of this cluster. A copy is asked only if its source is missing.
    pub(crate) fn choice(&self, cluster: Cluster, key: &ObjectKey, rules: &ClaimRules) -> ClaimChoice {
        let is_provided = cluster == Cluster::Provider && self.is_source();
        rules.choose(key, &self.labels, self.secret_type.as_deref(), is_provided)
    }

    /// The UID of the source; `None` if this is no copy of this contract.
    pub(crate) fn source_uid(&self) -> Option<&Uid> {
        match &self.role {
            Role::Copy { source_uid, .. } => Some(source_uid),
            _ => None,
        }
    }
}

/// Removes the labels and annotations of a provider's object that do not come down. Returns the key of the first that would have been
/// copied otherwise.
fn leave_out(object: &mut Object, rules: &ClaimRules) -> Option<Box<str>> {
    let meta = &mut object.meta;
    let (labels, others): (Vec<_>, Vec<_>) = meta.labels.iter().partition(|(key, _)| rules.carries_label(key));
    let first = others
        .into_iter()
        .chain(meta.annotations.iter())
        .map(|(key, _)| key)
        .find(|key| annotations::is_copied(key))
        .map(|key| {
            if key.len() > KEY_MAX {
                "one with a key that is too long"
            } else {
                key
            }
            .into()
        });
    meta.labels = labels.into_iter().collect();
    meta.annotations = Marks::default();
    first
}

fn role(object: &Object, cluster: Cluster, rules: &ClaimRules) -> Role {
    let meta = &object.meta;
    let mark = |key: &str| meta.annotations.get(key);
    let label = |key: &str| meta.labels.get(key);
    let owner = label(labels::OWNER).and_then(Owner::from_name);
    let contract = mark(annotations::CLUSTER_NAMESPACE);
    let (is_copy, is_ours, source_uid) = match cluster {
        Cluster::Consumer => {
            let is_shared = mark(annotations::PROVIDER_NAMESPACE) == Some(&*meta.namespace);
            let is_of_place = is_shared == (rules.claim.placement == ClaimedPlacement::Shared);
            // Contracts of two providers may have the same name, so the UID has to match too.
            let is_contracts =
                contract == Some(&*rules.contract) && label(labels::CONTRACT_UID) == Some(&*rules.contract_uid);
            (
                owner == Some(Owner::Provider),
                is_contracts && is_of_place,
                mark(annotations::PROVIDER_UID),
            )
        }
        Cluster::Provider => (
            owner == Some(Owner::Consumer),
            contract == Some(&*rules.contract),
            mark(annotations::CONSUMER_UID),
        ),
    };
    if !is_copy {
        let is_bound = match cluster {
            Cluster::Consumer => meta.finalizers.iter().any(|one| **one == *finalizers::SYNCER),
            Cluster::Provider => contract.is_some(),
        };
        return if is_bound { Role::Bound } else { Role::Source };
    }
    match source_uid.filter(|uid| is_ours && !uid.is_empty()) {
        Some(_)
            if mark(annotations::RELEASED).is_some_and(|value| annotations::is_released(value, &rules.contract)) =>
        {
            Role::Released
        }
        Some(source_uid) => Role::Copy {
            source_uid: source_uid.into(),
            last: mark(annotations::PROJECTION_HASH).and_then(|text| text.parse().ok()),
        },
        None => Role::Others {
            contract: contract.unwrap_or_default().into(),
        },
    }
}

// === impl Pair ===

impl Pair {
    /// The cluster of the source, the source and the copy; `None` unless the pair is a source and a copy of this contract.
    pub(crate) fn parts(&self) -> Option<(Cluster, &Side, &Side)> {
        let consumer = self.sides.consumer.as_ref()?;
        let provider = self.sides.provider.as_ref()?;
        match (&consumer.role, &provider.role) {
            (Role::Source, Role::Copy { .. }) => Some((Cluster::Consumer, consumer, provider)),
            (Role::Copy { .. }, Role::Source) => Some((Cluster::Provider, provider, consumer)),
            _ => None,
        }
    }

    /// Notes our own write of a copy, unless the watch has already shown it, a newer version or the end of the copy.
    pub(crate) fn written(&mut self, on: Cluster, copy: Side) {
        let known = |known: &Side| known.uid == copy.uid && known.version >= copy.version;
        let is_lost = self.lost.of(on).as_ref() == Some(&copy.uid);
        if !is_lost && !self.sides.of(on).as_ref().is_some_and(known) {
            *self.sides.of_mut(on) = Some(copy);
        }
    }

    /// The copies of this contract, with the cluster of each.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (Cluster, &Side)> {
        let both = [
            (Cluster::Consumer, &self.sides.consumer),
            (Cluster::Provider, &self.sides.provider),
        ];
        both.into_iter()
            .filter_map(|(cluster, side)| Some((cluster, side.as_ref()?)))
            .filter(|(_, side)| side.source_uid().is_some())
    }

    fn see(&mut self, cluster: Cluster, key: &ObjectKey, mut object: Object, rules: &ClaimRules) {
        self.key.get_or_insert_with(|| key.clone());
        object
            .body
            .retain(|(field, _)| !is_local_field(&rules.claim.resource, field));
        let mut side = Side::read(&object, cluster, rules);
        if cluster == Cluster::Provider && side.is_source() {
            // It is selected by all its labels, and copied with those that may come down.
            side.left_out = leave_out(&mut object, rules);
            side.print = Some(projection::fingerprint(&object));
        }
        let is_needed = match side.role {
            Role::Copy { .. } => true,
            Role::Source => side.choice(cluster, key, rules) == ClaimChoice::Selected,
            Role::Others { .. } | Role::Released | Role::Bound => false,
        };
        side.content = is_needed.then(|| Arc::new(object));
        *self.sides.of_mut(cluster) = Some(side);
        *self.went_back.of_mut(cluster) = false;
        self.settle();
    }

    fn lose(&mut self, cluster: Cluster) {
        if let Some(known) = self.sides.of_mut(cluster).take() {
            *self.lost.of_mut(cluster) = Some(known.uid);
        }
        self.compared = None;
    }

    /// Notes that a cluster went back in time: objects that were seen to end may exist again.
    fn rewind(&mut self, cluster: Cluster) {
        *self.ended.of_mut(cluster) = None;
        *self.lost.of_mut(cluster) = None;
        *self.went_back.of_mut(cluster) = true;
        if let Some(side) = self.sides.of_mut(cluster) {
            side.version = Version::default();
        }
    }

    /// The copy, if its source is missing since its cluster went back in time, as after a restore.
    pub(crate) fn orphan(&self) -> Option<Orphan<'_>> {
        let is_orphan = |(cluster, copy): &(Cluster, &Side)| {
            let of = cluster.other();
            let source = self.sides.of(of).as_ref().map(|source| &source.uid);
            let ended = self.ended.of(of).as_ref();
            !copy.deleting && *self.went_back.of(of) && source != copy.source_uid() && ended != copy.source_uid()
        };
        let (_, copy) = self.copies().find(is_orphan)?;
        Some(Orphan {
            copy: &copy.uid,
            kind: OrphanKind::Missing,
        })
    }
}

impl Contents for Pair {
    fn source_and_copy(&self) -> Option<(Shown<'_>, Shown<'_>)> {
        let (_, source, copy) = self.parts()?;
        Some((source.shown()?, copy.shown()?))
    }

    fn compared(&self) -> Option<&Compared> {
        self.compared.as_deref()
    }

    fn set_compared(&mut self, compared: Compared) {
        self.compared = Some(Box::new(compared));
    }

    fn agrees(&self) -> bool {
        let is_written = |(_, source, copy): (Cluster, &Side, &Side)| match &copy.role {
            Role::Copy { source_uid, last } => {
                *source_uid == source.uid && last.map(|last| last.fingerprint) == source.print
            }
            _ => false,
        };
        self.holds() == Some(true) && self.parts().is_some_and(is_written)
    }

    fn is_unseen(&self) -> bool {
        let mut sides = [&self.sides.consumer, &self.sides.provider].into_iter().flatten();
        sides.any(|side| side.print.is_none())
    }

    fn forget_content(&mut self) {
        let sides = [&mut self.sides.consumer, &mut self.sides.provider];
        for side in sides.into_iter().flatten() {
            side.content = None;
        }
    }
}

impl Known for Pair {
    type Reader = Arc<ClaimRules>;

    fn consumer(&self) -> Option<(&Uid, Version)> {
        self.sides.consumer.as_ref().map(|side| (&side.uid, side.version))
    }

    fn provider(&self) -> Option<(&Uid, Version)> {
        self.sides.provider.as_ref().map(|side| (&side.uid, side.version))
    }

    fn see_consumer(&mut self, key: &ObjectKey, object: Object, rules: &mut Arc<ClaimRules>) {
        self.see(Cluster::Consumer, key, object, rules);
    }

    fn see_provider(&mut self, key: &ObjectKey, object: Object, rules: &mut Arc<ClaimRules>) -> bool {
        self.see(Cluster::Provider, key, object, rules);
        true
    }

    fn rewind_consumer(&mut self) {
        self.rewind(Cluster::Consumer);
    }

    fn rewind_provider(&mut self) {
        self.rewind(Cluster::Provider);
    }

    fn consumer_ended(&mut self, uid: &str) {
        self.ended.consumer = Some(uid.into());
    }

    fn lose_consumer(&mut self) {
        self.lose(Cluster::Consumer);
    }

    fn lose_provider(&mut self, uid: Option<&str>) {
        self.lose(Cluster::Provider);
        if let Some(uid) = uid {
            self.ended.provider = Some(uid.into());
        }
    }

    fn forget_provider(&mut self) {
        self.sides.provider = None;
        self.ended.provider = None;
        self.lost.provider = None;
        self.went_back.provider = false;
        self.compared = None;
    }

    fn wants_place(&self, key: &ObjectKey, rules: &Arc<ClaimRules>) -> bool {
        let source = self
            .sides
            .consumer
            .as_ref()
            .filter(|side| side.is_source() && !side.deleting);
        source.is_some_and(|source| source.choice(Cluster::Consumer, key, rules) == ClaimChoice::Selected)
    }

    fn orphan(&self) -> Option<Orphan<'_>> {
        self.orphan()
    }

    fn kept_bytes(&self) -> usize {
        self.sides.provider.as_ref().map_or(0, |side| {
            let labels: usize = side.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
            let texts = [&side.secret_type, &side.left_out];
            labels + texts.into_iter().flatten().map(|text| text.len()).sum::<usize>()
        })
    }

    /// The end of a source is read where it matters.
    fn missed_source(&self) -> Option<&Uid> {
        None
    }

    fn has_copy(&self) -> bool {
        let copy = self.sides.provider.as_ref();
        copy.is_some_and(|copy| copy.source_uid().is_some())
    }
}
