//! Writes one object.
//!
//! A write that was delayed while its process was stopped may arrive after another apply has gone on. It would name an
//! owner that is gone, and the object would be collected. So each write names the version of the object that was seen,
//! and is refused if the object was written since.

use bindery_runtime::errors;
use serde_json::{Value, json};

use crate::{
    input::Manifest,
    kinds::{Kinds, Resource},
    lock::Held,
    object::ObjectRef,
    plan::{self, Decision},
    report::{Outcome, Problem},
    rest::{Exactly, Place, Rest, Written},
    wire::{Action, Version},
};

/// A resource version that no object has: a server-side apply with it can create an object but not change one.
const CREATE_ONLY: &str = "1";

/// Writes objects for one version of a set.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub rest: &'a Rest,
    pub kinds: &'a Kinds,
    pub version: &'a Version,
    pub uid: &'a str,
    pub held: Option<&'a Held>,
    /// Field managers whose fields are transferred to synk.
    pub fields_of: &'a [String],
}

/// An object to write.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub manifest: &'a Manifest,
    pub resource: &'a Resource,
    pub live: Option<&'a Value>,
}

// === impl Subject ===

impl<'a> Subject<'a> {
    pub(super) fn place(&self) -> Place<'a> {
        Place::of(self.resource, &self.manifest.object)
    }

    pub(super) fn seen(&self) -> Option<Exactly<'a>> {
        Exactly::as_read(self.live?)
    }
}

/// The result of an attempt.
pub(crate) struct Tried {
    pub outcome: Outcome,
    /// True if the object was written by another client since it was read.
    pub conflict: bool,
}

/// The reason why an attempt failed.
pub(super) struct Refused {
    pub problem: Problem,
    pub conflict: bool,
}

// === impl Refused ===

impl Refused {
    pub(super) fn by(object: &ObjectRef, error: &kube::Error) -> Self {
        Self {
            problem: Problem::of(object, error),
            conflict: errors::code(error) == Some(409),
        }
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            conflict: false,
        }
    }
}

// === impl Writer ===

impl Writer<'_> {
    /// Carries out the decision about an object.
    pub(crate) async fn write(&self, manifest: &Manifest, decision: &Decision, live: Option<&Value>) -> Tried {
        let (action, written, refused) = match self.done(manifest, decision, live).await {
            Ok((action, written)) => (action, written, None),
            Err(refused) => (Action::None, known(live), Some(refused)),
        };
        Tried {
            conflict: refused.as_ref().is_some_and(|refused| refused.conflict),
            outcome: Outcome {
                object: manifest.object.clone(),
                action,
                uid: written.uid,
                generation: written.generation,
                error: refused.map(|refused| refused.problem),
            },
        }
    }

    async fn done(
        &self,
        manifest: &Manifest,
        decision: &Decision,
        live: Option<&Value>,
    ) -> Result<(Action, Written), Refused> {
        if let Decision::Impossible { problem, transient } = decision {
            return Err(Refused::from(Problem {
                transient: *transient,
                ..Problem::lasting(problem)
            }));
        }
        let gvk = &manifest.object.gvk;
        let unknown = || Problem::passing(self.kinds.unknown(gvk));
        let subject = Subject {
            manifest,
            resource: self.kinds.get(gvk).ok_or_else(unknown)?,
            live,
        };
        self.may_write()?;
        let refused = |error| Refused::by(&manifest.object, &error);
        match (decision, live) {
            (Decision::Ignored, Some(live)) => {
                let written = self.move_owner(subject, live).await.map_err(refused)?;
                Ok((Action::Ignored, written))
            }
            (Decision::Recreate, Some(_)) => Ok((Action::Replace, self.replace(subject).await?)),
            (decision, live) => match (self.put(subject).await, live) {
                (Err(error), Some(live)) if plan::must_recreate(gvk, live, &error) => {
                    Ok((Action::Replace, self.replace(subject).await?))
                }
                (written, live) => Ok((action(decision, live), written.map_err(refused)?)),
            },
        }
    }

    /// Fails if the Lease was lost. A process that was stopped for a while would otherwise write objects whose owner is
    /// gone, and they would be collected.
    pub(super) fn may_write(&self) -> Result<(), Problem> {
        match self.held {
            Some(held) if held.is_lost() => Err(Problem::passing("the Lease of the set was lost")),
            _ => Ok(()),
        }
    }

    /// Applies an object: creates it if none was seen, else changes the one that was seen.
    pub(super) async fn put(&self, subject: Subject<'_>) -> Result<Written, kube::Error> {
        let mut body = plan::desired(subject.manifest, Some((self.version, self.uid)));
        let metadata = &mut body["metadata"];
        match (subject.live, subject.seen()) {
            (Some(live), Some(seen)) => {
                metadata["uid"] = json!(seen.uid);
                metadata["resourceVersion"] = match plan::takeover(live, subject.manifest, self.fields_of) {
                    Some(patch) => json!(self.rest.patch(subject.place(), &patch).await?.resource_version),
                    None => json!(seen.resource_version),
                };
            }
            _ => metadata["resourceVersion"] = json!(CREATE_ONLY),
        }
        self.rest.apply(subject.place(), &body).await
    }

    async fn move_owner(&self, subject: Subject<'_>, live: &Value) -> Result<Written, kube::Error> {
        match plan::move_owner(live, self.version, self.uid) {
            Some(patch) => self.rest.patch(subject.place(), &patch).await,
            None => Ok(known(Some(live))),
        }
    }
}

fn action(decision: &Decision, live: Option<&Value>) -> Action {
    match (decision, live) {
        (_, None) => Action::Create,
        (Decision::Unchanged, Some(_)) => Action::None,
        _ => Action::Update,
    }
}

fn known(live: Option<&Value>) -> Written {
    let metadata = live.map(|live| &live["metadata"]);
    Written {
        uid: metadata
            .and_then(|metadata| metadata["uid"].as_str())
            .map(str::to_owned),
        resource_version: None,
        generation: metadata.and_then(|metadata| metadata["generation"].as_i64()),
    }
}
