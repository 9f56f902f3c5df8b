//! The message to users of a binding whose deletions are frozen.

use bindery_api::annotations;

use super::observed::ObservedBinding;
use crate::engine::{Frozen, Kind};

/// Tells which objects are missing, what to check, and how to consent to the deletion of their copies.
pub(super) fn frozen_message(seen: &ObservedBinding, frozen: &Frozen) -> String {
    let (name, allow) = (seen.name(), annotations::ALLOW_DELETIONS);
    let Frozen { missing, known, kind } = frozen;
    let engines = seen.engines.values();
    let bound: Vec<_> = engines.map(|engine| engine.spec.resource.to_string()).collect();
    let (what, look) = match kind {
        Kind::Objects => ("objects", format!("kubectl get {} --all-namespaces", bound.join(","))),
        Kind::Namespaces => ("namespaces", "kubectl get namespaces".to_owned()),
    };
    format!(
        "{missing} of {known} {what} that have copies on the provider are missing here at once, so no copy is deleted; check \
         that this is the right cluster and that it lost nothing ({look}): copies stay until their objects are back; if they \
         are gone for good, consent for an hour: kubectl annotate apiservicebinding {name} --overwrite \
         {allow}=$(date -u -d +1hour +%Y-%m-%dT%H:%M:%SZ){}",
        seen.deletions_allowed().complaint(allow)
    )
}
