//! Bundles: whatever the credentials of a provider reach is bound without a human, and nothing that happens to a provider
//! takes an object of the consumer away.

mod certificate;
mod claims;
mod conflicts;
mod contract;
mod counts;
mod deletion;
mod exports;
mod forbidden;
mod handmade;
mod hostile;
mod lists;
mod order;
mod outage;
mod pair;
mod reach;
mod reader;
mod removed;
mod rights;
mod secrets;
mod selector;
mod stream;
mod swapped;
mod world;

use anyhow::Result;
use futures::FutureExt as _;

use crate::world::together;

/// What there is of a provider's is bound, and what is not wanted is not.
#[test]
fn what_is_exported_is_bound() -> Result<()> {
    together(vec![
        exports::exports_of_two_providers_come_change_and_go().boxed_local(),
        stream::a_new_export_is_bound_without_a_poll().boxed_local(),
        stream::a_new_export_is_bound_without_a_poll_where_there_is_no_backend().boxed_local(),
        selector::exports_are_selected_by_label_and_a_narrower_selector_deletes_nothing().boxed_local(),
        selector::a_selector_that_cannot_be_understood_binds_and_unbinds_nothing().boxed_local(),
        claims::only_the_claims_that_a_bundle_covers_take_effect().boxed_local(),
        rights::rights_that_lack_are_printed().boxed_local(),
    ])
}

/// Others have bound what a bundle would bind, or what is bound ends.
#[test]
fn bindings_of_others_are_left_alone_and_own_ones_end() -> Result<()> {
    together(vec![
        conflicts::of_two_exports_of_one_name_the_later_is_bound_under_a_prefix().boxed_local(),
        conflicts::of_two_exports_of_one_api_the_first_serves_it().boxed_local(),
        handmade::a_binding_made_by_hand_is_left_alone_and_counted().boxed_local(),
        handmade::a_binding_of_another_contract_in_the_way_is_a_conflict().boxed_local(),
        removed::what_has_objects_is_kept_until_they_are_gone_or_the_user_consents().boxed_local(),
        removed::a_bundle_may_end_bindings_with_their_objects().boxed_local(),
        deletion::a_bundle_that_is_deleted_with_its_secret_leaves_nothing().boxed_local(),
        deletion::a_bundle_that_says_nothing_of_copies_leaves_them_to_the_next().boxed_local(),
    ])
}

/// Secrets that are missing, bad, new or another provider's; and all manifests in the wrong order.
#[test]
fn secrets_come_and_change() -> Result<()> {
    together(vec![
        secrets::every_bad_secret_has_a_reason_of_its_own().boxed_local(),
        secrets::a_secret_is_rotated_and_nothing_is_lost_meanwhile().boxed_local(),
        swapped::a_secret_of_another_provider_is_refused_and_changes_nothing().boxed_local(),
        swapped::a_contract_of_another_cluster_is_left_alone().boxed_local(),
        certificate::a_kubeconfig_with_a_client_certificate_is_served().boxed_local(),
        order::manifests_in_reverse_order_converge().boxed_local(),
        counts::an_idle_bundle_writes_nothing_and_lists_nothing().boxed_local(),
    ])
}

/// Providers that are away, refuse, lose what they had, or list it badly.
#[test]
fn no_outage_takes_anything_away() -> Result<()> {
    together(vec![
        outage::a_provider_is_killed_and_restored_from_an_older_backup().boxed_local(),
        reach::without_backend_api_server_or_both_nothing_is_lost().boxed_local(),
        reach::a_provider_that_is_away_from_the_start_is_bound_when_it_comes().boxed_local(),
        reach::a_provider_that_refuses_deletes_nothing().boxed_local(),
        reader::a_kubeconfig_that_only_reads_says_what_it_lacks().boxed_local(),
        reader::a_konnector_that_starts_with_reading_rights_goes_on().boxed_local(),
        reader::a_contract_made_anew_needs_consent().boxed_local(),
        reader::claimed_objects_are_kept_from_an_unverified_contract().boxed_local(),
        forbidden::what_cannot_be_watched_is_listed_and_what_cannot_be_listed_stays().boxed_local(),
        lists::a_list_that_fails().boxed_local(),
        lists::a_list_that_is_forbidden().boxed_local(),
        lists::a_list_that_breaks_off().boxed_local(),
        lists::a_list_without_its_end().boxed_local(),
        lists::an_empty_list().boxed_local(),
    ])
}

/// A provider that lists without end is paused and loses nothing, and another provider's objects are synced meanwhile.
#[test]
fn a_provider_that_lists_without_end_stalls_no_other() -> Result<()> {
    together(vec![hostile::a_list_without_end().boxed_local()])
}

/// An API server that does not validate sends names with parts of paths.
#[test]
fn names_that_lead_elsewhere_are_skipped_and_the_others_sync() -> Result<()> {
    together(vec![hostile::names_of_other_paths().boxed_local()])
}
