//! What installs the konnector, as objects, and what a provider's answer in a file says. Pure: nothing is read or written
//! here.

mod bundle;
mod files;
mod grants;
mod removal;
mod response;
mod set;
mod workload;

use std::collections::BTreeSet;

use bindery_api::{crds, v1alpha2::GroupResource};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

pub(crate) use bundle::{
    Installed as InstalledBundle, Wanted as WantedBundle, plan as plan_bundle, same_contract, secret_ref,
};
pub(crate) use grants::{ADOPTION_ROLE, BUNDLES_ROLE, check as check_bundle_resource, merge as merge_rules};
pub(crate) use removal::{contents, is_namespace, nothing_bound, without_set};
#[cfg(test)]
pub(crate) use response::tests as response_tests;
pub(crate) use response::{Answer, Request, Response, Unreadable, read};
pub(crate) use set::{applied, check_set, going, is_in_set, listed, options, refused, set, target, told, was_deployed};
pub(crate) use workload::{Asked, Konnector, choose};

use crate::errors::Failure;

/// What the konnector takes beside the definitions, which are older than it and stay when it goes.
pub(crate) fn manifests(konnector: &Konnector, bundle_rules: Option<&[PolicyRule]>) -> Result<Vec<Value>, Failure> {
    let mut manifests = files::always()?;
    if konnector.adopts() {
        manifests.extend(files::adoption()?);
    }
    manifests.extend(bundle_rules.map(grants::manifests).transpose()?.into_iter().flatten());
    manifests.push(workload::manifest(konnector)?);
    Ok(manifests)
}

/// The definitions of what the konnector works on.
pub(crate) fn definitions() -> Result<Vec<Value>, Failure> {
    crds::for_consumer()
        .iter()
        .map(|definition| serde_json::to_value(definition).map_err(|error| Failure::Format(error.to_string())))
        .collect()
}

/// All that a first installation applies.
pub(crate) fn everything(konnector: &Konnector, bundled: &BTreeSet<GroupResource>) -> Result<Vec<Value>, Failure> {
    let (rules, _) = merge_rules(&[], bundled);
    let rules = (!bundled.is_empty()).then_some(rules);
    let mut all = definitions()?;
    all.extend(manifests(konnector, rules.as_deref())?);
    Ok(all)
}

#[cfg(test)]
mod tests;
