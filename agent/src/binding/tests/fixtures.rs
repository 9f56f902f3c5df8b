//! Observed bindings for tests of decisions.

use bindery_runtime::guard::Faults;
use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    annotations, finalizers,
    v1alpha2::{
        APIServiceBinding, APIServiceBindingSpec, APIServiceBindingStatus, APIServiceExport, APIServiceExportSpec,
        BoundSchema, BoundSchemaSpec, BoundSchemaVersion, DeletionPolicy, ExportResource, GroupResource,
        PermissionClaim,
    },
};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    crd::{self, CrdOp, CrdState, ObservedSchema},
    observed::{ClaimSpec, EngineSpec, ExportDeletion, ObservedBinding, ObservedClaims, ObservedEngine},
    op::BindingOp,
    plan,
};
use crate::{
    claims::ClaimProgress,
    contract::Contract,
    controller::{
        access::ContractAccess,
        observed_session::{ClusterPin, ObservedSession},
    },
    engine::Progress,
    holder::Standing,
    session::{exports::ExportLookup, heartbeat::Heartbeat},
};

pub(super) const CRD: &str = "cowboys.wildwest.dev";

/// The contract with this UID.
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
            schema: json!({"openAPIV3Schema": {"type": "object"}}).into(),
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

/// A binding that was just created, whose provider answers, and whose objects are to be deleted with it.
pub(super) fn fresh() -> ObservedBinding {
    let spec = APIServiceBindingSpec {
        deletion_policy: Some(DeletionPolicy::Delete),
        ..APIServiceBindingSpec::default()
    };
    let mut binding = APIServiceBinding::new("cowboys", spec);
    binding.metadata.uid = Some("binding-uid".to_owned());
    ObservedBinding {
        binding: Arc::new(binding),
        now: Timestamp::UNIX_EPOCH,
        access: ContractAccess::Reached(reached("a")),
        session: Some(ObservedSession {
            id: 1,
            contract_uid: "a".into(),
            contract: "kube-bind-x".into(),
            export: ExportLookup::Present(Arc::new(export())),
            pin: ClusterPin::Ours,
            heartbeat: Heartbeat::Beating,
            expired: None,
            renewal_fails: None,
            is_renewal_locked: false,
            pretty_name: Some("Wild West".to_owned()),
            has_backend: true,
            missing_rights: Vec::new(),
            found: Some("a".into()),
            standing: Standing::Held { instance: "i".into() },
            faults: Faults::default(),
        }),
        crds: BTreeMap::new(),
        schemas: BTreeMap::from([(CRD.to_owned(), ObservedSchema::Present(schema()))]),
        engines: BTreeMap::new(),
        releasers: BTreeMap::new(),
        claims: ObservedClaims::default(),
        last_count: None,
        deletion: None,
        contract_is_shared: false,
        has_stored_secret: false,
        bundle: None,
    }
}

/// A binding with its finalizer and pinned contract.
pub(super) fn pinned() -> ObservedBinding {
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

/// A binding whose CRD is installed and established.
pub(super) fn installed() -> ObservedBinding {
    let mut seen = pinned();
    let decision = crd::plan(CRD, &seen.schemas[CRD], None, &seen.binding);
    let Some(CrdOp::Create(mut crd)) = decision.op else {
        panic!("{decision:?}");
    };
    crd.metadata.uid = Some("crd-uid".to_owned());
    crd.status = serde_json::from_value(json!({"conditions": [{"type": "Established", "status": "True"}]})).unwrap();
    seen.crds.insert(CRD.to_owned(), Arc::new(*crd));
    seen
}

/// A binding with an engine that is synced on both clusters.
pub(super) fn served() -> ObservedBinding {
    let mut seen = installed();
    let engine = ObservedEngine {
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
pub(super) fn spec(seen: &ObservedBinding) -> EngineSpec {
    let state = crd::plan(
        CRD,
        &seen.schemas[CRD],
        seen.crds.get(CRD).map(AsRef::as_ref),
        &seen.binding,
    )
    .state;
    let CrdState::Usable(resource) = state else {
        panic!("{state:?}");
    };
    EngineSpec::of(1, &export(), seen.crds.get(CRD).map(AsRef::as_ref), resource)
}

pub(super) fn session(seen: &mut ObservedBinding) -> &mut ObservedSession {
    seen.session.as_mut().unwrap()
}

pub(super) fn binding(seen: &mut ObservedBinding) -> &mut APIServiceBinding {
    Arc::make_mut(&mut seen.binding)
}

pub(super) fn crd(seen: &mut ObservedBinding) -> &mut CustomResourceDefinition {
    Arc::make_mut(seen.crds.get_mut(CRD).unwrap())
}

/// The export while it is being deleted.
pub(super) fn deleting_export() -> ExportLookup {
    let mut export = export();
    export.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    ExportLookup::Present(Arc::new(export))
}

/// Steps in a few words each.
pub(super) fn words(ops: &[BindingOp]) -> Vec<String> {
    ops.iter().map(word).collect()
}

fn word(op: &BindingOp) -> String {
    match op {
        BindingOp::AddFinalizer => "add finalizer".to_owned(),
        BindingOp::RemoveFinalizer => "remove finalizer".to_owned(),
        BindingOp::CreateCrd(_) => "create crd".to_owned(),
        BindingOp::PatchCrd { .. } => "patch crd".to_owned(),
        BindingOp::DeleteCrd { .. } => "delete crd".to_owned(),
        BindingOp::StartEngine { .. } => "start engine".to_owned(),
        BindingOp::StopEngine(_) => "stop engine".to_owned(),
        BindingOp::DrainEngine(_) => "drain".to_owned(),
        BindingOp::EndOrphans { action, .. } => format!("{} orphans", action.as_str()),
        BindingOp::RefuseOrphanOrder { .. } | BindingOp::RefuseRetentionOrder { .. } => "refuse order".to_owned(),
        BindingOp::EndRetention(order) => order.to_string(),
        BindingOp::AcceptHolder { .. } => "accept holder".to_owned(),
        BindingOp::RefuseHolder { .. } => "refuse holder".to_owned(),
        BindingOp::EndHolding => "end holding".to_owned(),
        BindingOp::Pause(true) => "pause".to_owned(),
        BindingOp::Pause(false) => "go on".to_owned(),
        BindingOp::StartReleaser { mode, .. } => format!("release {mode:?}"),
        BindingOp::StopReleaser(_) => "stop release".to_owned(),
        BindingOp::DeleteExport { force: false, .. } => "delete export".to_owned(),
        BindingOp::DeleteExport { force: true, .. } => "force export".to_owned(),
        BindingOp::StopExportDeletion => "stop deletion".to_owned(),
        BindingOp::AcceptClaims(claims) => format!("accept {}", claims.len()),
        BindingOp::SetClaims(spec) => {
            let names = |resources: Vec<&GroupResource>| {
                let names: Vec<_> = resources.into_iter().map(ToString::to_string).collect();
                names.join(",")
            };
            let accepted = spec.wanted.accepted.iter().map(|claim| &claim.group_resource);
            let withdrawn = spec.wanted.withdrawn.iter().collect();
            format!("claim [{}] withdraw [{}]", names(accepted.collect()), names(withdrawn))
        }
        BindingOp::RemoveClaims => "unclaim".to_owned(),
        BindingOp::StartCleanup { resources, .. } => {
            let names: Vec<_> = resources.iter().map(ToString::to_string).collect();
            format!("clean up {}", names.join(","))
        }
        BindingOp::StopCleanup => "stop cleanup".to_owned(),
        BindingOp::DeleteStoredCredential(_) => "delete secret".to_owned(),
        BindingOp::DeleteRoles => "delete roles".to_owned(),
    }
}

/// Applies the steps of a plan to the observed state.
pub(super) fn act(seen: &mut ObservedBinding, ops: &[BindingOp]) {
    for op in ops {
        match op {
            BindingOp::AddFinalizer => binding(seen).metadata.finalizers = Some(vec![finalizers::KONNECTOR.to_owned()]),
            BindingOp::CreateCrd(_) => {
                let crds = installed().crds;
                seen.crds.extend(crds);
            }
            BindingOp::StartEngine { name, spec } => {
                let engine = ObservedEngine {
                    spec: (**spec).clone(),
                    ..served().engines[CRD].clone()
                };
                seen.engines.insert(name.clone(), engine);
            }
            BindingOp::StopEngine(name) => drop(seen.engines.remove(name)),
            BindingOp::DrainEngine(name) => {
                let engine = seen.engines.get_mut(name).unwrap();
                engine.draining = true;
                engine.progress.remaining = Some(0);
            }
            BindingOp::StartReleaser { name, mode } => {
                let released = crate::drain::DrainProgress {
                    remaining: Some(0),
                    problem: None,
                };
                seen.engines.remove(name);
                seen.releasers.insert(name.clone(), (*mode, released));
            }
            BindingOp::StopReleaser(name) => drop(seen.releasers.remove(name)),
            BindingOp::DeleteCrd { name, .. } => drop(seen.crds.remove(name)),
            BindingOp::DeleteExport { .. } => {
                seen.deletion = Some(ExportDeletion::Done);
                session(seen).export = ExportLookup::Absent;
            }
            BindingOp::DeleteStoredCredential(_) => seen.has_stored_secret = false,
            BindingOp::RemoveFinalizer => binding(seen).metadata.finalizers = None,
            BindingOp::StopExportDeletion => seen.deletion = None,
            BindingOp::AcceptClaims(claims) => {
                accept(binding(seen), claims);
            }
            BindingOp::SetClaims(spec) => claim(seen, spec),
            BindingOp::RemoveClaims => seen.claims.running = None,
            BindingOp::StartCleanup { resources, .. } => {
                let released = crate::drain::DrainProgress {
                    remaining: Some(0),
                    problem: None,
                };
                seen.claims.cleanup = Some((resources.clone(), released));
            }
            BindingOp::StopCleanup => seen.claims.cleanup = None,
            BindingOp::EndHolding => session(seen).standing = Standing::Released,
            BindingOp::PatchCrd { .. }
            | BindingOp::Pause(_)
            | BindingOp::DeleteRoles
            | BindingOp::EndOrphans { .. }
            | BindingOp::RefuseOrphanOrder { .. }
            | BindingOp::EndRetention(_)
            | BindingOp::RefuseRetentionOrder { .. }
            | BindingOp::AcceptHolder { .. }
            | BindingOp::RefuseHolder { .. } => {}
        }
    }
}

/// Records the accepted claims on a binding.
pub(super) fn accept(binding: &mut APIServiceBinding, claims: &[PermissionClaim]) {
    let record = serde_json::to_string(claims).unwrap();
    let annotations = binding.annotations_mut();
    annotations.insert(annotations::ACCEPTED_CLAIMS.to_owned(), record);
}

/// Applies claims as a session that is synced at once.
fn claim(seen: &mut ObservedBinding, spec: &ClaimSpec) {
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

/// Applies plans until nothing is left to do.
pub(super) fn converge(seen: &mut ObservedBinding) {
    for _ in 0..10 {
        let plan = plan::plan(seen);
        if plan.ops.iter().all(|op| matches!(op, BindingOp::Pause(_))) {
            return;
        }
        act(seen, &plan.ops);
    }
    panic!("plans never end: {:?}", words(&plan::plan(seen).ops));
}
