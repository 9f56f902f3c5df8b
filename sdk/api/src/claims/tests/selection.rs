use std::{borrow::Cow, collections::BTreeMap};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{claims::*, v1alpha2::Selector};

use Selected::{No, Unknown, Yes};
use SelectedBy::{Everything, Labels, Name, Reference};

fn selector(json: &Value) -> Selector {
    serde_json::from_value(json.clone()).unwrap()
}

fn select(selection: &Selection, key: (&str, &str), with: &[(&str, &str)], referenced: Referenced) -> Selected {
    let labels: BTreeMap<_, _> = with
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    selection.select(key, || Cow::Owned(labels), || referenced)
}

#[track_caller]
fn check(selectors: &[Value], key: (&str, &str), with: &[(&str, &str)], expect: Selected) {
    let selectors: Vec<_> = selectors.iter().map(selector).collect();
    let selected = select(&Selection::of(&selectors), key, with, Referenced::Unknown);
    assert_eq!(selected, expect, "{selectors:?} {key:?} {with:?}");
}

const ANY: (&str, &str) = ("west", "colt");

#[test]
fn an_empty_selector_selects_nothing() {
    check(&[], ANY, &[], No);
    check(&[json!({})], ANY, &[("a", "b")], No);
    check(&[json!({}), json!({"namedResources": []})], ANY, &[], No);
}

#[test]
fn labels_select_as_they_do_in_kubernetes() {
    let labelled = |labels: Value| [json!({"labelSelector": labels})];
    check(
        &labelled(json!({"matchLabels": {"a": "b"}})),
        ANY,
        &[("a", "b"), ("c", "d")],
        Yes(Labels),
    );
    check(
        &labelled(json!({"matchLabels": {"a": "b", "c": "x"}})),
        ANY,
        &[("a", "b")],
        No,
    );
    let refused = json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": []}]});
    check(&labelled(refused), ANY, &[], No);
}

#[test]
fn a_label_selector_without_a_requirement_selects_all() {
    for all in [
        json!({"labelSelector": {}}),
        json!({"labelSelector": {"matchLabels": {}}}),
        json!({"labelSelector": {"matchLabels": {}, "matchExpressions": []}}),
    ] {
        let selector = selector(&all);
        assert!(Selection::of([&selector]).selects_all() && selector.selects_all());
        check(&[all], ANY, &[], Yes(Everything));
    }
    assert!(!Selection::default().selects_all());
}

#[test]
fn names_are_selected_in_one_namespace_or_in_all() {
    let named = |names: Value| json!({"namedResources": names});
    check(&[named(json!([{"name": "colt"}]))], ANY, &[], Yes(Name));
    check(
        &[named(json!([{"name": "colt", "namespace": ""}]))],
        ANY,
        &[],
        Yes(Name),
    );
    check(
        &[named(json!([{"name": "colt", "namespace": "west"}]))],
        ANY,
        &[],
        Yes(Name),
    );
    check(&[named(json!([{"name": "colt", "namespace": "east"}]))], ANY, &[], No);
    check(&[named(json!([{"name": "other"}]))], ANY, &[], No);
    let both = [
        named(json!([{"name": "colt"}])),
        named(json!([{"name": "colt", "namespace": "east"}])),
    ];
    check(&both, ANY, &[], Yes(Name));
    check(&[both[1].clone(), both[0].clone()], ANY, &[], Yes(Name));
}

#[test]
fn each_part_of_a_selector_selects_and_references_are_asked_last() {
    let all = json!({
        "labelSelector": {"matchLabels": {"a": "b"}},
        "namedResources": [{"name": "colt"}],
        "references": [{"group": "wildwest.dev", "resource": "sheriffs", "jsonPath": {"name": "spec.ref"}}],
    });
    let one = std::slice::from_ref(&all);
    check(one, ANY, &[], Yes(Name));
    check(one, ("west", "other"), &[("a", "b")], Yes(Labels));
    check(one, ("west", "other"), &[], Unknown);
    let selection = Selection::of([&selector(&all)]);
    let other = |referenced| select(&selection, ("west", "other"), &[], referenced);
    assert_eq!(other(Referenced::Yes), Yes(Reference));
    assert_eq!(other(Referenced::No), No);
}

fn any_selector() -> impl Strategy<Value = Selector> {
    let expression = (
        "[ab]",
        "(In|NotIn|Exists|DoesNotExist|Is)",
        prop::collection::vec("[xy]", 0..3),
    )
        .prop_map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values}));
    let labels = prop::option::of((
        prop::collection::btree_map("[ab]", "[xy]", 0..2),
        prop::collection::vec(expression, 0..3),
    ));
    let named = prop::collection::vec(("[mn]", prop::option::of("[pq]")), 0..3);
    (labels, named).prop_map(|(labels, named)| {
        let labels = labels.map(|(equal, expressions)| json!({"matchLabels": equal, "matchExpressions": expressions}));
        let named: Vec<_> = named
            .into_iter()
            .map(|(name, namespace)| json!({"name": name, "namespace": namespace}))
            .collect();
        selector(&json!({"labelSelector": labels, "namedResources": named}))
    })
}

proptest! {
    #[test]
    fn a_union_selects_what_any_of_its_parts_selects(
        selectors in prop::collection::vec(any_selector(), 0..4),
        labels in prop::collection::btree_map("[ab]", "[xyz]", 0..3),
        namespace in "[pq]", name in "[mn]",
    ) {
        let is_selected = |selection: &Selection| {
            let selected = selection.select((&namespace, &name), || Cow::Borrowed(&labels), || Referenced::Unknown);
            matches!(selected, Yes(_))
        };
        let any = selectors.iter().any(|one| is_selected(&Selection::of([one])));
        let union = Selection::of(&selectors);
        prop_assert_eq!(is_selected(&union), any);
        prop_assert!(any || !union.selects_all());
    }
}
