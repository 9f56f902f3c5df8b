//! Reads live objects: one request for each kind and namespace.

use std::collections::{BTreeMap, HashSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use crate::{
    errors::Failure,
    kinds::Kinds,
    object::{Gvk, Identity, ObjectRef},
    plan::Read,
    rest::{Place, Rest},
};

/// Number of concurrent requests.
const AT_ONCE: usize = 8;

/// The live objects that were requested, by identity.
pub(crate) type Live = BTreeMap<Identity, Value>;

/// Carries out the requests of a plan.
pub(crate) async fn read(rest: &Rest, reads: &[Read]) -> Result<Live, Failure> {
    let requests: Vec<_> = reads.iter().map(|read| one(rest, read)).collect();
    let answers = stream::iter(requests).buffer_unordered(AT_ONCE);
    let merged = answers.try_fold(Live::new(), async |mut live, found| {
        live.extend(found);
        Ok(live)
    });
    merged.await
}

/// Reads these objects, in their order; `None` for one that does not exist.
pub(crate) async fn objects(rest: &Rest, kinds: &Kinds, wanted: &[ObjectRef]) -> Result<Vec<Option<Value>>, Failure> {
    let mut asked: BTreeMap<(&Gvk, &Option<String>), Vec<String>> = BTreeMap::new();
    for object in wanted {
        let place = (&object.gvk, &object.namespace);
        asked.entry(place).or_default().push(object.name.clone());
    }
    let reads = asked.into_iter().filter_map(|((gvk, namespace), names)| {
        let resource = kinds.get(gvk).or_else(|| kinds.any_version(&gvk.group, &gvk.kind))?;
        Some(Read {
            resource: resource.clone(),
            namespace: namespace.clone(),
            names,
        })
    });
    let reads: Vec<_> = reads.collect();
    let mut live = read(rest, &reads).await?;
    Ok(wanted.iter().map(|object| live.remove(&object.identity())).collect())
}

async fn one(rest: &Rest, read: &Read) -> Result<Vec<(Identity, Value)>, Failure> {
    let resource = &read.resource;
    let namespace = read.namespace.as_deref();
    let found = if let [name] = &read.names[..] {
        let place = Place {
            resource,
            namespace,
            name,
        };
        rest.get(place).await.map(|object| object.into_iter().collect())
    } else {
        rest.list(resource, namespace, None)
            .await
            .map(Option::unwrap_or_default)
    };
    let found: Vec<Value> = found.map_err(Failure::api(what(read)))?;
    let wanted: HashSet<&str> = read.names.iter().map(String::as_str).collect();
    let named = found.into_iter().filter_map(|object| {
        let identity = ObjectRef::of(&object)?.identity();
        wanted.contains(identity.name.as_str()).then_some((identity, object))
    });
    Ok(named.collect())
}

fn what(read: &Read) -> String {
    let plural = &read.resource.plural;
    let group = &read.resource.gvk.group;
    let dot = if group.is_empty() { "" } else { "." };
    match &read.namespace {
        Some(namespace) => format!("read {plural}{dot}{group} in namespace {namespace}"),
        None => format!("read {plural}{dot}{group}"),
    }
}
