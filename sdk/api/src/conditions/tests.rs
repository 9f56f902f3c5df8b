use proptest::prelude::*;

use super::*;

const EARLIER: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-01-02T04:00:00.987Z";

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn built(conditions: impl IntoIterator<Item = Condition>) -> Vec<Condition> {
    let mut list = Vec::new();
    for condition in conditions {
        set(&mut list, condition, at(EARLIER));
    }
    list
}

fn failed(type_: &str, severity: Severity) -> Condition {
    false_condition(type_, severity, format!("{type_}Failed"), format!("{type_} failed"))
}

#[track_caller]
fn check_set(change: Condition, changed: bool) {
    let mut list = built([failed("A", Severity::Error)]);
    assert_eq!(set(&mut list, change, at(LATER)), changed);
    let time = if changed { "2026-01-02T04:00:00Z" } else { EARLIER };
    assert_eq!(list[0].last_transition_time, Time(at(time)));
}

#[test]
fn time_changes_with_what_is_said_and_is_whole_seconds() {
    check_set(failed("A", Severity::Error), false);
    check_set(failed("A", Severity::Warning), true);
    check_set(true_condition("A"), true);
    check_set(false_condition("A", Severity::Error, "AFailed", "otherwise"), true);
    check_set(false_condition("A", Severity::Error, "Other", "A failed"), true);
    check_set(unknown_condition("A", "AFailed", "A failed"), true);
}

#[test]
fn ready_is_first_and_the_rest_sorted() {
    let list = built(["B", "Ready", "A", "Z"].map(true_condition));
    let types: Vec<_> = list.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["Ready", "A", "B", "Z"]);
}

#[track_caller]
fn check_summary(others: &[Condition], ready: Option<(ConditionStatus, &str, Severity)>) {
    let got = summary(&built(others.iter().cloned()));
    assert_eq!(
        got.as_ref()
            .map(|ready| (ready.status, ready.reason.as_str(), ready.severity)),
        ready
    );
}

#[test]
fn summary_is_the_worst_of_the_others() {
    use ConditionStatus::{False, True, Unknown};
    let (error, warning, info) = (
        failed("C", Severity::Error),
        failed("B", Severity::Warning),
        failed("A", Severity::Info),
    );
    let good = true_condition("D");
    let unknown = unknown_condition("E", "NotSeen", "not seen yet");
    check_summary(&[], None);
    check_summary(&[failed(READY, Severity::Error)], None);
    check_summary(&[good.clone(), unknown.clone()], Some((True, "", Severity::None)));
    check_summary(
        std::slice::from_ref(&unknown),
        Some((Unknown, "NotSeen", Severity::None)),
    );
    check_summary(
        &[unknown, info.clone(), good.clone()],
        Some((False, "AFailed", Severity::Info)),
    );
    check_summary(
        &[info.clone(), warning.clone()],
        Some((False, "BFailed", Severity::Warning)),
    );
    check_summary(&[info, warning, error], Some((False, "CFailed", Severity::Error)));
    check_summary(
        &[failed("Y", Severity::Error), failed("X", Severity::Error), good],
        Some((False, "XFailed", Severity::Error)),
    );
    check_summary(
        &[true_condition("A"), failed("B", Severity::None)],
        Some((False, "BFailed", Severity::None)),
    );
}

#[test]
fn summary_leaves_ready_alone_without_others() {
    let mut list = built([failed(READY, Severity::Info)]);
    assert!(!set_summary(&mut list, at(LATER)));
    assert_eq!(list, built([failed(READY, Severity::Info)]));
}

#[test]
fn foreign_words_are_read_and_plain_ones_written() {
    let read: Condition = serde_json::from_value(serde_json::json!({
        "type": "A", "status": "Perhaps", "severity": "Grave", "lastTransitionTime": EARLIER,
    }))
    .unwrap();
    assert_eq!(
        serde_json::to_value(&read).unwrap(),
        serde_json::json!({ "type": "A", "status": "Unknown", "lastTransitionTime": EARLIER })
    );
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let severity = prop::sample::select(vec![Severity::Error, Severity::Warning, Severity::Info, Severity::None]);
    let types = prop::sample::select(vec!["A", "B", "C", "Ready", "Z"]);
    (types, severity, 0..3_u8, "[A-C]").prop_map(|(type_, severity, status, reason)| match status {
        0 => true_condition(type_),
        1 => false_condition(type_, severity, reason, ""),
        _ => unknown_condition(type_, reason, ""),
    })
}

proptest! {
    #[test]
    fn setting_again_changes_nothing(list in prop::collection::vec(any_condition(), 0..8), extra in any_condition()) {
        let mut once = built(list);
        set(&mut once, extra.clone(), at(EARLIER));
        set_summary(&mut once, at(EARLIER));
        let stable = once.clone();
        let again = get(&once, &extra.type_).cloned().unwrap();
        prop_assert!(!set(&mut once, again, at(LATER)));
        prop_assert!(!set_summary(&mut once, at(LATER)));
        prop_assert_eq!(once, stable);
    }

    #[test]
    fn order_of_setting_does_not_matter(list in prop::collection::vec(any_condition(), 0..8)) {
        let once = built(list);
        let ready_first = once.iter().position(|condition| condition.type_ == READY).is_none_or(|at| at == 0);
        prop_assert!(ready_first);
        let rest: Vec<_> = once.iter().filter(|c| c.type_ != READY).map(|c| c.type_.clone()).collect();
        prop_assert!(rest.windows(2).all(|pair| pair[0] < pair[1]), "sorted, and one per type");
        let last_of_each: Vec<_> = once.iter().rev().cloned().collect();
        prop_assert_eq!(built(last_of_each), once);
    }
}
