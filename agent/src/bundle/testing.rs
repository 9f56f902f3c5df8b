//! A bundle in a world that can be changed bit by bit, for tests of decisions.

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
    Count, Terms,
    observe::{Gone, Observed, Owner},
    plan::Op,
};
use crate::{
    binding::{
        credential::Access,
        observe::{ClusterPin, SessionSeen},
    },
    session::{
        Contract,
        exports::{Listed, Lookup},
        heartbeat::Heartbeat,
        probe::Probed,
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

pub(super) fn probed(version: u64) -> Probed {
    Probed {
        at: NOW,
        failures: 0,
        problem: None,
        version,
    }
}

/// A bundle that is pinned to a provider which answers and exports these.
pub(super) fn seen(exports: &[&str]) -> Observed {
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
    let mut seen = Observed {
        terms: Terms::of(&bundle.spec, Duration::from_secs(15)),
        bundle: Arc::new(bundle),
        now: NOW,
        access: Access::Reached(contract("a")),
        session: Some(SessionSeen {
            id: 1,
            contract_uid: "a".into(),
            contract: "kube-bind-x".into(),
            export: Lookup::Unknown { failure: None },
            pin: ClusterPin::Ours,
            heartbeat: Heartbeat::Beating,
            expired: None,
            renewal_fails: None,
            pretty_name: Some("Wild West".to_owned()),
            has_backend: true,
        }),
        exports: Listed::default(),
        probed: Some(probed(1)),
        bindings: Vec::new(),
        bindings_failing: None,
        counts: BTreeMap::new(),
        gone: BTreeMap::new(),
        bundles: BTreeSet::from(["bundle-uid".to_owned(), "other-uid".to_owned()]),
    };
    list(&mut seen, exports);
    seen
}

/// The provider has these exports from now on, which is confirmed.
pub(super) fn list(seen: &mut Observed, exports: &[&str]) {
    let names: BTreeSet<_> = exports.iter().copied().collect();
    let version = seen.exports.version + 1;
    seen.exports = Listed {
        exports: names.into_iter().map(|name| (name.into(), present(name))).collect(),
        complete: true,
        version,
        failing: None,
        steady: Duration::from_hours(1),
    };
    seen.probed = Some(probed(version));
}

pub(super) fn export(name: &str) -> APIServiceExport {
    let mut export = APIServiceExport::new(name, APIServiceExportSpec::default());
    export.metadata.uid = Some(format!("uid of {name}"));
    export.labels_mut().insert("name".to_owned(), name.to_owned());
    export
}

pub(super) fn present(name: &str) -> Lookup {
    Lookup::Present(Arc::new(export(name)))
}

pub(super) fn bundle(seen: &mut Observed) -> &mut APIServiceBindingBundle {
    Arc::make_mut(&mut seen.bundle)
}

/// Has the spec changed.
pub(super) fn respec(seen: &mut Observed, change: impl FnOnce(&mut APIServiceBindingBundleSpec)) {
    change(&mut bundle(seen).spec);
    seen.terms = Terms::of(&seen.bundle.spec, Duration::from_secs(15));
}

/// A binding that somebody made by hand for the provider of that Secret and contract.
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

/// The same, of another bundle.
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

pub(super) fn add(seen: &mut Observed, binding: APIServiceBinding) {
    seen.bindings.push(Arc::new(binding));
    seen.bindings.sort_by_key(|binding| binding.name_any());
}

/// A binding of that name, to be changed.
pub(super) fn at<'a>(seen: &'a mut Observed, name: &str) -> &'a mut APIServiceBinding {
    let mut all = seen.bindings.iter_mut();
    Arc::make_mut(all.find(|binding| binding.name_any() == name).unwrap())
}

/// So many objects an own binding has, counted after its export was gone or not.
pub(super) fn count(seen: &mut Observed, name: &str, objects: usize, export_is_gone: bool) {
    let count = Count {
        objects,
        export_is_gone,
    };
    seen.counts.insert(format!("uid of {name}"), count);
}

/// An export is gone for so long.
pub(super) fn gone(seen: &mut Observed, export: &str, seconds: u64, replaced: bool) {
    let since = Duration::from_secs(seconds);
    seen.gone.insert(export.to_owned(), Gone { since, replaced });
}

pub(super) fn delete(binding: &mut APIServiceBinding) {
    binding.metadata.deletion_timestamp = Some(Time(NOW));
}

/// Steps in a word each.
pub(super) fn words(ops: &[Op]) -> Vec<String> {
    let word = |op: &Op| match op {
        Op::Create(binding) => format!("create {}", binding.name_any()),
        Op::Patch { name, .. } => format!("patch {name}"),
        Op::Delete { binding, .. } => format!("delete {}", binding.name_any()),
    };
    ops.iter().map(word).collect()
}

/// Does to the world what the steps of a plan say, as a perfect cluster would.
pub(super) fn act(seen: &mut Observed, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Create(binding) => {
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
            Op::Patch { name, patch, .. } => {
                let marks = patch["metadata"]["annotations"].as_object().unwrap().clone();
                let annotations = at(seen, name).annotations_mut();
                for (key, value) in marks {
                    annotations.insert(key, value.as_str().unwrap().to_owned());
                }
            }
            Op::Delete { binding, .. } => {
                assert_eq!(seen.owner_of(binding), Owner::Us, "it is not the bundle's");
                seen.bindings.retain(|other| other.name_any() != binding.name_any());
            }
        }
    }
}

/// One whose exports are all bound.
pub(super) fn bound(exports: &[&str]) -> Observed {
    let mut seen = seen(exports);
    let ops = super::plan::plan(&seen).ops;
    act(&mut seen, &ops);
    seen
}
