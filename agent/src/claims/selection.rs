//! Which objects of one claimed resource are claimed: what the accepted claims of all bindings of a session select.

use std::collections::{BTreeSet, HashMap, HashSet};

use bindery_api::v1alpha2::{GroupResource, Selector};
use bindery_runtime::cache::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::{model::labels::Marks, references::Referenced};

/// Secrets of these types are credentials of one cluster for itself.
const REFUSED_SECRETS: [&str; 2] = ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];
/// Every namespace has these of its own.
const PER_NAMESPACE: [(&str, &str); 2] = [("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];

/// The union of selectors, ready to be asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selection {
    labels: Vec<Labels>,
    /// By name: the namespaces it is meant in; none for any.
    names: HashMap<Box<str>, Option<HashSet<Box<str>>>>,
    references: bool,
}

/// Whether an object is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Selected,
    Unselected,
    /// That hangs on objects that are not all known.
    Unknown,
    /// Only for a binding that is paused.
    Held,
}

/// A label selector: all requirements hold.
#[derive(Clone, Debug, PartialEq)]
struct Labels {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    In(Box<str>, BTreeSet<Box<str>>),
    NotIn(Box<str>, BTreeSet<Box<str>>),
    Exists(Box<str>),
    Absent(Box<str>),
}

/// True for objects that no claim reaches, whatever it says: credentials of a cluster for itself, and what each namespace
/// has of its own.
pub(crate) fn is_refused(resource: &GroupResource, name: &str, secret_type: Option<&str>) -> bool {
    if !resource.is_core() {
        return false;
    }
    let refused_type = secret_type.is_some_and(|kind| REFUSED_SECRETS.contains(&kind));
    (resource.resource == "secrets" && refused_type) || PER_NAMESPACE.contains(&(resource.resource.as_str(), name))
}

/// The top-level field of a claimed resource that speaks of one cluster alone.
pub(crate) fn is_local_field(resource: &GroupResource, field: &str) -> bool {
    resource.is_core() && resource.resource == "serviceaccounts" && field == "secrets"
}

// === impl Selection ===

impl Selection {
    /// What any of these selects.
    pub(crate) fn of<'a>(selectors: impl IntoIterator<Item = &'a Selector>) -> Self {
        let mut selection = Self::default();
        for selector in selectors {
            // One that cannot be understood selects nothing.
            selection
                .labels
                .extend(selector.label_selector.as_ref().and_then(Labels::of));
            for named in &selector.named_resources {
                let namespace = named.namespace.as_deref().filter(|namespace| !namespace.is_empty());
                let namespaces = selection
                    .names
                    .entry(named.name.as_str().into())
                    .or_insert_with(|| Some(HashSet::new()));
                match (namespace, namespaces.as_mut()) {
                    (Some(namespace), Some(namespaces)) => drop(namespaces.insert(namespace.into())),
                    (None, _) => *namespaces = None,
                    (Some(_), None) => {}
                }
            }
            selection.references |= !selector.references.is_empty();
        }
        selection
    }

    /// True if it selects every object.
    pub(crate) fn selects_all(&self) -> bool {
        self.labels.iter().any(|labels| labels.requirements.is_empty())
    }

    /// Whether an object is selected, by its name on the consumer.
    pub(crate) fn choose(&self, key: &ObjectKey, labels: &Marks, referenced: impl FnOnce() -> Referenced) -> Choice {
        let by_label = || self.labels.iter().any(|selector| selector.admits(labels));
        let by_name = || match self.names.get(&*key.name) {
            None => false,
            Some(None) => true,
            Some(Some(namespaces)) => namespaces.contains(&*key.namespace),
        };
        if by_label() || by_name() {
            return Choice::Selected;
        }
        if !self.references {
            return Choice::Unselected;
        }
        match referenced() {
            Referenced::Yes => Choice::Selected,
            Referenced::No => Choice::Unselected,
            Referenced::Unknown => Choice::Unknown,
        }
    }
}

// === impl Labels ===

impl Labels {
    fn of(selector: &LabelSelector) -> Option<Self> {
        let equal = selector.match_labels.iter().flatten().map(|(key, value)| {
            Some(Requirement::In(
                key.as_str().into(),
                BTreeSet::from([value.as_str().into()]),
            ))
        });
        let expressions = selector.match_expressions.iter().flatten().map(Requirement::of);
        let requirements: Option<Vec<_>> = equal.chain(expressions).collect();
        requirements.map(|requirements| Self { requirements })
    }

    fn admits(&self, labels: &Marks) -> bool {
        self.requirements.iter().all(|requirement| requirement.admits(labels))
    }
}

// === impl Requirement ===

impl Requirement {
    fn of(expression: &LabelSelectorRequirement) -> Option<Self> {
        let key = expression.key.as_str().into();
        let values: BTreeSet<Box<str>> = expression
            .values
            .iter()
            .flatten()
            .map(|value| value.as_str().into())
            .collect();
        match (expression.operator.as_str(), values.is_empty()) {
            ("In", false) => Some(Self::In(key, values)),
            ("NotIn", false) => Some(Self::NotIn(key, values)),
            ("Exists", true) => Some(Self::Exists(key)),
            ("DoesNotExist", true) => Some(Self::Absent(key)),
            _ => None,
        }
    }

    fn admits(&self, labels: &Marks) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.get(key).is_some(),
            Self::Absent(key) => labels.get(key).is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn selector(json: &Value) -> Selector {
        serde_json::from_value(json.clone()).unwrap()
    }

    fn labels(pairs: &[(&str, &str)]) -> Marks {
        pairs.iter().copied().collect()
    }

    #[track_caller]
    fn check(selectors: &[Value], key: (&str, &str), with: &[(&str, &str)], expect: Choice) {
        let selectors: Vec<_> = selectors.iter().map(selector).collect();
        let selection = Selection::of(&selectors);
        let chosen = selection.choose(&ObjectKey::new(key.0, key.1), &labels(with), || Referenced::Unknown);
        assert_eq!(chosen, expect, "{selectors:?} {key:?} {with:?}");
    }

    const ANY: (&str, &str) = ("west", "colt");
    use Choice::{Selected, Unknown, Unselected};

    #[test]
    fn an_empty_selector_selects_nothing() {
        check(&[], ANY, &[], Unselected);
        check(&[json!({})], ANY, &[("a", "b")], Unselected);
        check(&[json!({}), json!({"namedResources": []})], ANY, &[], Unselected);
    }

    #[test]
    fn labels_are_compared_as_kubernetes_does() {
        let of = |expression: Value| [json!({"labelSelector": {"matchExpressions": [expression]}})];
        let on = |key: &str, operator: &str, values: &[&str]| {
            of(json!({"key": key, "operator": operator, "values": values}))
        };
        check(
            &[json!({"labelSelector": {"matchLabels": {"a": "b"}}})],
            ANY,
            &[("a", "b"), ("c", "d")],
            Selected,
        );
        check(
            &[json!({"labelSelector": {"matchLabels": {"a": "b", "c": "x"}}})],
            ANY,
            &[("a", "b")],
            Unselected,
        );
        check(&on("a", "In", &["b", "c"]), ANY, &[("a", "c")], Selected);
        check(&on("a", "In", &["b", "c"]), ANY, &[], Unselected);
        check(&on("a", "NotIn", &["b"]), ANY, &[("a", "c")], Selected);
        check(&on("a", "NotIn", &["b"]), ANY, &[], Selected);
        check(&on("a", "NotIn", &["b"]), ANY, &[("a", "b")], Unselected);
        check(&on("a", "Exists", &[]), ANY, &[("a", "")], Selected);
        check(&on("a", "Exists", &[]), ANY, &[("b", "")], Unselected);
        check(&on("a", "DoesNotExist", &[]), ANY, &[("b", "")], Selected);
        check(&on("a", "DoesNotExist", &[]), ANY, &[("a", "")], Unselected);
        for nonsense in [
            on("a", "Is", &["b"]),
            on("a", "In", &[]),
            on("a", "NotIn", &[]),
            on("a", "Exists", &["b"]),
        ] {
            check(&nonsense, ANY, &[("a", "b")], Unselected);
        }
    }

    #[test]
    fn a_label_selector_without_a_requirement_selects_all() {
        for all in [
            json!({"labelSelector": {}}),
            json!({"labelSelector": {"matchLabels": {}}}),
        ] {
            let selector = selector(&all);
            assert!(Selection::of([&selector]).selects_all() && selector.selects_all());
            check(&[all], ANY, &[], Selected);
        }
        assert!(!Selection::default().selects_all());
    }

    #[test]
    fn names_are_meant_in_one_namespace_or_in_any() {
        let named = |names: Value| json!({"namedResources": names});
        check(&[named(json!([{"name": "colt"}]))], ANY, &[], Selected);
        check(&[named(json!([{"name": "colt", "namespace": ""}]))], ANY, &[], Selected);
        check(
            &[named(json!([{"name": "colt", "namespace": "west"}]))],
            ANY,
            &[],
            Selected,
        );
        check(
            &[named(json!([{"name": "colt", "namespace": "east"}]))],
            ANY,
            &[],
            Unselected,
        );
        check(&[named(json!([{"name": "other"}]))], ANY, &[], Unselected);
        let both = [
            named(json!([{"name": "colt"}])),
            named(json!([{"name": "colt", "namespace": "east"}])),
        ];
        check(&both, ANY, &[], Selected);
        check(&[both[1].clone(), both[0].clone()], ANY, &[], Selected);
    }

    #[test]
    fn parts_are_alternatives_and_references_are_asked_last() {
        let all = json!({
            "labelSelector": {"matchLabels": {"a": "b"}},
            "namedResources": [{"name": "colt"}],
            "references": [{"group": "wildwest.dev", "resource": "sheriffs", "jsonPath": {"name": "spec.ref"}}],
        });
        let one = std::slice::from_ref(&all);
        check(one, ANY, &[], Selected);
        check(one, ("west", "other"), &[("a", "b")], Selected);
        check(one, ("west", "other"), &[], Unknown);
        let selection = Selection::of([&selector(&all)]);
        let other = ObjectKey::new("west", "other");
        assert_eq!(selection.choose(&other, &labels(&[]), || Referenced::Yes), Selected);
        assert_eq!(selection.choose(&other, &labels(&[]), || Referenced::No), Unselected);
    }

    #[test]
    fn some_objects_no_claim_reaches() {
        #[track_caller]
        fn check(resource: &str, name: &str, kind: Option<&str>, expect: bool) {
            let resource = match resource.split_once('.') {
                Some((resource, group)) => GroupResource::new(group, resource),
                None => GroupResource::new("", resource),
            };
            assert_eq!(is_refused(&resource, name, kind), expect, "{resource} {name}");
        }
        check("secrets", "a", Some("Opaque"), false);
        check("secrets", "a", None, false);
        check("secrets", "a", Some("kubernetes.io/dockerconfigjson"), false);
        check("secrets", "a", Some("kubernetes.io/service-account-token"), true);
        check("secrets", "a", Some("bootstrap.kubernetes.io/token"), true);
        check("configmaps", "kube-root-ca.crt", None, true);
        check("configmaps", "default", None, false);
        check("serviceaccounts", "default", None, true);
        check("serviceaccounts", "builder", None, false);
        check("secrets", "default", Some("Opaque"), false);
        check("configmaps.example.com", "kube-root-ca.crt", None, false);
        assert!(is_local_field(&GroupResource::new("", "serviceaccounts"), "secrets"));
        assert!(!is_local_field(
            &GroupResource::new("", "serviceaccounts"),
            "imagePullSecrets"
        ));
        assert!(!is_local_field(&GroupResource::new("", "secrets"), "data"));
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
            let labels =
                labels.map(|(equal, expressions)| json!({"matchLabels": equal, "matchExpressions": expressions}));
            let named: Vec<_> = named
                .into_iter()
                .map(|(name, namespace)| json!({"name": name, "namespace": namespace}))
                .collect();
            selector(&json!({"labelSelector": labels, "namedResources": named}))
        })
    }

    proptest! {
        #[test]
        fn a_union_selects_what_any_of_it_selects(
            selectors in prop::collection::vec(any_selector(), 0..4),
            with in prop::collection::btree_map("[ab]", "[xyz]", 0..3),
            namespace in "[pq]", name in "[mn]",
        ) {
            let labels: Marks = with.into_iter().collect();
            let key = ObjectKey::new(namespace, name);
            let choose = |selection: Selection| selection.choose(&key, &labels, || Referenced::Unknown);
            let any = selectors.iter().any(|one| choose(Selection::of([one])) == Selected);
            prop_assert_eq!(choose(Selection::of(&selectors)) == Selected, any);
            if Selection::of(&selectors).selects_all() {
                prop_assert!(any);
            }
        }
    }
}
