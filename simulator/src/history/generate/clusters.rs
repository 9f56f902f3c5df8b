//! Draws the clusters of a seed.

use rand::{RngExt as _, rngs::StdRng};

use crate::{
    history::objects::weighted,
    topology::{
        BindingSetup, BoundBy, Claim, ClaimedResource, ConsumerSetup, ControllerPace, DeletionPolicy, Isolation, Offer,
        Owner, ProviderSetup, Retention, Scope, Selection, Topology,
    },
};

/// Draws providers with their offers, and consumers with their bindings. Most seeds have one of each with one replica, for they take
/// half of the time and show most.
pub(super) fn topology(rng: &mut StdRng) -> Topology {
    let counts = [(80, (1, 1)), (7, (2, 1)), (9, (1, 2)), (4, (2, 2))];
    let paces = [
        (80, ControllerPace::Quick),
        (15, ControllerPace::Slow),
        (5, ControllerPace::Late),
    ];
    let (providers, consumers) = weighted(rng, &counts).unwrap_or((1, 1));
    Topology {
        providers: (0..providers)
            .map(|_| ProviderSetup {
                replicas: replicas(rng),
                offer: offer(rng),
            })
            .collect(),
        consumers: (0..consumers)
            .map(|_| ConsumerSetup {
                replicas: replicas(rng),
                bindings: bindings(rng, providers),
            })
            .collect(),
        pace: weighted(rng, &paces).unwrap_or_default(),
        policy_delay: if rng.random_bool(0.5) {
            rng.random_range(0..5_000)
        } else {
            0
        },
    }
}

fn replicas(rng: &mut StdRng) -> u8 {
    if rng.random_bool(0.15) { 2 } else { 1 }
}

fn bindings(rng: &mut StdRng, providers: u8) -> Vec<BindingSetup> {
    let mut bindings = Vec::new();
    for provider in 1..=providers {
        // The first is nearly always bound, so that few seeds have nothing to do before the first bind.
        if rng.random_bool(if provider == 1 { 0.97 } else { 0.7 }) {
            bindings.push(BindingSetup {
                provider,
                by: bound_by(rng),
                policy: policy(rng),
            });
        }
    }
    bindings
}

/// Draws what an API is bound by.
pub(super) fn bound_by(rng: &mut StdRng) -> BoundBy {
    if rng.random_bool(0.25) {
        BoundBy::Bundle
    } else {
        BoundBy::Binding
    }
}

/// Draws the deletion policy of a binding.
pub(super) fn policy(rng: &mut StdRng) -> DeletionPolicy {
    let policies = [
        (8, DeletionPolicy::Unset),
        (1, DeletionPolicy::Delete),
        (2, DeletionPolicy::Orphan),
    ];
    weighted(rng, &policies).unwrap_or(DeletionPolicy::Unset)
}

fn offer(rng: &mut StdRng) -> Offer {
    let scope = if rng.random_bool(0.65) {
        Scope::Namespaced
    } else {
        Scope::Cluster
    };
    let isolations = [
        (1, Isolation::Prefixed),
        (1, Isolation::Namespaced),
        (1, Isolation::None),
    ];
    let isolation = match scope {
        Scope::Namespaced => Isolation::Prefixed,
        Scope::Cluster => weighted(rng, &isolations).unwrap_or_default(),
    };
    let mut claims = Vec::new();
    for resource in [ClaimedResource::Secrets, ClaimedResource::ConfigMaps] {
        if rng.random_bool(0.3) {
            claims.push(claim(rng, resource, scope));
        }
    }
    Offer {
        scope,
        isolation,
        claims,
        retention: retention(rng, isolation),
    }
}

/// Draws how long copies are retained. Where consumers share names, no provider can offer that.
fn retention(rng: &mut StdRng, isolation: Isolation) -> Option<Retention> {
    let retentions = [(6, None), (1, Some(Retention::Short)), (2, Some(Retention::Long))];
    weighted(rng, &retentions)
        .flatten()
        .filter(|_| isolation != Isolation::None)
}

fn claim(rng: &mut StdRng, resource: ClaimedResource, scope: Scope) -> Claim {
    let owner = if rng.random_bool(0.7) {
        Owner::Consumer
    } else {
        Owner::Provider
    };
    let selections = [
        (1, Selection::Named),
        (1, Selection::Labelled),
        // A cluster-scoped object has no namespace in which to look for what it refers to.
        (
            u32::from(scope == Scope::Namespaced && owner == Owner::Consumer),
            Selection::Referenced,
        ),
    ];
    Claim {
        resource,
        selection: weighted(rng, &selections).unwrap_or(Selection::Labelled),
        owner,
    }
}
