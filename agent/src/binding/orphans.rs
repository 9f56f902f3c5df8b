//! The orphans of a binding: the message about them, and the decision about what the user orders.

use bindery_api::{
    annotations,
    orphans::{OrphanAction, OrphanOrder},
};
use kube::ResourceExt as _;

use super::{observed::ObservedBinding, op::BindingOp};
use crate::index::Orphans;

/// An order repeats at most this many bytes of a text that is no order.
const SHOWN_MAX: usize = 64;

/// All orphans of a binding; `None` until all its objects are known.
pub(super) fn orphans(seen: &ObservedBinding) -> Option<Orphans> {
    let engines = seen.engines.values().map(|engine| &engine.progress);
    let is_known = engines
        .clone()
        .all(|progress| progress.consumer_synced && progress.provider_synced);
    let bound = engines.map(|progress| progress.orphans.clone());
    let claimed = seen.claims.progress.claims.values().map(|claim| claim.orphans.clone());
    (is_known && !seen.engines.is_empty()).then(|| bound.chain(claimed).fold(Orphans::default(), Orphans::and))
}

/// Tells how many copies have lost their source, which are first by name, why they are kept, and how they end.
pub(super) fn message(seen: &ObservedBinding, orphans: &Orphans) -> String {
    let name = seen.name();
    let count = orphans.set.count;
    let first: Vec<_> = orphans.first.iter().map(ToString::to_string).collect();
    let and_more = if first.len() < count { ", ..." } else { "" };
    let what = if count == 1 { "copy has" } else { "copies have" };
    let replaced = match orphans.replaced {
        0 => String::new(),
        replaced => format!(", of which {replaced} with a new object of the same name"),
    };
    format!(
        "{count} {what} no source here any more, and nobody was seen to delete it: {}{and_more}{replaced}; each is kept, and \
         synced again when its source is back; check that this is the right cluster and that it lost nothing; to end them: kubectl bind \
         orphans {name} --delete, --release to leave them to the provider, or --relink for the new objects of the same names{}",
        first.join(", "),
        orphans.set.closing()
    )
}

/// Decides what to do about the user's order; `None` if there is none, or while the orphans are not known.
pub(super) fn answer(seen: &ObservedBinding) -> Option<BindingOp> {
    let text = seen.binding.annotations().get(annotations::END_ORPHANS)?;
    let refuse = |message: String| Some(BindingOp::RefuseOrphanOrder { message });
    let Ok(order) = text.parse::<OrphanOrder>() else {
        let shown = &text[..text.floor_char_boundary(SHOWN_MAX)];
        return refuse(format!(
            "annotation {} is {shown:?}, which is no order; run kubectl bind orphans {}",
            annotations::END_ORPHANS,
            seen.name()
        ));
    };
    let orphans = orphans(seen)?;
    if order.orphans != orphans.set {
        return refuse(format!(
            "the order is for {} orphans, and they are others now ({}), so nothing was done; look at them and order again: kubectl bind \
             orphans {}",
            order.orphans.count,
            orphans.set.count,
            seen.name()
        ));
    }
    Some(BindingOp::EndOrphans {
        action: order.action,
        message: match order.action {
            OrphanAction::Delete => format!("{} orphans are being deleted, as the user ordered", orphans.set.count),
            OrphanAction::Release => format!(
                "{} orphans are being released to the provider, as the user ordered",
                orphans.set.count
            ),
            OrphanAction::Relink => format!(
                "{} of {} orphans become copies of the new objects of the same names, as the user ordered",
                orphans.replaced, orphans.set.count
            ),
        },
    })
}

#[cfg(test)]
#[path = "tests/orphans.rs"]
mod tests;
