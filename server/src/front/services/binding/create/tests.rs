use std::time::Duration;

use super::*;

fn spec() -> api::BindableResourcesRequestSpec {
    api::BindableResourcesRequestSpec {
        template_ref: Some(api::NameRef::new("cowboys")),
        cluster_identity: api::ClusterIdentity {
            identity: "id".to_owned(),
            pretty_name: None,
        },
        author: "alice".to_owned(),
        ttl_after_finished: Some(Duration::from_hours(1).into()),
        ..api::BindableResourcesRequestSpec::default()
    }
}

fn existing(phase: api::Phase) -> api::BindableResourcesRequest {
    api::BindableResourcesRequest {
        metadata: ObjectMeta::default(),
        spec: spec(),
        status: Some(api::BindableResourcesRequestStatus {
            phase,
            ..api::BindableResourcesRequestStatus::default()
        }),
    }
}

#[track_caller]
fn check(phase: api::Phase, needs_rerun: bool, expect: &Step) {
    assert_eq!(decide(&existing(phase), &spec(), || needs_rerun).as_ref(), Ok(expect));
}

#[test]
fn the_same_again_joins_returns_repeats_or_restarts() {
    check(api::Phase::Pending, false, &Step::Join);
    check(api::Phase::Pending, true, &Step::Join);
    check(api::Phase::Succeeded, false, &Step::Join);
    check(api::Phase::Succeeded, true, &Step::RunAgain);
    check(api::Phase::Failed, false, &Step::Restart);
}

#[track_caller]
fn check_other(change: impl FnOnce(&mut api::BindableResourcesRequestSpec), field: &str) {
    let mut wanted = spec();
    change(&mut wanted);
    for phase in [api::Phase::Pending, api::Phase::Succeeded, api::Phase::Failed] {
        assert_eq!(decide(&existing(phase), &wanted, || true), Err(field));
    }
}

#[test]
fn other_content_is_refused_and_the_field_is_named() {
    check_other(
        |spec| spec.template_ref = Some(api::NameRef::new("other")),
        "spec.template_ref.name",
    );
    check_other(
        |spec| spec.cluster_identity.pretty_name = Some("x".to_owned()),
        "spec.cluster_identity.pretty_name",
    );
    check_other(|spec| spec.ttl_after_finished = None, "spec.ttl_after_finished");
    check_other(
        |spec| spec.compatibility = Some(api::Compatibility::KubeBind),
        "spec.compatibility",
    );
}

#[test]
fn durations_are_compared_by_what_they_mean() {
    let mut found = existing(api::Phase::Pending);
    found.spec.ttl_after_finished = serde_json::from_value(serde_json::json!("60m")).expect("a duration");
    assert_eq!(decide(&found, &spec(), || false), Ok(Step::Join));
}
