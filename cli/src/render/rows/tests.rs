use bindery_api::{
    conditions::{Severity, false_condition},
    v1alpha2::{APIServiceBindingBundleSpec, APIServiceBindingBundleStatus, APIServiceBindingSpec},
};

use super::*;

#[test]
fn every_column_of_a_binding_has_a_cell() {
    let binding = APIServiceBinding::new("west", APIServiceBindingSpec::default());
    let cells = binding.cells(Timestamp::UNIX_EPOCH);
    assert_eq!(cells.len(), APIServiceBinding::HEADINGS.len());
    assert_eq!(cells[..5], ["west", "<unknown>", "<none>", "Unknown", "<unknown>"]);
}

#[test]
fn a_bundle_shows_what_it_found_and_bound() {
    let mut acme = APIServiceBindingBundle::new("acme", APIServiceBindingBundleSpec::default());
    acme.status = Some(APIServiceBindingBundleStatus {
        provider_pretty_name: Some("Acme Inc.".to_owned()),
        discovered_services: Some(3),
        bound_services: Some(2),
        ..APIServiceBindingBundleStatus::default()
    });
    let broken = false_condition(conditions::READY, Severity::Warning, "SyncErrors", "export x: taken");
    acme.set_condition(broken, Timestamp::UNIX_EPOCH);
    let cells = acme.cells(Timestamp::UNIX_EPOCH);
    assert_eq!(cells.len(), APIServiceBindingBundle::HEADINGS.len());
    let plain = ["acme", "Acme Inc.", "3", "2", "False", "<unknown>", "export x: taken"];
    assert_eq!(cells[..APIServiceBindingBundle::PLAIN], plain);
    let new = APIServiceBindingBundle::new("new", APIServiceBindingBundleSpec::default());
    assert!(new.cells(Timestamp::UNIX_EPOCH)[6].contains("has not seen"));
}
