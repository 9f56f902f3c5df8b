//! What Kubernetes cannot hide, exactly: RBAC knows no rule for some objects of a collection, so that who lists
//! cluster-wide sees all of it. What is asserted here is what the guide says.

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
};

use crate::{
    docs::is_seen,
    offers::{COMMON, Offer, Place},
    tenant::{RANCH, claimed},
    world::{Scope, World, attack},
};

/// Whether the attacker sees the other's objects of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// Names, marks and content, by get, list and watch.
    All,
    /// Nothing.
    None,
}

/// What the guide says.
fn sight(offer: Offer, scope: Scope) -> Result<Sight> {
    let objects = match offer.place {
        Place::Mapped => "of a namespaced API",
        Place::Prefixed => "Prefixed",
        Place::Shared => "None, FirstWins",
        Place::SharedLastWins => "None, LastWins",
        Place::Contract | Place::Beside => "Namespaced",
    };
    is_seen(objects, scope).map(Sight::from)
}

// === impl Sight ===

impl From<bool> for Sight {
    fn from(is_seen: bool) -> Self {
        if is_seen { Self::All } else { Self::None }
    }
}

async fn looks(world: &World) -> Result<()> {
    for offer in COMMON {
        let sight = sight(offer, world.scope)?;
        look(world, offer, sight)
            .await
            .with_context(|| format!("{} should show {sight:?}", offer.name))?;
    }
    look_at_claimed(world).await
}

/// What the guide says of claimed objects.
fn sight_of_claimed(kind: &str, shared: bool, scope: Scope) -> Result<Sight> {
    let kinds = if kind == "Secret" {
        "Secrets"
    } else {
        "ConfigMaps and ServiceAccounts"
    };
    let of = if shared { " of None" } else { "" };
    is_seen(&format!("claimed {kinds}{of}"), scope).map(Sight::from)
}

async fn look(world: &World, offer: Offer, sight: Sight) -> Result<()> {
    let (zorro, resource) = (&world.zorro, offer.resource());
    let name = zorro.name_of(offer, "first");
    let namespace = match offer.place {
        Place::Mapped | Place::Beside => Some(zorro.space.as_str()),
        Place::Contract => Some(zorro.contract.as_str()),
        _ => None,
    };
    let is_told = |seen: &DynamicObject| seen.data["spec"]["text"] == zorro.secret();
    see(world, &resource, namespace, &name, sight, is_told).await?;
    see(world, &resource, None, &name, sight, is_told).await
}

async fn look_at_claimed(world: &World) -> Result<()> {
    let zorro = &world.zorro;
    for kind in ["Secret", "ConfigMap"] {
        for (namespace, shared) in [(&*zorro.space, false), (RANCH, true)] {
            let sight = sight_of_claimed(kind, shared, world.scope)?;
            let is_told = |seen: &DynamicObject| seen.data["data"]["text"] == zorro.loot_text();
            see(world, &claimed(kind), Some(namespace), &zorro.loot(), sight, is_told)
                .await
                .with_context(|| format!("{kind} in {namespace} should show {sight:?}"))?;
        }
    }
    Ok(())
}

/// Whether the attacker gets, lists and watches an object of the other's at a place: with its content, and whose it is.
async fn see(
    world: &World,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
    sight: Sight,
    is_told: impl Fn(&DynamicObject) -> bool,
) -> Result<()> {
    let client = world.joe.client.clone();
    let objects: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    let listed = objects.list(&ListParams::default()).await.map(|list| list.items);
    let mut answers = vec![listed, watch(&objects).await];
    // One object is in a namespace, or is in none at all.
    if namespace.is_some()
        || COMMON
            .iter()
            .any(|offer| offer.is_wide() && offer.name == resource.plural)
    {
        answers.push(objects.get(name).await.map(|object| vec![object]));
    }
    for answer in answers {
        match sight {
            Sight::All => {
                let seen = answer?.into_iter().find(|object| object.name_any() == name);
                let seen = seen.with_context(|| format!("{name} is not seen"))?;
                let is_marked = seen.annotations().values().any(|value| *value == world.zorro.contract);
                ensure!(is_told(&seen) && is_marked, "{seen:?}");
            }
            Sight::None => is_forbidden(answer)?,
        }
    }
    Ok(())
}

fn is_forbidden<T>(outcome: kube::Result<T>) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => anyhow::bail!("it is seen"),
    }
}

/// What a watch shows that begins with what is there.
async fn watch(objects: &Api<DynamicObject>) -> kube::Result<Vec<DynamicObject>> {
    let params = WatchParams::default().timeout(1);
    let events = objects.watch(&params, "0").await?;
    let events: Vec<_> = events.boxed().try_collect().await?;
    let shown = events.into_iter().map(|event| match event {
        WatchEvent::Added(object) => Ok(Some(object)),
        WatchEvent::Error(status) => Err(kube::Error::Api(status)),
        _ => Ok(None),
    });
    shown.filter_map(Result::transpose).collect()
}

#[test]
fn what_cannot_be_hidden_is_what_the_guide_says() -> Result<()> {
    attack(Scope::Namespaced, looks)
}

#[test]
fn what_cannot_be_hidden_where_konnectors_watch_the_cluster_is_what_the_guide_says() -> Result<()> {
    attack(Scope::Cluster, looks)
}
