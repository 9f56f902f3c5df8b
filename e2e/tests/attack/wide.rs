//! Rights on cluster-scoped objects reach all of them, whoever's they are: what RBAC cannot hold, the policy must.

use anyhow::{Context as _, Result, ensure};
use bindery_api::annotations;
use http::Method;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    attempt::{self, Attempt, Expect},
    offers::{HERDS, Offer, Place, RIVERS, TRAILS},
    tenant::{RANCH, Tenant, claimed},
    world::{Scope, World, attack},
};

const MARK: &str = annotations::CLUSTER_NAMESPACE;
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const PATCH: &str = "application/json-patch+json";
const JSON: &str = "application/json";

/// Attempts on the objects of one collection, all as dry runs.
struct Objects<'a> {
    collection: String,
    api_version: String,
    kind: &'a str,
    /// The field that holds what the objects say.
    field: &'a str,
    joe: &'a Tenant,
    attempts: Vec<Attempt>,
}

// === impl Objects ===

impl<'a> Objects<'a> {
    /// The cluster-scoped objects of an API.
    fn of(offer: Offer, joe: &'a Tenant) -> Self {
        Self {
            collection: format!("/apis/{}/v1/{}", offer.group(), offer.name),
            api_version: format!("{}/v1", offer.group()),
            kind: offer.kind,
            field: "spec",
            joe,
            attempts: Vec::new(),
        }
    }

    /// The Secrets of the namespace that contracts share.
    fn secrets(joe: &'a Tenant) -> Self {
        Self {
            collection: format!("/api/v1/namespaces/{RANCH}/secrets"),
            api_version: "v1".to_owned(),
            kind: "Secret",
            field: "stringData",
            joe,
            attempts: Vec::new(),
        }
    }

    fn object(&self, name: &str, mark: Option<&str>) -> Value {
        let mut object = json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}});
        object[self.field] = json!({"text": "joe was here"});
        if let Some(mark) = mark {
            object["metadata"]["annotations"] = json!({annotations::CLUSTER_NAMESPACE: mark});
        }
        object
    }

    fn send(&mut self, method: Method, path: &str, body: Option<(&'static str, Value)>, expect: Expect) {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut attempt = Attempt::new(method, format!("{path}{separator}dryRun=All"), expect);
        attempt.body = body;
        self.attempts.push(attempt);
    }

    /// Makes it by every verb that makes.
    fn create(&mut self, name: &str, mark: Option<&str>, expect: Expect) {
        let (collection, object) = (self.collection.clone(), self.object(name, mark));
        let apply = format!("{collection}/{name}?fieldManager=joe&force=true");
        self.send(Method::POST, &collection, Some((JSON, object.clone())), expect);
        self.send(Method::PATCH, &apply, Some((APPLY, object)), expect);
    }

    /// Has the API server choose the end of the name.
    fn generate(&mut self, beginning: &str, mark: Option<&str>, expect: Expect) {
        let mut object = self.object("", mark);
        object["metadata"] = json!({"generateName": beginning, "annotations": object["metadata"]["annotations"]});
        let collection = self.collection.clone();
        self.send(Method::POST, &collection, Some((JSON, object)), expect);
    }

    /// Changes and deletes one that is there, by every verb, and tries to take it over or to give it away.
    fn change(&mut self, object: &DynamicObject, expect: Expect, marking: Expect) -> Result<()> {
        let name = object.name_any();
        let path = format!("{}/{name}", self.collection);
        let mut changed = serde_json::to_value(object)?;
        changed[self.field]["text"] = json!("joe was here");
        let (own, applied) = (self.joe.contract.clone(), self.object(&name, None));
        self.send(Method::PUT, &path, Some((JSON, changed.clone())), expect);
        let text = json!({self.field: {"text": "joe was here"}});
        self.send(Method::PATCH, &path, Some((MERGE, text)), expect);
        let apply = format!("{path}?fieldManager=joe&force=true");
        self.send(Method::PATCH, &apply, Some((APPLY, applied)), expect);
        let finalizer = json!({"metadata": {"finalizers": ["joe.example.dev/stays"]}});
        self.send(Method::PATCH, &path, Some((MERGE, finalizer)), Expect::Policy);
        self.send(Method::DELETE, &path, None, expect);
        // Options in the body take the place of those of the path.
        let orphaned = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan", "dryRun": ["All"],
        });
        self.send(Method::DELETE, &path, Some((JSON, orphaned)), expect);
        // Marks: one's own, and none.
        let mark = json!({"metadata": {"annotations": {annotations::CLUSTER_NAMESPACE: own}}});
        self.send(Method::PATCH, &path, Some((MERGE, mark)), expect);
        let key = annotations::CLUSTER_NAMESPACE.replace('/', "~1");
        let take =
            json!([{"op": "add", "path": "/metadata/annotations", "value": {annotations::CLUSTER_NAMESPACE: own}}]);
        self.send(Method::PATCH, &path, Some((PATCH, take)), expect);
        if object.annotations().contains_key(annotations::CLUSTER_NAMESPACE) {
            let remove = json!([{"op": "remove", "path": format!("/metadata/annotations/{key}")}]);
            self.send(Method::PATCH, &path, Some((PATCH, remove)), marking);
        }
        Ok(())
    }
}

/// What must become of writes, where the policy decides: on one's own object, on the other's, and on one of the provider's
/// own, which belongs to no consumer.
async fn writes(world: &World, mut objects: Objects<'_>, there: &Api<DynamicObject>, place: Place) -> Result<()> {
    let (own, other) = (world.joe.contract.as_str(), world.zorro.contract.as_str());
    let (yes, no) = (Expect::Own, Expect::Policy);
    // Consumers that replace each other's objects do so by choice.
    let shared = if place == Place::SharedLastWins { yes } else { no };

    objects.create(&format!("{own}-new"), None, yes);
    objects.create(&format!("{own}-new"), Some(own), yes);
    objects.create("new", Some(own), yes);
    objects.generate(&format!("{own}-"), Some(own), yes);
    // Names of nobody, and of another; marks of nobody, and of another.
    objects.create("new", None, shared);
    objects.create("new", Some(other), no);
    objects.create(&format!("{own}-new"), Some(other), no);
    objects.create(own, None, no);
    objects.create(&format!("{own}x-new"), None, no);
    // Nor are names taken from another under which its own objects would come.
    for mark in [None, Some(own), Some(other)] {
        objects.create(&format!("{other}-new"), mark, no);
        objects.generate(&format!("{other}-"), mark, no);
    }

    let all = there.list(&ListParams::default()).await?.items;
    let of = |mark: Option<&str>| {
        let is_of = |object: &&DynamicObject| object.annotations().get(MARK).map(String::as_str) == mark;
        all.iter().find(is_of).with_context(|| format!("no object of {mark:?}"))
    };
    let (ours, theirs, house) = (of(Some(own))?, of(Some(other))?, of(None)?);
    // One's own object stays marked where the mark is all that tells whose it is.
    objects.change(ours, yes, if place == Place::Shared { no } else { yes })?;
    objects.change(theirs, shared, shared)?;
    objects.change(house, shared, shared)?;
    attempt::all(&world.joe.client, &objects.attempts).await?;
    for object in [ours, theirs, house] {
        let now = there.get(&object.name_any()).await?;
        ensure!(
            now.resource_version() == object.resource_version(),
            "a dry run has written {now:?}"
        );
    }
    Ok(())
}

/// Objects of an API, and one of the provider's own among them.
async fn offered(world: &World, offer: Offer) -> Result<()> {
    let there: Api<DynamicObject> = Api::all_with(world.provider.plane.client(), &offer.resource());
    furnish(&there, &offer.object("house", "the provider's own")).await?;
    writes(world, Objects::of(offer, &world.joe), &there, offer.place).await
}

async fn furnish(there: &Api<DynamicObject>, object: &DynamicObject) -> Result<()> {
    if there.get_opt(&object.name_any()).await?.is_none() {
        there.create(&PostParams::default(), object).await?;
    }
    Ok(())
}

/// Secrets of a namespace that contracts share, and one of the provider's own among them.
async fn claimed_secrets(world: &World) -> Result<()> {
    let there: Api<DynamicObject> = Api::namespaced_with(world.provider.plane.client(), RANCH, &claimed("Secret"));
    furnish(&there, &DynamicObject::new("house", &claimed("Secret"))).await?;
    writes(world, Objects::secrets(&world.joe), &there, Place::Shared).await
}

#[test]
fn prefixed_objects_of_others_are_not_written() -> Result<()> {
    attack(Scope::Namespaced, async |world| offered(world, HERDS).await)
}

#[test]
fn shared_objects_of_others_are_not_written() -> Result<()> {
    attack(Scope::Namespaced, async |world| offered(world, TRAILS).await)
}

#[test]
fn claimed_objects_of_others_in_a_shared_namespace_are_not_written() -> Result<()> {
    attack(Scope::Namespaced, claimed_secrets)
}

#[test]
fn shared_objects_are_overwritten_where_the_template_says_that_the_last_one_wins() -> Result<()> {
    attack(Scope::Namespaced, async |world| offered(world, RIVERS).await)
}

#[test]
fn cluster_scoped_objects_of_others_are_not_written_where_konnectors_watch_the_cluster() -> Result<()> {
    attack(Scope::Cluster, async |world| {
        offered(world, HERDS).await?;
        offered(world, TRAILS).await?;
        claimed_secrets(world).await
    })
}
