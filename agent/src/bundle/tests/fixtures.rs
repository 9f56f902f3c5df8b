//! Observed bundles for tests of decisions.

use bindery_runtime::guard::Faults;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bindery_api::{
    Conditions as _, conditions,
    v1alpha2::{
        APIServiceBinding, APIServiceBindingBundle, APIServiceBindingBundleSpec, APIServiceBindingBundleStatus,
        APIServiceBindingSpec, APIServiceBindingStatus, APIServiceExport, APIServiceExportSpec, ClusterSecretKeyRef,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt as _;

use super::{
    observed::{BindingOwner, ObservedBundle, RemovedExport},
    plan::BundleOp,
};
use crate::{
    contract::Contract,
    controller::{
        access::ContractAccess,
        bundle_settings::BundleSettings,
        object_counts::ObjectCount,
        observed_session::{ClusterPin, ObservedSession},
    },
    holder::Standing,
    session::{
        exports::{ExportList, ExportLookup},
        heartbeat::Heartbeat,
        provider_probe::ProbeResult,
    },
};

pub(super) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub(super) fn secret(name: &str) -> ClusterSecretKeyRef {
    ClusterSecretKeyRef {
        name: name.to_owned(),
        key: "kubeconfig".to_owned(),
        namespace: "kube-bind".to_owned(),
    }
}

pub(super) fn contract(uid: &str) -> Contract {
    Contract {
        uid: uid.into(),
        namespace: "kube-bind-x".into(),
    }
}

pub(super) fn probe(exports_version: u64) -> ProbeResult {
    ProbeResult {
        at: NOW,
        failures: 0,
        problem: None,
        exports_version,
        is_verified: true,
    }
}

/// A pinned bundle whose provider answers and has these exports.
pub(super) fn seen(exports: &[&str]) -> ObservedBundle {
    let spec = APIServiceBindingBundleSpec {
        kubeconfig_secret_ref: secret("provider"),
        ..APIServiceBindingBundleSpec::default()
    };
    let mut bundle = APIServiceBindingBundle::new("west", spec);
    bundle.metadata.uid = Some("bundle-uid".to_owned());
    bundle.metadata.generation = Some(3);
    bundle.status = Some(APIServiceBindingBundleStatus {
        contract_uid: Some("a".to_owned()),
        ..APIServiceBindingBundleStatus::default()
    });
    let mut seen = ObservedBundle {
        settings: BundleSettings::of(&bundle.spec, Duration::from_secs(15)),
        bundle: Arc::new(bundle),
        now: NOW,
        access: ContractAccess::Reached(contract("a")),
        session: Some(ObservedSession {
            id: 1,
            contract_uid: "a".into(),
            contract: "kube-bind-x".into(),
            export: ExportLookup::Unknown { failure: None },
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
        exports: ExportList::default(),
        last_probe: Some(probe(1)),
        bindings: Vec::new(),
        bindings_failing: None,
        counts: BTreeMap::new(),
        removed: BTreeMap::new(),
        bundles: BTreeSet::from(["bundle-uid".to_owned(), "other-uid".to_owned()]),
    };
    list(&mut seen, exports);
    seen
}

/// Sets the exports of the provider, confirmed by a probe.
pub(super) fn list(seen: &mut ObservedBundle, exports: &[&str]) {
    let names: BTreeSet<_> = exports.iter().copied().collect();
    let version = seen.exports.version + 1;
    seen.exports = ExportList {
        exports: names.into_iter().map(|name| (name.into(), present(name))).collect(),
        complete: true,
        version,
        failing: None,
        read_for: Duration::from_hours(1),
    };
    seen.last_probe = Some(probe(version));
}

pub(super) fn export(name: &str) -> APIServiceExport {
    let mut export = APIServiceExport::new(name, APIServiceExportSpec::default());
    export.metadata.uid = Some(format!("uid of {name}"));
    export.labels_mut().insert("name".to_owned(), name.to_owned());
    export
}

pub(super) fn present(name: &str) -> ExportLookup {
    ExportLookup::Present(Arc::new(export(name)))
}

pub(super) fn bundle(seen: &mut ObservedBundle) -> &mut APIServiceBindingBundle {
    Arc::make_mut(&mut seen.bundle)
}

/// Changes the spec of the bundle.
pub(super) fn respec(seen: &mut ObservedBundle, change: impl FnOnce(&mut APIServiceBindingBundleSpec)) {
    change(&mut bundle(seen).spec);
    seen.settings = BundleSettings::of(&seen.bundle.spec, Duration::from_secs(15));
}

/// A binding that was made by hand, with this Secret and contract.
pub(super) fn by_hand(name: &str, secret_name: &str, contract: Option<&str>) -> APIServiceBinding {
    let spec = APIServiceBindingSpec {
        kubeconfig_secret_ref: secret(secret_name),
        ..APIServiceBindingSpec::default()
    };
    let mut binding = APIServiceBinding::new(name, spec);
    binding.metadata.uid = Some(format!("uid of {name}"));
    binding.status = Some(APIServiceBindingStatus {
        contract_uid: contract.map(str::to_owned),
        ..APIServiceBindingStatus::default()
    });
    binding
}

/// Makes a binding belong to the bundle with this UID.
pub(super) fn of_bundle(mut binding: APIServiceBinding, uid: &str) -> APIServiceBinding {
    binding.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "kube-bind.io/v1alpha2".to_owned(),
        kind: "APIServiceBindingBundle".to_owned(),
        name: "east".to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    binding
}

pub(super) fn add(seen: &mut ObservedBundle, binding: APIServiceBinding) {
    seen.bindings.push(Arc::new(binding));
    seen.bindings.sort_by_key(|binding| binding.name_any());
}

/// Returns the binding of that name.
pub(super) fn at<'a>(seen: &'a mut ObservedBundle, name: &str) -> &'a mut APIServiceBinding {
    let mut all = seen.bindings.iter_mut();
    Arc::make_mut(all.find(|binding| binding.name_any() == name).unwrap())
}

/// Sets the object count of a binding.
pub(super) fn count(seen: &mut ObservedBundle, name: &str, objects: usize, export_is_gone: bool) {
    let count = ObjectCount {
        objects,
        export_is_gone,
    };
    seen.counts.insert(format!("uid of {name}"), count);
}

/// Notes for how long an export is removed.
pub(super) fn remove(seen: &mut ObservedBundle, export: &str, seconds: u64, replaced: bool) {
    let removed_for = Duration::from_secs(seconds);
    seen.removed
        .insert(export.to_owned(), RemovedExport { removed_for, replaced });
}

pub(super) fn delete(binding: &mut APIServiceBinding) {
    binding.metadata.deletion_timestamp = Some(Time(NOW));
}

/// Steps in a few words each.
pub(super) fn words(ops: &[BundleOp]) -> Vec<String> {
    let word = |op: &BundleOp| match op {
        BundleOp::Create(binding) => format!("create {}", binding.name_any()),
        BundleOp::Patch { name, .. } => format!("patch {name}"),
        BundleOp::Delete { binding, .. } => format!("delete {}", binding.name_any()),
    };
    ops.iter().map(word).collect()
}

/// Applies the steps of a plan to the observed state.
pub(super) fn act(seen: &mut ObservedBundle, ops: &[BundleOp]) {
    for op in ops {
        match op {
            BundleOp::Create(binding) => {
                let mut binding = (**binding).clone();
                binding.metadata.uid = Some(format!("uid of {}", binding.name_any()));
                let pinned = seen
                    .bundle
                    .status
                    .as_ref()
                    .and_then(|status| status.contract_uid.clone());
                let mut status = APIServiceBindingStatus {
                    contract_uid: pinned,
                    ..APIServiceBindingStatus::default()
                };
                status.set_condition(conditions::true_condition(conditions::READY), NOW);
                binding.status = Some(status);
                add(seen, binding);
            }
            BundleOp::Patch { name, patch, .. } => {
                let inherited = patch["metadata"]["annotations"].as_object().unwrap().clone();
                let annotations = at(seen, name).annotations_mut();
                for (key, value) in inherited {
                    annotations.insert(key, value.as_str().unwrap().to_owned());
                }
            }
            BundleOp::Delete { binding, .. } => {
                assert_eq!(seen.owner_of(binding), BindingOwner::Us, "it is not the bundle's");
                seen.bindings.retain(|other| other.name_any() != binding.name_any());
            }
        }
    }
}

/// A bundle whose exports are all bound.
pub(super) fn bound(exports: &[&str]) -> ObservedBundle {
    let mut seen = seen(exports);
    let ops = super::plan::plan(&seen).ops;
    act(&mut seen, &ops);
    seen
}
