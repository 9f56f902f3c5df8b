//! A binding in a world that can be changed bit by bit, for tests of decisions.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    annotations, finalizers,
    v1alpha2::{
        APIServiceBinding, APIServiceBindingSpec, APIServiceBindingStatus, APIServiceExport, APIServiceExportSpec,
        BoundSchema, BoundSchemaSpec, BoundSchemaVersion, ExportResource, GroupResource, PermissionClaim,
    },
};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    claims::{ClaimsSeen, Spec},
    credential::Access,
    observe::{ClusterPin, EngineSeen, EngineSpec, Observed, SessionSeen},
    plan::{self, Op},
    resource::{self, CrdOp, Schema, State},
};
use crate::{
    claims::ClaimProgress,
    engine::Progress,
    session::{Contract, exports::Lookup, heartbeat::Heartbeat},
};

pub(super) const CRD: &str = "cowboys.wildwest.dev";

/// Where a kubeconfig leads.
pub(super) fn reached(uid: &str) -> Contract {
    Contract {
        uid: uid.into(),
        namespace: "kube-bind-x".into(),
    }
}

pub(super) fn schema() -> Arc<BoundSchema> {
    let mut spec = BoundSchemaSpec {
        group: "wildwest.dev".to_owned(),
        versions: vec![BoundSchemaVersion {
            name: "v1".to_owned(),
            served: true,
            storage: true,
            schema: json!({"openAPIV3Schema": {"type": "object"}}),
            ..BoundSchemaVersion::default()
        }],
        ..BoundSchemaSpec::default()
    };
    spec.names.plural = "cowboys".to_owned();
    spec.names.kind = "Cowboy".to_owned();
    Arc::new(BoundSchema::new(CRD, spec))
}

pub(super) fn export() -> APIServiceExport {
    let spec = APIServiceExportSpec {
        resources: vec![ExportResource {
            group_resource: GroupResource::new("wildwest.dev", "cowboys"),
            versions: vec![],
        }],
        ..APIServiceExportSpec::default()
    };
    let mut export = APIServiceExport::new("cowboys", spec);
    export.metadata.uid = Some("export-uid".to_owned());
    export
}

/// A binding as it was created: nothing of it exists yet, but its provider answers.
pub(super) fn fresh() -> Observed {
    let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
    binding.metadata.uid = Some("binding-uid".to_owned());
    Observed {
        binding: Arc::new(binding),
        now: Timestamp::UNIX_EPOCH,
        access: Access::Reached(reached("a")),
        session: Some(SessionSeen {
            id: 1,
            contract_uid: "a".into(),
            contract: "kube-bind-x".into(),
            export: Lookup::Present(Arc::new(export())),
            pin: ClusterPin::Ours,
            heartbeat: Heartbeat::Beating,
            expired: None,
            renewal_fails: None,
            pretty_name: Some("Wild West".to_owned()),
            has_backend: true,
        }),
        crds: BTreeMap::new(),
        schemas: BTreeMap::from([(CRD.to_owned(), Schema::Present(schema()))]),
        engines: BTreeMap::new(),
        releasers: BTreeMap::new(),
        claims: ClaimsSeen::default(),
        last_count: None,
        frozen: None,
        deletion: None,
        contract_is_shared: false,
        has_stored_secret: false,
        bundle: None,
    }
}

/// One that has its finalizer and its pin.
pub(super) fn pinned() -> Observed {
    let mut seen = fresh();
    let binding = Arc::make_mut(&mut seen.binding);
    binding.metadata.finalizers = Some(vec![finalizers::KONNECTOR.to_owned()]);
    accept(binding, &[]);
    binding.status = Some(APIServiceBindingStatus {
        contract_uid: Some("a".to_owned()),
        ..APIServiceBindingStatus::default()
    });
    seen
}

/// One whose CRD is installed and served.
pub(super) fn installed() -> Observed {
    let mut seen = pinned();
    let decision = resource::plan(CRD, &seen.schemas[CRD], None, &seen.binding);
    let Some(CrdOp::Create(mut crd)) = decision.op else {
        panic!("{decision:?}");
    };
    crd.metadata.uid = Some("crd-uid".to_owned());
    crd.status = serde_json::from_value(json!({"conditions": [{"type": "Established", "status": "True"}]})).unwrap();
    seen.crds.insert(CRD.to_owned(), Arc::new(*crd));
    seen
}

/// One that is served by an engine that has seen both sides.
pub(super) fn served() -> Observed {
    let mut seen = installed();
    let engine = EngineSeen {
        spec: spec(&seen),
        draining: false,
        progress: Progress {
            consumer_synced: true,
            provider_synced: true,
            ..Progress::default()
        },
    };
    seen.engines.insert(CRD.to_owned(), engine);
    seen
}

/// The engine that an installed binding needs.
pub(super) fn spec(seen: &Observed) -> EngineSpec {
    let state = resource::plan(
        CRD,
        &seen.schemas[CRD],
        seen.crds.get(CRD).map(AsRef::as_ref),
        &seen.binding,
    )
    .state;
    let State::Usable(resource) = state else {
        panic!("{state:?}");
    };
    EngineSpec::of(1, &export(), resource)
}

pub(super) fn session(seen: &mut Observed) -> &mut SessionSeen {
    seen.session.as_mut().unwrap()
}

pub(super) fn binding(seen: &mut Observed) -> &mut APIServiceBinding {
    Arc::make_mut(&mut seen.binding)
}

pub(super) fn crd(seen: &mut Observed) -> &mut CustomResourceDefinition {
    Arc::make_mut(seen.crds.get_mut(CRD).unwrap())
}

/// The export, on its way out.
pub(super) fn deleting_export() -> Lookup {
    let mut export = export();
    export.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    Lookup::Present(Arc::new(export))
}

/// Steps in a word each.
pub(super) fn words(ops: &[Op]) -> Vec<String> {
    ops.iter().map(word).collect()
}

fn word(op: &Op) -> String {
    match op {
        Op::SetFinalizer => "set finalizer".to_owned(),
        Op::ClearFinalizer => "clear finalizer".to_owned(),
        Op::CreateCrd(_) => "create crd".to_owned(),
        Op::PatchCrd { .. } => "patch crd".to_owned(),
        Op::DeleteCrd { .. } => "delete crd".to_owned(),
        Op::StartEngine { .. } => "start engine".to_owned(),
        Op::StopEngine { .. } => "stop engine".to_owned(),
        Op::DrainEngine { .. } => "drain".to_owned(),
        Op::Pause(true) => "pause".to_owned(),
        Op::Pause(false) => "go on".to_owned(),
        Op::StartReleaser { mode, .. } => format!("release {mode:?}"),
        Op::StopReleaser { .. } => "stop release".to_owned(),
        Op::DeleteExport { force: false, .. } => "delete export".to_owned(),
        Op::DeleteExport { force: true, .. } => "force export".to_owned(),
        Op::StopDeletion => "stop deletion".to_owned(),
        Op::AcceptClaims(claims) => format!("accept {}", claims.len()),
        Op::Claim(spec) => {
            let names = |resources: Vec<&GroupResource>| {
                let names: Vec<_> = resources.into_iter().map(ToString::to_string).collect();
                names.join(",")
            };
            let accepted = spec.wanted.accepted.iter().map(|claim| &claim.group_resource);
            let withdrawn = spec.wanted.withdrawn.iter().collect();
            format!("claim [{}] withdraw [{}]", names(accepted.collect()), names(withdrawn))
        }
        Op::Unclaim => "unclaim".to_owned(),
        Op::Cleanup { resources, .. } => {
            let names: Vec<_> = resources.iter().map(ToString::to_string).collect();
            format!("clean up {}", names.join(","))
        }
        Op::StopCleanup => "stop cleanup".to_owned(),
        Op::DeleteStored { .. } => "delete secret".to_owned(),
        Op::DeleteRoles => "delete roles".to_owned(),
    }
}

/// Does to the world what the steps of a plan say, as a perfect cluster would.
pub(super) fn act(seen: &mut Observed, ops: &[Op]) {
    for op in ops {
        match op {
            Op::SetFinalizer => binding(seen).metadata.finalizers = Some(vec![finalizers::KONNECTOR.to_owned()]),
            Op::CreateCrd(_) => {
                let crds = installed().crds;
                seen.crds.extend(crds);
            }
            Op::StartEngine { name, spec } => {
                let engine = EngineSeen {
                    spec: spec.clone(),
                    ..served().engines[CRD].clone()
                };
                seen.engines.insert(name.clone(), engine);
            }
            Op::StopEngine { name } => drop(seen.engines.remove(name)),
            Op::DrainEngine { name } => {
                let engine = seen.engines.get_mut(name).unwrap();
                engine.draining = true;
                engine.progress.remaining = Some(0);
            }
            Op::StartReleaser { name, mode } => {
                let released = crate::release::Released {
                    remaining: Some(0),
                    problem: None,
                };
                seen.engines.remove(name);
                seen.releasers.insert(name.clone(), (*mode, released));
            }
            Op::StopReleaser { name } => drop(seen.releasers.remove(name)),
            Op::DeleteCrd { name, .. } => drop(seen.crds.remove(name)),
            Op::DeleteExport { .. } => {
                seen.deletion = Some(super::observe::DeletionSeen::Done);
                session(seen).export = Lookup::Absent;
            }
            Op::DeleteStored { .. } => seen.has_stored_secret = false,
            Op::ClearFinalizer => binding(seen).metadata.finalizers = None,
            Op::StopDeletion => seen.deletion = None,
            Op::AcceptClaims(claims) => {
                accept(binding(seen), claims);
            }
            Op::Claim(spec) => claim(seen, spec),
            Op::Unclaim => seen.claims.running = None,
            Op::Cleanup { resources, .. } => {
                let released = crate::release::Released {
                    remaining: Some(0),
                    problem: None,
                };
                seen.claims.cleanup = Some((resources.clone(), released));
            }
            Op::StopCleanup => seen.claims.cleanup = None,
            Op::PatchCrd { .. } | Op::Pause(_) | Op::DeleteRoles => {}
        }
    }
}

/// Notes which claims the user has accepted.
pub(super) fn accept(binding: &mut APIServiceBinding, claims: &[PermissionClaim]) {
    let record = serde_json::to_string(claims).unwrap();
    let annotations = binding.annotations_mut();
    annotations.insert(annotations::ACCEPTED_CLAIMS.to_owned(), record);
}

/// A session that has done at once what it was told.
fn claim(seen: &mut Observed, spec: &Spec) {
    let progress = |remaining| ClaimProgress {
        synced: true,
        remaining: Some(remaining),
        ..ClaimProgress::default()
    };
    let accepted = spec.wanted.accepted.iter().map(|claim| &claim.group_resource);
    let known = accepted
        .chain(&spec.wanted.withdrawn)
        .map(|resource| (resource.clone(), progress(0)));
    seen.claims.progress.claims = known.collect();
    seen.claims.running = Some(spec.clone());
}

/// The live plan, acted upon until it has nothing more to do but to go on.
pub(super) fn converge(seen: &mut Observed) {
    for _ in 0..10 {
        let plan = plan::plan(seen);
        if plan.ops.iter().all(|op| matches!(op, Op::Pause(_))) {
            return;
        }
        act(seen, &plan.ops);
    }
    panic!("no end: {:?}", words(&plan::plan(seen).ops));
}
