//! Sends the requests that a consumer's users and a provider's operator would send.

use anyhow::{Context as _, Result};
use bindery_runtime::errors;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use serde_json::{json, value::RawValue};

use super::{Load, command::Step};
use crate::{
    body,
    order::{Change, Order},
    send::{JSON, MERGE, send},
};

/// Number of namespaces that are created concurrently.
const NAMESPACES: usize = 16;

impl Load {
    /// Makes one change. Returns the order by which a floor copies it; `None` if there is nothing to copy.
    pub(crate) async fn change(&self, change: Change, step: &Step, size: usize) -> Result<Option<Order>> {
        let (key, seq) = (&step.key, step.seq);
        let resource = &self.resources[key.resource];
        let path = resource.path(&key.namespace, &key.name);
        let client = &self.consumers[key.consumer].write;
        let mut source = None;
        let answer = match change {
            Change::Create => {
                let object = body::object(resource, &key.namespace, &key.name, seq, size);
                let object = RawValue::from_string(object)?;
                let path = resource.collection(&key.namespace);
                send(client, Method::POST, &path, JSON, &object).await
            }
            Change::Update => {
                let merge = json!({"spec": {"seq": seq}});
                send(client, Method::PATCH, &path, MERGE, &merge).await
            }
            Change::Status => {
                let (uid, place) = self.board.pair(key).context("it has no copy")?;
                source = Some(uid);
                let status = body::status(seq, size);
                let merge = RawValue::from_string(format!(r#"{{"status":{status}}}"#))?;
                let path = format!("{}/status", resource.path(&place, &key.name));
                send(&self.provider.write, Method::PATCH, &path, MERGE, &merge).await
            }
            Change::Delete => {
                let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
                send(client, Method::DELETE, &path, JSON, &options).await
            }
        };
        let meta = answer
            .map_err(|error| anyhow::anyhow!("{}", errors::explain(&error)))?
            .metadata;
        let uid = source.unwrap_or(meta.uid);
        // An object without a finalizer is deleted at once, and the answer does not contain it.
        Ok((!uid.is_empty()).then(|| Order {
            change,
            resource: key.resource,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid,
            version: meta.resource_version,
            seq,
            size,
        }))
    }

    /// Creates those namespaces of objects that do not exist.
    pub(crate) async fn make_namespaces(&self, steps: &[Step]) -> Result<()> {
        let mut wanted: Vec<_> = steps
            .iter()
            .map(|step| (step.key.consumer, &*step.key.namespace))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let make = async |(consumer, name): (usize, &str)| {
            let api: Api<Namespace> = Api::all(self.consumers[consumer].write.clone());
            let namespace = Namespace {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                },
                ..Namespace::default()
            };
            match api.create(&PostParams::default(), &namespace).await {
                Err(error) if !errors::is_already_exists(&error) => {
                    Err(anyhow::Error::new(error).context(format!("cannot make namespace {name}")))
                }
                _ => Ok(()),
            }
        };
        stream::iter(wanted.into_iter().map(make))
            .buffer_unordered(NAMESPACES)
            .try_collect()
            .await
    }
}
