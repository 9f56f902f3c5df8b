//! Says of retained copies when they end, and ends those whose time is over, also if no konnector runs for them any more.
//!
//! No cache holds copies. One list of a resource shows the retained copies of all contracts, by their label, and is repeated only while
//! an export retains copies of the resource or a copy is left.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_api::{
    annotations, labels, meta, names, retention,
    v1alpha2::{APIServiceExport, APIServiceNamespace, APIServiceNamespaceSpec, GroupResource, Retention},
};
use bindery_runtime::{
    cache::ObjectKey,
    errors,
    preconditions::unchanged,
    queue::{Priority, Queue},
};
use jiff::Timestamp;
use kube::{
    Resource as _, ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams},
};
use serde_json::json;

use super::{Context, Next, Reconcile, Running, subject};
use crate::{
    contract, leftovers,
    limits::{LIMIT_REACHED, LimitName},
    writes::{self, Write, WriteError},
};
use plan::{RetentionStep, beyond, is_restored, pause, step};

mod plan;

/// How long copies are retained if neither an export nor a template says it any more.
const DEFAULT: Duration = Duration::from_hours(72);

/// How soon to look again while the API server tells no time.
const UNTIMED: Duration = Duration::from_mins(1);

struct Retained {
    context: Context,
    /// The provider namespaces to look at, by their APIServiceNamespaces: the last copy in one may have ended.
    namespaces: Queue<ObjectKey>,
}

pub(super) fn start(context: &Context, running: &mut Running, namespaces: Queue<ObjectKey>) {
    let queue = Queue::new();
    let caches = &context.state.caches;
    running.watch(&caches.definitions, &queue, |change| {
        let definition = subject(change)?;
        Some(GroupResource::new(
            &definition.spec.group,
            &definition.spec.names.plural,
        ))
    });
    running.watch(&caches.exports, &queue, |change| {
        let exports = [change.old, change.new].into_iter().flatten();
        let retaining = exports.filter(|export| export.spec.retention.is_some());
        retaining.flat_map(|export| resources(export)).collect::<Vec<_>>()
    });
    let retained = Retained {
        context: context.clone(),
        namespaces,
    };
    running.work(retained, &queue);
}

fn resources(export: &APIServiceExport) -> Vec<GroupResource> {
    let resources = export.spec.resources.iter();
    resources.map(|resource| resource.group_resource.clone()).collect()
}

fn offers(export: &APIServiceExport, resource: &GroupResource) -> bool {
    let mut resources = export.spec.resources.iter();
    resources.any(|offered| offered.group_resource == *resource)
}

/// A retained copy, and what to do about it.
struct RetainedCopy<'a> {
    /// The contract that the copy names.
    contract: &'a str,
    meta: &'a ObjectMeta,
    step: RetentionStep,
}

impl Reconcile for Retained {
    type Key = GroupResource;
    const NAME: &'static str = "retention";
    const WORKERS: usize = 2;

    async fn reconcile(&self, resource: &GroupResource) -> Result<Next, WriteError> {
        let state = &self.context.state;
        let Some(api) = leftovers::everywhere(state, resource).await? else {
            return Ok(Next::Change);
        };
        let params = ListParams::default().labels(&format!("{}={}", labels::RETAINED, annotations::TRUE));
        let copies = match leftovers::metadata(&api, params).await {
            // A resource that the server has no rights on was never offered, so that there are no copies.
            Err(error) if error.is_forbidden() => return Ok(Next::Change),
            copies => copies?,
        };
        let Some(now) = state.time() else {
            return Ok(Next::After(UNTIMED));
        };
        let mut ends = Vec::new();
        let mut by_holder: BTreeMap<String, Vec<RetainedCopy<'_>>> = BTreeMap::new();
        for copy in &copies {
            let Some(contract) = copy.annotations().get(annotations::CLUSTER_NAMESPACE) else {
                continue;
            };
            let Some(step) = step(&copy.metadata, contract, self.duration(contract, resource), now) else {
                continue;
            };
            let meta = &copy.metadata;
            let of_holder = by_holder.entry(self.holder(meta, contract)).or_default();
            of_holder.push(RetainedCopy { contract, meta, step });
        }
        let counts = by_holder.iter().map(|(holder, copies)| (holder.clone(), copies.len()));
        state.counts.note_retained(resource, &counts.collect());
        for (holder, copies) in &mut by_holder {
            self.end_beyond(holder, resource, copies);
        }
        for RetainedCopy {
            contract,
            meta: copy,
            step,
        } in by_holder.into_values().flatten()
        {
            let Some(end) = self.take(resource, copy, step, now).await? else {
                let place = copy.namespace.as_deref().unwrap_or_default();
                let place = self.context.state.caches.namespaces.get("", place);
                if let Some(key) = place.and_then(|place| contract::made_for(&place)) {
                    self.namespaces.add(key, Priority::Live);
                }
                continue;
            };
            ends.push(end);
            self.map(contract, resource, copy).await?;
        }
        let exports = state.caches.exports.list(|export| offers(export, resource));
        let shortest = exports
            .iter()
            .filter_map(|export| duration_of(export.spec.retention.as_ref()));
        Ok(match pause(shortest.min(), &ends, now) {
            Some(pause) => Next::After(pause),
            None => Next::Change,
        })
    }
}

impl Retained {
    /// The contract against whose limit a copy counts: that of its namespace, in which no other contract can write, or else the one that it
    /// names.
    fn holder(&self, copy: &ObjectMeta, named: &str) -> String {
        let place = copy.namespace.as_deref().unwrap_or_default();
        let place = self.context.state.caches.namespaces.get("", place);
        let holder = place.as_ref().and_then(|place| contract::of(&**place));
        holder.unwrap_or(named).to_owned()
    }

    /// Has copies end that are beyond the limit of their contract, and says so in an Event about its ClusterBinding.
    fn end_beyond(&self, contract: &str, resource: &GroupResource, copies: &mut [RetainedCopy<'_>]) {
        let state = &self.context.state;
        let limits = state.settings.limits.of(&state.caches, contract);
        let of_others = state.counts.retained_of_others(contract, resource);
        let room = (limits.retained_objects as usize).saturating_sub(of_others);
        let ends: Vec<_> = copies
            .iter()
            .map(|copy| match copy.step {
                _ if is_restored(copy.meta) => None,
                RetentionStep::Wait(until) | RetentionStep::Stamp(until) => Some(until),
                RetentionStep::End => Some(Timestamp::MIN),
            })
            .collect();
        let mut ended = 0;
        for place in beyond(&ends, room) {
            let step = &mut copies[place].step;
            if *step != RetentionStep::End {
                *step = RetentionStep::End;
                ended += 1;
                state.refusals.count(LimitName::RetainedObjects);
            }
        }
        if ended == 0 {
            return;
        }
        let reached = limits.reached(LimitName::RetainedObjects, Some(contract));
        tracing::warn!(contract, %resource, ended, limit = reached.limit, "retained copies beyond the limit end early");
        if let Some(binding) = state.caches.cluster_bindings.get(contract, names::CLUSTER_BINDING) {
            let message = format!("{ended} retained {resource} ended before their time: {reached}");
            state.recorder.warn(&binding.object_ref(&()), LIMIT_REACHED, message);
        }
    }

    /// How long the contract's copies of a resource are retained: as its exports say, or else the templates, whichever is longest.
    fn duration(&self, contract: &str, resource: &GroupResource) -> Duration {
        let caches = &self.context.state.caches;
        let exports = caches.exports.list_in(contract);
        let exports = exports.iter().filter(|export| offers(export, resource));
        let by_export = exports.filter_map(|export| duration_of(export.spec.retention.as_ref()));
        by_export.max().unwrap_or_else(|| {
            let templates = caches.templates.list(|template| {
                let mut resources = template.spec.resources.iter();
                resources.any(|offered| offered.group_resource == *resource)
            });
            let by_template = templates
                .iter()
                .filter_map(|template| duration_of(template.spec.retention.as_ref()));
            by_template.max().unwrap_or(DEFAULT)
        })
    }

    /// Takes a step. Returns when the copy ends, or is looked at again; `None` if it has ended.
    async fn take(
        &self,
        resource: &GroupResource,
        copy: &ObjectMeta,
        step: RetentionStep,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, WriteError> {
        let (namespace, name) = (
            copy.namespace.as_deref().unwrap_or_default(),
            copy.name.as_deref().unwrap_or_default(),
        );
        let api = leftovers::api(&self.context.state, resource, namespace).await?;
        let Some(api) = api else { return Ok(None) };
        let (until, outcome) = match step {
            RetentionStep::Wait(until) => return Ok(Some(until)),
            RetentionStep::Stamp(until) => {
                let patch = json!({ "metadata": {
                    "uid": copy.uid,
                    "resourceVersion": copy.resource_version,
                    "annotations": { annotations::RETAINED_UNTIL: until.to_string() },
                } });
                let params = PatchParams {
                    field_manager: Some(writes::FIELD_MANAGER.to_owned()),
                    ..PatchParams::default()
                };
                let patched = api.patch_metadata(name, &params, &Patch::Merge(patch)).await;
                (Some(until), patched.map(drop))
            }
            RetentionStep::End => {
                // In the version that was seen: a restore that has begun meanwhile wins.
                let params = DeleteParams {
                    preconditions: Some(unchanged(copy)),
                    ..DeleteParams::default()
                };
                tracing::info!(%resource, namespace, name, "the time of a retained copy is over");
                (None, api.delete(name, &params).await.map(drop))
            }
        };
        match outcome {
            Ok(()) => Ok(until),
            Err(error) if errors::is_not_found(&error) => Ok(None),
            // Somebody changed it meanwhile: look again.
            Err(error) if errors::is_conflict(&error) => Ok(Some(now)),
            Err(error) => Err(error.into()),
        }
    }

    /// Maps the consumer's namespace of a retained copy again if that was given up with an earlier export. Without it the konnector of
    /// the present one would not see the copy.
    async fn map(&self, contract: &str, resource: &GroupResource, copy: &ObjectMeta) -> Result<(), WriteError> {
        let caches = &self.context.state.caches;
        let Some(namespace) = caches
            .namespaces
            .get("", copy.namespace.as_deref().unwrap_or_default())
            .filter(|namespace| !contract::is_terminating(namespace))
        else {
            return Ok(());
        };
        let made_for = namespace.annotations().get(annotations::API_SERVICE_NAMESPACE);
        let Some((of, name)) = made_for.and_then(|key| key.split_once('/')) else {
            return Ok(());
        };
        if of != contract || caches.service_namespaces.get(contract, name).is_some() {
            return Ok(());
        }
        let exports = caches.exports.list_in(contract);
        let export = exports
            .iter()
            .find(|export| export.metadata.deletion_timestamp.is_none() && offers(export, resource));
        match export {
            Some(export) => self.request(export, name).await,
            None => Ok(()),
        }
    }

    async fn request(&self, export: &Arc<APIServiceExport>, name: &str) -> Result<(), WriteError> {
        let mut request = APIServiceNamespace::new(name, APIServiceNamespaceSpec {});
        request.metadata.namespace = export.namespace();
        request.metadata.owner_references = Some(vec![meta::owner_reference(&**export)]);
        let write = Write::create("a retained copy is in its provider namespace", &request, &[]);
        writes::apply_all(&self.context.state.clients.write, [write]).await
    }
}

/// The time of a retention; `None` if there is none, or it is none.
fn duration_of(retention: Option<&Retention>) -> Option<Duration> {
    retention.and_then(|retention| retention::check(retention).ok())
}
