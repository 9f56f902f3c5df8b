//! Reads and writes the Secrets of the history.

use std::collections::BTreeMap;

use bindery_runtime::{client::Clients, errors, preconditions::same_uid};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::Value;

use super::{
    Stored,
    chunks::{self, Damage, Packed},
    mark::{self, Found, Mark, SET, TYPE, Versions},
};
use crate::{
    errors::Failure,
    input::{Manifest, Origin},
    object::ObjectRef,
    target::Target,
    wire::{FIELD_MANAGER, SetName, Version},
};

/// Key of the content in a Secret.
const KEY: &str = "manifests.json.gz";
/// Number of Secrets that are written or read concurrently.
const AT_ONCE: usize = 4;

/// Stores the manifests of a version, and deletes older ones so that `keep` versions remain. It can be repeated.
pub async fn store(
    clients: &Clients,
    target: &Target,
    version: &Version,
    manifests: &[Manifest],
    keep: usize,
) -> Result<(), Failure> {
    let packed = (keep > 0).then(|| {
        let bodies = manifests.iter().map(|manifest| &manifest.body);
        chunks::pack(bodies, chunks::CHUNK)
    });
    put(
        clients,
        target,
        version,
        packed.map(|packed| (packed, manifests.len())),
        keep,
    )
    .await
}

/// As [`store`]. `packed` holds the chunks and the number of objects; `None` if no version is kept.
async fn put(
    clients: &Clients,
    target: &Target,
    version: &Version,
    packed: Option<(Packed, usize)>,
    keep: usize,
) -> Result<(), Failure> {
    let secrets = HistorySecrets::new(clients, &target.set, &target.namespace);
    let mut versions = match secrets.versions().await {
        // An account that may not list Secrets cannot have stored any.
        Err(Failure::Api { source, .. }) if keep == 0 && errors::is_forbidden(&source) => return Ok(()),
        versions => versions?,
    };
    if let Some((packed, objects)) = packed {
        let mark = Mark {
            version: version.clone(),
            total: packed.chunks.len(),
            sha256: packed.sha256.clone(),
            time: Timestamp::now(),
            objects,
        };
        let there = versions.entry(version.number).or_default();
        if mark::whole(there).is_none_or(|there| there.sha256 != mark.sha256) {
            secrets.delete(there.iter()).await?;
            secrets.create(&mark, packed).await?;
            *there = marked(&mark);
        }
    }
    secrets
        .delete(mark::surplus(&versions, version.number, keep).into_iter())
        .await
}

/// Lists the stored versions of a set, newest first, without reading content.
pub async fn list(clients: &Clients, target: &Target) -> Result<Vec<Stored>, Failure> {
    let secrets = HistorySecrets::new(clients, &target.set, &target.namespace);
    Ok(mark::stored(&target.set, &secrets.versions().await?))
}

/// Whether any Secret of a set's history exists, complete or not. Secrets that may not be read count as none.
pub async fn is_kept(clients: &Clients, target: &Target) -> Result<bool, Failure> {
    let secrets = HistorySecrets::new(clients, &target.set, &target.namespace);
    match secrets.versions().await {
        Err(Failure::Api { source, .. }) if errors::is_forbidden(&source) => Ok(false),
        versions => Ok(!versions?.is_empty()),
    }
}

/// Reads the manifests of a version.
pub async fn load(clients: &Clients, target: &Target, number: u64) -> Result<Vec<Manifest>, Failure> {
    let version = target.set.version(number);
    let secrets = HistorySecrets::new(clients, &target.set, &target.namespace);
    let versions = secrets.versions().await?;
    let Some(found) = versions.get(&number).filter(|_| number > 0) else {
        return Err(Failure::NoVersion { version });
    };
    let unreadable = |damage: Damage| Failure::Unreadable {
        what: format!("the history of {version} in namespace {}", target.namespace),
        problem: damage.to_string(),
    };
    let Some(mark) = mark::whole(found) else {
        let said = found.iter().find_map(|found| found.mark.as_ref());
        return Err(unreadable(said.map_or(Damage::Checksum, |(_, mark)| Damage::Missing {
            found: found.len(),
            total: mark.total,
        })));
    };
    let content = secrets.read(mark).await?;
    let bodies = chunks::unpack(&content, mark.total, &mark.sha256).map_err(unreadable)?;
    let manifests = bodies.into_iter().zip(1..).map(|(body, document)| {
        let body = Value::Object(body);
        let object = ObjectRef::of(&body)?;
        let Value::Object(body) = body else {
            return None;
        };
        let origin = Origin {
            file: format!("the history of {version}"),
            document,
            line: 1,
        };
        Some(Manifest { object, body, origin })
    });
    let manifests: Option<Vec<_>> = manifests.collect();
    manifests.ok_or_else(|| unreadable(Damage::Content))
}

/// Deletes the history of a set.
pub async fn remove_all(clients: &Clients, set: &SetName, namespace: &str) -> Result<(), Failure> {
    let secrets = HistorySecrets::new(clients, set, namespace);
    let versions = secrets.versions().await?;
    secrets.delete(versions.values().flatten()).await
}

/// Access to the history of one set.
struct HistorySecrets<'a> {
    api: Api<Secret>,
    set: &'a SetName,
    namespace: &'a str,
}

// === impl HistorySecrets ===

impl<'a> HistorySecrets<'a> {
    fn new(clients: &Clients, set: &'a SetName, namespace: &'a str) -> Self {
        Self {
            api: Api::namespaced(clients.write.clone(), namespace),
            set,
            namespace,
        }
    }

    fn failed(&self, verb: &str) -> impl FnOnce(kube::Error) -> Failure {
        let what = format!("{verb} the history of set {} in namespace {}", self.set, self.namespace);
        Failure::api_in(self.namespace, what)
    }

    async fn versions(&self) -> Result<Versions, Failure> {
        // The type of a Secret cannot be changed, and an admission policy can restrict who creates Secrets of this
        // type. Without such a policy, an account that may create Secrets here can forge them.
        let params = ListParams::default()
            .labels(&format!("{SET}={}", self.set))
            .fields(&format!("type={TYPE}"));
        let secrets = self.api.list_metadata(&params).await.map_err(self.failed("list"))?;
        Ok(mark::sorted(
            self.set,
            secrets.items.into_iter().map(|secret| secret.metadata),
        ))
    }

    async fn create(&self, mark: &Mark, packed: Packed) -> Result<(), Failure> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let secrets = packed.chunks.into_iter().enumerate().map(|(chunk, content)| Secret {
            metadata: mark.metadata(chunk),
            type_: Some(TYPE.to_owned()),
            immutable: Some(true),
            data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(content))])),
            ..Secret::default()
        });
        let write = async |secret: Secret| self.api.create(&params, &secret).await.map(drop);
        let written = stream::iter(secrets).map(write).buffered(AT_ONCE);
        written.try_collect::<()>().await.map_err(self.failed("store"))
    }

    /// Reads all existing chunks, in their order.
    async fn read(&self, mark: &Mark) -> Result<Vec<Vec<u8>>, Failure> {
        let names = (0..mark.total).map(|chunk| mark.metadata(chunk).name.unwrap_or_default());
        let read = async |name: String| self.api.get_opt(&name).await;
        let secrets: Vec<_> = stream::iter(names)
            .map(read)
            .buffered(AT_ONCE)
            .try_collect()
            .await
            .map_err(self.failed("read"))?;
        let content = |secret: Secret| Some(secret.data?.remove(KEY)?.0);
        let ours = secrets
            .into_iter()
            .flatten()
            .filter(|secret| secret.type_.as_deref() == Some(TYPE));
        Ok(ours.filter_map(content).collect())
    }

    async fn delete(&self, found: impl Iterator<Item = &Found>) -> Result<(), Failure> {
        let delete = async |found: &Found| {
            let params = DeleteParams {
                preconditions: found.uid.clone().map(same_uid),
                ..DeleteParams::default()
            };
            match self.api.delete(&found.name, &params).await {
                Err(error) if !errors::is_not_found(&error) && !errors::is_conflict(&error) => Err(error),
                _ => Ok(()),
            }
        };
        let deleted = stream::iter(found).map(delete).buffered(AT_ONCE);
        deleted.try_collect::<()>().await.map_err(self.failed("delete"))
    }
}

/// Returns the Secrets that were just written as if they had been listed.
fn marked(mark: &Mark) -> Vec<Found> {
    let found = |chunk| Found {
        name: mark.metadata(chunk).name.unwrap_or_default(),
        uid: None,
        mark: Some((chunk, mark.clone())),
    };
    (0..mark.total).map(found).collect()
}

#[cfg(test)]
mod tests;
