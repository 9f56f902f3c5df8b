//! Decides what to do where the user accepts this konnector as the holder of the contract.

use bindery_api::{annotations, holder::HolderOrder};
use kube::ResourceExt as _;

use super::{observed::ObservedBinding, op::BindingOp};
use crate::holder::Standing;

/// An order repeats at most this many bytes of a text that is no order.
const SHOWN_MAX: usize = 64;

/// Decides what to do about the user's order; `None` if there is none, or while it is not known who holds the contract.
pub(super) fn answer(seen: &ObservedBinding) -> Option<BindingOp> {
    let text = seen.binding.annotations().get(annotations::ACCEPT_HOLDER)?;
    let session = seen.session.as_ref()?;
    let refuse = |message: String| Some(BindingOp::RefuseHolder { message });
    let Ok(order) = text.parse::<HolderOrder>() else {
        let shown = &text[..text.floor_char_boundary(SHOWN_MAX)];
        return refuse(format!(
            "annotation {} is {shown:?}, which is no order; run kubectl bind accept {}",
            annotations::ACCEPT_HOLDER,
            seen.name()
        ));
    };
    match (&order, &session.standing) {
        (_, Standing::Pending) => None,
        (HolderOrder::Accept(digest), Standing::Waiting { recorded, .. }) if digest == recorded => {
            Some(BindingOp::AcceptHolder {
                order,
                message: format!(
                    "this cluster holds contract {} from now on, as the user ordered",
                    session.contract
                ),
            })
        }
        (HolderOrder::BeginAnew, Standing::Held { .. }) => Some(BindingOp::AcceptHolder {
            order,
            message: "objects that went back to an older state are written from now on, as the user ordered".to_owned(),
        }),
        (_, Standing::Waiting { .. }) => refuse(format!(
            "the provider records another holder than the one that the order is about, so nothing was done; look at it and order again: \
             kubectl bind accept {}",
            seen.name()
        )),
        (_, Standing::Held { .. } | Standing::Unfenced { .. } | Standing::Released) => refuse(format!(
            "nothing keeps this cluster from holding contract {}, so there was nothing to accept",
            session.contract
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bindery_api::holder::RecordedHolder;

    use super::*;
    use crate::{
        binding::fixtures::{fresh, session},
        holder::Finding,
    };

    #[track_caller]
    fn check(order: &str, standing: Standing, expect: Option<&str>) {
        let mut seen = fresh();
        session(&mut seen).standing = standing;
        let binding = Arc::make_mut(&mut seen.binding);
        let key = annotations::ACCEPT_HOLDER.to_owned();
        binding.annotations_mut().insert(key, order.to_owned());
        let answer = answer(&seen).map(|op| match op {
            BindingOp::AcceptHolder { .. } => "accept",
            BindingOp::RefuseHolder { .. } => "refuse",
            other => panic!("{other:?}"),
        });
        assert_eq!(answer, expect, "{order}");
    }

    #[test]
    fn an_order_is_for_what_the_user_saw() {
        let recorded = RecordedHolder::default().digest();
        let waiting = || Standing::Waiting {
            finding: Finding::RestoredOrCloned,
            recorded: recorded.clone(),
        };
        let held = || Standing::Held { instance: "i".into() };
        let digest = recorded.to_string();
        let other = "0".repeat(digest.len());
        check(&digest, waiting(), Some("accept"));
        check(&other, waiting(), Some("refuse"));
        check("held", waiting(), Some("refuse"));
        check("yes", waiting(), Some("refuse"));
        check(&digest, Standing::Pending, None);
        check(&digest, held(), Some("refuse"));
        check("held", held(), Some("accept"));
        assert_eq!(answer(&fresh()), None);
    }
}
