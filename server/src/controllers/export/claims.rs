//! The right to read claimed objects in the whole cluster, for a konnector that watches them cluster-wide.

use bindery_api::annotations;
use serde_json::json;

use super::observed::{ClaimsSeen, Observed};
use crate::{controllers::grants, rbac::claims, writes::Write};

const NEEDED: &str = "the konnector reads claimed objects cluster-wide";
const UNUSED: &str = "the konnector reads no claimed objects cluster-wide";

/// Plans the right to read what the export claims, and the removal of what it may not read. The annotation by which the
/// konnector knows that it may read Secrets goes first.
pub(super) fn plan(seen: &Observed<'_>, writes: &mut Vec<Write>) {
    let Some(contract) = &seen.contract else {
        return;
    };
    let ClaimsSeen { role, binding, secrets } = &seen.claims;
    if !secrets && claims::is_marked(seen.export) {
        let annotation = json!({ annotations::CLUSTER_WIDE_SECRETS: null });
        writes.push(Write::annotate(
            "Secrets are not read cluster-wide any more",
            seen.export,
            &annotation,
        ));
    }
    match claims::cluster_wide(contract, seen.export, *secrets) {
        Some((wanted, wanted_binding)) => {
            writes.extend(grants::role(NEEDED, role.as_deref(), &wanted));
            writes.extend(grants::binding(NEEDED, binding.as_deref(), &wanted_binding));
        }
        None => writes.extend(grants::revoke(UNUSED, binding.as_deref(), role.as_deref())),
    }
}
