//! What a provider wants installed. The SDK judges it; here is whether it stays as it was shown to the user.

pub(crate) use bindery_sdk::manifests::offer::{Offer, Refusal, is_binding_name, judge, judge_export, judge_rules};

use crate::{claims::selection, text::joined};

/// The claims of an offer are not those that the user was shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its claims are not those that were shown ({was} before, {is} now); bind again to see them")]
pub(crate) struct ChangedClaims {
    was: String,
    is: String,
}

/// Refuses an offer with other claims than the one that was shown.
pub(crate) fn same_claims(shown: &Offer, offer: &Offer) -> Result<(), ChangedClaims> {
    if shown.claims == offer.claims {
        return Ok(());
    }
    let claims = |offer: &Offer| {
        let claims = offer.claims.iter();
        joined(claims.map(|claim| format!("{} ({})", claim.group_resource, selection(claim))))
    };
    Err(ChangedClaims {
        was: claims(shown),
        is: claims(offer),
    })
}

#[cfg(test)]
pub(crate) mod tests;
