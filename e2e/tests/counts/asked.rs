//! Requests, by who asks.

use std::collections::BTreeMap;

use anyhow::Result;
use bindery_api::names::CLUSTER_BINDING;
use bindery_e2e::{Asked, Moment, NAMESPACE};

use crate::world::World;

/// Who keeps objects in sync, on the consumer.
const KONNECTOR: &str = "system:serviceaccount:kube-bind:konnector";
/// The backend, on the provider.
const SERVER: &str = "system:serviceaccount:kube-bind:bindery-server";

/// A moment on both clusters.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    provider: Moment,
    consumer: Moment,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// The konnector, its own cluster.
    Konnector,
    /// The konnector, the provider.
    Binder,
    Server,
    Other(String),
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) who: Who,
    pub(crate) asked: Asked,
}

/// How often what was asked, such as `Binder patch cowboys`.
pub(crate) type Tally = BTreeMap<String, usize>;

// === impl Mark ===

impl Mark {
    pub(crate) fn now(world: &World) -> Result<Self> {
        Ok(Self {
            provider: world.provider.plane.audit()?.now()?,
            consumer: world.consumer.plane.audit()?.now()?,
        })
    }
}

// === impl Request ===

impl Request {
    /// What a program writes for as long as it leads: its own Lease.
    pub(crate) fn is_renewal(&self) -> bool {
        let asked = &self.asked;
        let own = match self.who {
            Who::Konnector => "kube-bind",
            Who::Server => "bindery-server",
            Who::Binder | Who::Other(_) => return false,
        };
        let lease = (asked.resource.as_str(), asked.namespace.as_str(), asked.name.as_str());
        asked.verb == "update" && lease == ("leases", NAMESPACE, own)
    }

    /// What tells the provider now and then that the konnector lives.
    pub(crate) fn is_heartbeat(&self) -> bool {
        let asked = &self.asked;
        let what = (asked.resource.as_str(), asked.subresource.as_str(), asked.name.as_str());
        self.who == Who::Binder && asked.verb == "patch" && what == ("clusterbindings", "status", CLUSTER_BINDING)
    }

    /// Whether it changes something, and does not only ask who somebody is or what they may do.
    pub(crate) fn is_write(&self) -> bool {
        self.asked.is_write() && !self.asked.group.starts_with("auth")
    }

    pub(crate) fn told(&self) -> String {
        let Asked {
            verb,
            resource,
            subresource,
            ..
        } = &self.asked;
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{:?} {verb} {resource}{slash}{subresource}", self.who)
    }
}

/// All requests on both clusters from a moment up to another, or up to now: the provider's in their order, then the
/// consumer's.
pub(crate) fn between(world: &World, from: Mark, to: Option<Mark>) -> Result<Vec<Request>> {
    let provider = world
        .provider
        .plane
        .audit()?
        .between(from.provider, to.map(|to| to.provider))?;
    let consumer = world
        .consumer
        .plane
        .audit()?
        .between(from.consumer, to.map(|to| to.consumer))?;
    let request = |asked: Asked| Request {
        who: who(world, &asked.by),
        asked,
    };
    Ok(provider.into_iter().chain(consumer).map(request).collect())
}

/// Requests that are about no resource, such as discovery.
pub(crate) fn about_nothing(world: &World, from: Mark) -> Result<Vec<String>> {
    let (provider, consumer) = (world.provider.plane.audit()?, world.consumer.plane.audit()?);
    let mut all = provider.about_nothing_since(from.provider, &world.binder())?;
    all.extend(provider.about_nothing_since(from.provider, SERVER)?);
    all.extend(consumer.about_nothing_since(from.consumer, KONNECTOR)?);
    Ok(all)
}

pub(crate) fn tally<'r>(requests: impl IntoIterator<Item = &'r Request>) -> Tally {
    let mut tally = Tally::new();
    for request in requests {
        *tally.entry(request.told()).or_default() += 1;
    }
    tally
}

fn who(world: &World, account: &str) -> Who {
    match account {
        KONNECTOR => Who::Konnector,
        SERVER => Who::Server,
        other if other == world.binder() => Who::Binder,
        other => Who::Other(other.to_owned()),
    }
}
