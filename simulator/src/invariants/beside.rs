//! Objects that the operator of a provider made, and that nothing claims, end only by the operator.

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, marks};
use crate::users::Circumstance;

/// The label of objects that operators of a history put beside copies.
pub const BESIDE: &str = "example.dev/operators-own";

/// Checks the ends of operators' own objects.
#[derive(Debug, Default)]
pub(super) struct Beside {}

impl Beside {
    /// Checks a write on a provider.
    #[expect(clippy::unused_self, reason = "as the other checks")]
    pub(super) fn check<C: Clusters>(&self, seen: &Seen<'_, C>, contracts: &mut Contracts) -> Option<Violation> {
        let change = seen.written.change;
        let (before, after) = (change.before.as_deref(), change.after.as_deref());
        let object = before.filter(|_| marks::has_ended(before, after))?;
        marks::label(object, BESIDE)?;
        let by_operator = match seen.account {
            Account::User(_) => true,
            Account::Controller(_) => contracts.was_ended_by_operator(seen, &change.key),
            Account::Konnector | Account::Contract(_) | Account::Server => false,
        };
        if by_operator {
            return None;
        }
        let contract = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let message = format!("the operator's own object ended with {contract}");
        let mut violation = seen.violation(Invariant::OperatorObjectDeleted, (None, seen.provider()), &message);
        violation.circumstances.insert(Circumstance::ObjectsBeside);
        Some(violation)
    }
}
