//! Which objects of a claimed resource the selectors of claims select.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
};

use kube::core::{Selector as LabelEvaluator, SelectorExt as _};

use crate::{label_selector::label_evaluator, v1alpha2::Selector};

/// The union of the selectors of some claims on one resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    selects_all: bool,
    labels: Vec<LabelEvaluator>,
    /// The namespaces in which a name is selected, by name; `None` for every namespace.
    names: HashMap<Box<str>, Option<HashSet<Box<str>>>>,
    has_references: bool,
}

/// Whether bound objects refer to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Referenced {
    /// A bound object does.
    Yes,
    /// No bound object does.
    No,
    /// Not all objects that may refer to it are known.
    Unknown,
}

/// Whether a selection selects an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// The selection selects it.
    Yes(SelectedBy),
    /// The selection does not select it.
    No,
    /// The answer depends on references, which are not all known.
    Unknown,
}

/// The part of a selector that selects an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedBy {
    /// A label selector without a requirement, which selects every object.
    Everything,
    /// A label selector with requirements.
    Labels,
    /// A named resource.
    Name,
    /// A reference from a bound object.
    Reference,
}

// === impl Selection ===

impl Selection {
    /// Joins selectors: the selection selects what any of them selects. A label selector that an API server would refuse
    /// selects nothing.
    pub fn of<'a>(selectors: impl IntoIterator<Item = &'a Selector>) -> Self {
        let mut selection = Self::default();
        for selector in selectors {
            selection.selects_all |= selector.selects_all();
            let labels = selector.label_selector.as_ref();
            selection
                .labels
                .extend(labels.and_then(|labels| label_evaluator(labels).ok()));
            for named in &selector.named_resources {
                let namespace = named.namespace.as_deref().filter(|namespace| !namespace.is_empty());
                let namespaces = selection.names.entry(named.name.as_str().into());
                let namespaces = namespaces.or_insert_with(|| Some(HashSet::new()));
                match (namespace, namespaces.as_mut()) {
                    (Some(namespace), Some(namespaces)) => drop(namespaces.insert(namespace.into())),
                    (None, _) => *namespaces = None,
                    (Some(_), None) => {}
                }
            }
            selection.has_references |= !selector.references.is_empty();
        }
        selection
    }

    /// Tells whether the selection selects every object.
    pub fn selects_all(&self) -> bool {
        self.selects_all
    }

    /// Tells whether the selection selects an object, by its namespace and name on the consumer. `labels` and `referenced` are
    /// called only if the answer depends on them, `referenced` last.
    pub fn select<'a>(
        &self,
        (namespace, name): (&str, &str),
        labels: impl FnOnce() -> Cow<'a, BTreeMap<String, String>>,
        referenced: impl FnOnce() -> Referenced,
    ) -> Selected {
        if self.selects_all() {
            return Selected::Yes(SelectedBy::Everything);
        }
        if !self.labels.is_empty() {
            let labels = labels();
            if self.labels.iter().any(|selector| selector.matches(&labels)) {
                return Selected::Yes(SelectedBy::Labels);
            }
        }
        let is_named = |namespaces: &Option<HashSet<Box<str>>>| match namespaces {
            None => true,
            Some(namespaces) => namespaces.contains(namespace),
        };
        if self.names.get(name).is_some_and(is_named) {
            return Selected::Yes(SelectedBy::Name);
        }
        if !self.has_references {
            return Selected::No;
        }
        match referenced() {
            Referenced::Yes => Selected::Yes(SelectedBy::Reference),
            Referenced::No => Selected::No,
            Referenced::Unknown => Selected::Unknown,
        }
    }
}
