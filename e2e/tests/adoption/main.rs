//! Adoption: what a provider made becomes the consumer's, in each placement and in each mode, whenever it was made and
//! whenever the konnector is killed; and what never does.

mod aspects;
mod bench;
mod cells;
mod counts;
mod kills;
mod modes;
mod namespaces;
mod protected;
mod removed;
mod restored;
mod side;
mod stepwise;
mod takeover;
mod upgrade;
mod world;

use anyhow::Result;

/// A namespaced API, watched namespace by namespace.
#[test]
fn nn() -> Result<()> {
    aspects::check(&cells::NN)
}

/// A namespaced API, watched cluster-wide.
#[test]
fn nc() -> Result<()> {
    aspects::check(&cells::NC)
}

/// A namespaced API without a status subresource.
#[test]
fn without_status_subresource() -> Result<()> {
    aspects::check(&cells::BARE)
}

/// A cluster-scoped API whose objects keep their names: the provider says whose one is.
#[test]
fn cc_none() -> Result<()> {
    aspects::check(&cells::NONE)
}

/// A cluster-scoped API whose objects have the contract's name in front.
#[test]
fn cc_prefixed() -> Result<()> {
    aspects::check(&cells::PREFIXED)
}

/// A namespaced API that consumers see as cluster-scoped, with its objects in the contract namespace.
#[test]
fn cc_namespaced() -> Result<()> {
    aspects::check(&cells::NAMESPACED)
}

/// The same, with its objects in the namespace that the template names.
#[test]
fn cc_namespaced_beside() -> Result<()> {
    aspects::check(&cells::BESIDE)
}

/// The three settings, one after the other, over all cells: what the document's upgrade goes through.
#[test]
fn off_then_opt_in_then_all() -> Result<()> {
    modes::check()
}

/// Copies made before there were marks: with the flag off they are marked, and what was deleted meanwhile stays deleted.
#[test]
fn upgrade_lays_marks_before_it_adopts() -> Result<()> {
    upgrade::check()
}

/// A consumer that lost its objects gets none of them back by adoption.
#[test]
fn a_restored_consumer_adopts_nothing_of_its_own() -> Result<()> {
    restored::check()
}

/// A konnector that is killed at random moments.
#[test]
fn killed_at_random_moments() -> Result<()> {
    kills::check()
}

/// A konnector that is killed after each of its writes, and users who act before the next one.
#[test]
fn killed_between_two_writes() -> Result<()> {
    stepwise::after_each_write_on_the_consumer()
}

/// A provider that takes no mark for a while, and users who act meanwhile.
#[test]
fn killed_before_the_marks() -> Result<()> {
    stepwise::before_each_write_on_the_provider()
}

/// A namespace is missing, and so is the right to make it.
#[test]
fn a_missing_namespace_needs_a_right() -> Result<()> {
    namespaces::check()
}

/// A provider that maps the namespaces of Kubernetes and of the konnector.
#[test]
fn a_provider_gets_nothing_into_protected_namespaces() -> Result<()> {
    protected::check()
}

/// An export that was removed.
#[test]
fn nothing_of_a_removed_export_is_adopted() -> Result<()> {
    removed::check()
}

/// A CRD that the consumer has already.
#[test]
fn a_crd_is_taken_over_with_its_objects() -> Result<()> {
    takeover::with_its_objects()
}

/// One whose schema is another.
#[test]
fn a_crd_of_another_schema_is_left() -> Result<()> {
    takeover::of_another_schema()
}

/// What the admission policy of the consumer says, to whoever has the konnector's credentials.
#[test]
fn the_policy_lets_no_other_crd_be_taken() -> Result<()> {
    takeover::without_the_users_word()
}
