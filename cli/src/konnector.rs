//! The objects that install the konnector, and which of them a removal deletes. Nothing here reads or writes.

mod files;
mod grants;
mod others;
mod removal;
mod set;
mod workload;

use std::collections::BTreeSet;

use bindery_api::{crds, v1alpha2::GroupResource};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

pub(crate) use files::always as shipped;
pub(crate) use grants::{ADOPTION_ROLE, BUNDLES_ROLE, check as check_bundle_resource, merge as merge_rules};
pub(crate) use others::{SELECTOR, refuse_other};
pub(crate) use removal::{contents, is_namespace, nothing_bound, without_set};
pub(crate) use set::{
    applied, check_set, going, is_in_set, listed, options, set, set_from, target, told, was_deployed,
};
pub(crate) use workload::{Asked, Konnector, choose, flag, image, release, release_of_helm, template as workload};

use crate::{errors::Failure, install::write::manifest};

/// The manifests of the konnector, without the CustomResourceDefinitions: those stay when the konnector is removed.
pub(crate) fn manifests(konnector: &Konnector, bundle_rules: Option<&[PolicyRule]>) -> Result<Vec<Value>, Failure> {
    let mut manifests = files::always()?;
    if konnector.adopts() {
        manifests.extend(files::adoption()?);
    }
    manifests.extend(bundle_rules.map(grants::manifests).transpose()?.into_iter().flatten());
    manifests.push(workload::manifest(konnector)?);
    Ok(manifests)
}

/// All manifests of a first installation.
pub(crate) fn everything(konnector: &Konnector, bundled: &BTreeSet<GroupResource>) -> Result<Vec<Value>, Failure> {
    let (rules, _) = merge_rules(&[], bundled);
    let rules = (!bundled.is_empty()).then_some(rules);
    let definitions = crds::for_consumer();
    let mut all = definitions.iter().map(manifest).collect::<Result<Vec<_>, _>>()?;
    all.extend(manifests(konnector, rules.as_deref())?);
    Ok(all)
}

#[cfg(test)]
mod tests;
