//! The konnector as a set that synk applies, and synk's report in the words of this command.

use std::time::Duration;

use bindery_api::names::{KONNECTOR, KUBE_BIND_NAMESPACE};
use bindery_synk::{
    Gvk, Manifest, ObjectRef, Options, Report, Target, Version,
    input::Origin,
    plan::Allowed,
    versions::Versions,
    wire::{self, Action},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    errors::{Failure, conflict::Conflict},
    render::applied::{Applied, Outcome},
};

/// How often an apply is repeated that failed for a passing reason.
const RETRIES: u32 = 10;
/// The pause before each repetition.
const PAUSE: Duration = Duration::from_secs(1);
/// How many objects are written at once: there are few.
const CONCURRENCY: usize = 4;
/// How many versions are kept for a rollback, the current one included.
const HISTORY: usize = 3;
/// Field managers that applied the konnector before it was a set: former releases of this command, and `kubectl apply
/// --server-side`. The set takes their fields over, because fields that left the manifests would stay otherwise.
const FORMER_MANAGERS: [&str; 2] = ["kubectl-bind-deploy", "kubectl"];
/// The origin of the manifests, in messages.
const ORIGIN: &str = "the konnector's manifests";

/// Name and namespace of the konnector's set.
pub(crate) fn target() -> Result<Target, Failure> {
    let set = KONNECTOR.parse();
    Ok(Target {
        set: set.map_err(|error| Failure::Format(format!("{error}")))?,
        namespace: KUBE_BIND_NAMESPACE.to_owned(),
    })
}

/// How the set is applied: it may prune objects, but does not take objects over from other sets.
pub(crate) fn options() -> Options {
    Options {
        allowed: Allowed {
            prune: true,
            fields_of: FORMER_MANAGERS.map(str::to_owned).to_vec(),
            ..Allowed::default()
        },
        retries: RETRIES,
        pause: PAUSE,
        concurrency: CONCURRENCY,
        history: HISTORY,
        ..Options::default()
    }
}

/// The manifests of the konnector as synk takes them.
pub(crate) fn set(manifests: Vec<Value>) -> Result<Vec<Manifest>, Failure> {
    set_from(manifests, ORIGIN)
}

/// Manifests as synk takes them; `origin` names them in messages.
pub(crate) fn set_from(manifests: Vec<Value>, origin: &str) -> Result<Vec<Manifest>, Failure> {
    let manifest = |(index, manifest): (usize, Value)| {
        let object = ObjectRef::of(&manifest);
        match (object, manifest) {
            (Some(object), Value::Object(body)) => Ok(Manifest {
                object,
                body,
                origin: Origin {
                    file: origin.to_owned(),
                    document: index + 1,
                    line: 1,
                },
            }),
            (_, other) => Err(Failure::Format(format!("no manifest: {other}"))),
        }
    };
    manifests.into_iter().enumerate().map(manifest).collect()
}

/// What became of the objects of a set, save those that failed. synk deletes a replaced object and creates it again. Of
/// an ignored one it changes only the owner, as an annotation of the object demands.
pub(crate) fn told(report: &Report) -> Vec<Applied> {
    let done = report.objects.iter().filter(|outcome| outcome.error.is_none());
    let done = done.map(|outcome| {
        let became = match outcome.action {
            Action::Create => Outcome::Created,
            Action::Update | Action::Replace => Outcome::Configured,
            Action::None | Action::Ignored => Outcome::Unchanged,
        };
        applied(&outcome.object, became)
    });
    let pruned = report.pruned.iter();
    done.chain(pruned.map(|object| applied(object, Outcome::Deleted)))
        .collect()
}

/// The objects that any version of the set lists, in the order in which they were applied.
pub(crate) fn listed(versions: &Versions) -> Vec<ObjectRef> {
    let mut listed: Vec<ObjectRef> = Vec::new();
    for object in versions.iter().flat_map(|known| &known.objects) {
        if listed.iter().all(|other| other.identity() != object.identity()) {
            listed.push(object.clone());
        }
    }
    listed
}

/// Splits the listed objects that exist: those that are deleted with the set, because only its versions own them, and
/// those that stay, because something else owns them too, or nothing does. `live` is in the order of `listed`.
pub(crate) fn going(
    versions: &Versions,
    listed: Vec<ObjectRef>,
    live: &[Option<Value>],
) -> (Vec<ObjectRef>, Vec<ObjectRef>) {
    let there = listed.into_iter().zip(live);
    let there = there.filter_map(|(object, live)| Some((object, live.as_ref()?)));
    let (going, staying): (Vec<_>, Vec<_>) = there.partition(|(_, live)| versions.own(live));
    let objects = |all: Vec<(ObjectRef, &Value)>| all.into_iter().map(|(object, _)| object).collect();
    (objects(going), objects(staying))
}

/// Refuses a set of the konnector's name that this command did not apply.
pub(crate) fn check_set(versions: &Versions) -> Result<(), Conflict> {
    let Some(newest) = versions.newest() else {
        return Ok(());
    };
    let konnector = ObjectRef {
        gvk: Gvk::new("apps/v1", "Deployment"),
        namespace: Some(KUBE_BIND_NAMESPACE.to_owned()),
        name: KONNECTOR.to_owned(),
    };
    let is_konnector = |object: &ObjectRef| object.identity() == konnector.identity();
    let why = match newest.namespace.as_deref() {
        Some(KUBE_BIND_NAMESPACE) if newest.objects.iter().any(is_konnector) => return Ok(()),
        Some(KUBE_BIND_NAMESPACE) => format!("it does not list {konnector}"),
        Some(other) => format!("it has namespace {other}"),
        None => "it says no namespace, so that another program applied it".to_owned(),
    };
    Err(Conflict::ForeignSet {
        set: newest.version.set.to_string(),
        version: newest.version.to_string(),
        why,
    })
}

/// Whether a release of this command that knew no sets applied the object.
pub(crate) fn was_deployed(meta: &ObjectMeta) -> bool {
    let entries = meta.managed_fields.iter().flatten();
    entries
        .filter_map(|entry| entry.manager.as_deref())
        .any(|manager| manager == FORMER_MANAGERS[0])
}

/// Whether an object belongs to the konnector's set.
pub(crate) fn is_in_set(meta: &ObjectMeta) -> bool {
    let owners = meta.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.kind == wire::KIND && owner.api_version == wire::API_VERSION)
        .any(|owner| {
            let version: Result<Version, _> = owner.name.parse();
            version.is_ok_and(|version| version.set.as_str() == KONNECTOR)
        })
}

pub(crate) fn applied(object: &ObjectRef, outcome: Outcome) -> Applied {
    Applied::new(object.short(), object.namespace.clone(), outcome)
}

#[cfg(test)]
mod tests;
