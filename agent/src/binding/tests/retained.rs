use bindery_runtime::cache::ObjectKey;
use jiff::Timestamp;

use super::*;
use crate::{
    binding::{
        fixtures::{CRD, binding, served, words},
        plan,
    },
    engine::{RetainedCopies, RetentionTimes},
};

fn ordered(text: &str) -> ObservedBinding {
    let mut seen = served();
    let annotations = binding(&mut seen).annotations_mut();
    annotations.insert(annotations::END_RETENTION.to_owned(), text.to_owned());
    seen
}

#[test]
fn an_order_is_carried_out_once_all_objects_are_known() {
    let order = "restore/cowboys.wildwest.dev/wild-west/billy";
    let mut seen = ordered(order);
    assert_eq!(words(&plan::plan(&seen).ops), [order, "go on"]);
    seen.engines.get_mut(CRD).unwrap().progress.provider_synced = false;
    assert_eq!(answer(&seen), None);
    for wrong in ["", "restore", "restore/cowboys/wild-west/billy"] {
        assert_eq!(words(&plan::plan(&ordered(wrong)).ops), ["refuse order", "go on"]);
    }
}

#[test]
fn the_list_is_bounded_and_the_count_is_not() {
    let mut seen = served();
    let times = RetentionTimes {
        since: Timestamp::UNIX_EPOCH,
        until: None,
    };
    let first = ["a", "b"].map(|name| (ObjectKey::new("wild-west", name), times));
    seen.engines.get_mut(CRD).unwrap().progress.retained = RetainedCopies {
        count: 7_000,
        first: first.into(),
    };
    let listed = listed(&seen).unwrap();
    assert_eq!((listed.count, listed.first.len()), (7_000, 2));
    assert_eq!(listed.first[0].group_resource.to_string(), CRD);
    seen.engines.get_mut(CRD).unwrap().progress.consumer_synced = false;
    assert_eq!(super::listed(&seen), None);
}
