//! How the objects and the CRDs of a binding go.

use std::collections::BTreeSet;

use bindery_runtime::crds::is_established;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{Ending, FORCE};
use crate::{
    binding::{
        observe::{EngineSpec, Observed},
        plan::{Op, release},
        resource::{self, Schema, State},
        status::sync::freeze,
    },
    release::Mode,
};

pub(super) fn drain(seen: &Observed, session: u64) -> Ending {
    let mut ending = Ending {
        remaining: Some(0),
        ..Ending::default()
    };
    let Some(export) = seen.export() else {
        return ending;
    };
    for name in seen.releasers.keys() {
        ending.ops.push(Op::StopReleaser { name: name.clone() });
    }
    for (name, crd) in seen.owned() {
        if resource::was_never_served(crd) && !seen.engines.contains_key(name) {
            continue;
        }
        let schema = seen.schemas.get(name).unwrap_or(&Schema::Missing);
        let state = resource::plan(name, schema, Some(crd), &seen.binding).state;
        let spec = match state {
            State::Usable(resource) => Some(EngineSpec::of(session, export, resource)),
            State::Refused { message, .. } | State::Pending { message, .. } => {
                if !seen.engines.contains_key(name) {
                    ending.remaining = None;
                    let established = if is_established(crd) { "" } else { "; it is not served" };
                    ending.message = format!("waiting to drain {name}: {message}{established}; {FORCE}");
                    ending.stuck = matches!(schema, Schema::Missing);
                    continue;
                }
                None
            }
        };
        let Some(engine) = seen.engines.get(name) else {
            ending.remaining = None;
            ending.ops.extend(spec.map(|spec| Op::StartEngine {
                name: name.clone(),
                spec,
            }));
            ending.ops.push(Op::DrainEngine { name: name.clone() });
            continue;
        };
        if engine.spec.session != session {
            ending.ops.push(Op::StopEngine { name: name.clone() });
            ending.remaining = None;
            continue;
        }
        if !engine.draining {
            ending.ops.push(Op::DrainEngine { name: name.clone() });
        }
        let left = engine
            .progress
            .remaining
            .filter(|_| engine.draining && engine.progress.consumer_synced);
        ending.remaining = ending.remaining.zip(left).map(|(sum, left)| sum + left);
        if let Some(problem) = &engine.progress.problem {
            ending.message = format!("{problem}; {FORCE}");
        }
    }
    if let Some(frozen) = seen.frozen.as_ref().filter(|_| ending.remaining != Some(0)) {
        ending.message = freeze(seen, frozen);
        ending.stuck = true;
    }
    ending.ops.push(Op::Pause(false));
    if ending.remaining != Some(0) {
        describe(&mut ending);
    }
    ending
}

pub(super) fn let_go(seen: &Observed) -> Ending {
    let mut ending = Ending {
        ops: release(seen, &BTreeSet::new(), &BTreeSet::new(), Mode::All),
        remaining: Some(0),
        ..Ending::default()
    };
    for (name, crd) in seen.owned() {
        let released = seen
            .releasers
            .get(name)
            .filter(|(mode, _)| *mode == Mode::All)
            .map(|(_, released)| released);
        let left = match released {
            _ if resource::was_never_served(crd) => Some(0),
            released => released.and_then(|released| released.remaining),
        };
        ending.remaining = ending.remaining.zip(left).map(|(sum, left)| sum + left);
        if let Some(problem) = released.and_then(|released| released.problem.as_ref()) {
            ending.message.clone_from(problem);
        }
    }
    if ending.remaining != Some(0) {
        describe(&mut ending);
    }
    ending
}

pub(super) fn remove(ending: &mut Ending, name: &str, crd: &CustomResourceDefinition) {
    if crd.metadata.deletion_timestamp.is_none() {
        ending.ops.push(Op::DeleteCrd {
            name: name.to_owned(),
            uid: crd.metadata.uid.clone().unwrap_or_default(),
        });
    }
}

pub(super) fn describe(ending: &mut Ending) {
    let counted = match ending.remaining {
        Some(0) => "all objects are gone; their CRDs are being removed".to_owned(),
        Some(1) => "1 object is left to delete".to_owned(),
        Some(left) => format!("{left} objects are left to delete"),
        None => "counting the objects that are left".to_owned(),
    };
    ending.message = match &*ending.message {
        "" => counted,
        problem => format!("{counted}: {problem}"),
    };
}
