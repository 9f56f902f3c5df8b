//! Users of consumers and operators of providers: what they do, how it is done on the clusters, and what they said by it.

mod action;
mod bind;
mod hands;
mod install;
mod ledger;
mod perform;

pub use action::{Action, Consent, Ending, Kind, ObjectName, Propagation, Relation, namespace_name, object_name};
pub(crate) use bind::bundle_name;
pub(crate) use install::change_definition;
pub use ledger::{Circumstance, Ledger, Said, Word};
pub use perform::Users;
