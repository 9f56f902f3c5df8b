use bindery_api::crds::for_consumer;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionStatus;

use super::*;

#[track_caller]
fn check(change: impl FnOnce(&mut CustomResourceDefinition), expect: Outcome) {
    let mut before = for_consumer().remove(0);
    before.metadata.resource_version = Some("1".to_owned());
    let mut after = before.clone();
    change(&mut after);
    assert_eq!(outcome(None, Some(after.clone())), Outcome::Created);
    assert_eq!(outcome(Some(before), Some(after)), expect);
}

#[test]
fn what_only_the_server_writes_is_no_change() {
    check(|_| {}, Outcome::Unchanged);
    check(
        |after| after.metadata.resource_version = Some("2".to_owned()),
        Outcome::Unchanged,
    );
    check(|after| after.metadata.generation = Some(2), Outcome::Unchanged);
    check(
        |after| after.status = Some(CustomResourceDefinitionStatus::default()),
        Outcome::Unchanged,
    );
    check(
        |after| after.annotations_mut().extend([("a".to_owned(), "1".to_owned())]),
        Outcome::Configured,
    );
    check(|after| after.spec.group.push('x'), Outcome::Configured);
}
