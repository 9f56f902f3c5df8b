//! Predicts what adoption would do with each object that a provider holds for this cluster.

mod places;

use bindery_api::{
    adoption::{Adoption, Candidate},
    annotations,
    claims::is_protected_namespace,
    v1alpha2::GroupResource,
};
use jiff::Timestamp;
use serde::Serialize;

pub(crate) use places::namespace_pairs;

use crate::{
    render::output::Show,
    why::{ObjectFacts, difference},
};

/// What would become of an object under one mode of adoption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Fate {
    /// The object would be created on this cluster.
    Adopt,
    /// The object exists on this cluster with the same content, and both would be linked.
    Link,
    /// The object exists on this cluster with other content, and neither would be changed.
    Conflict,
    /// Nothing would happen to the object.
    Nothing,
}

/// An object of the provider, and what adoption would do with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AdoptionItem {
    /// The binding through which the object was read.
    pub(crate) binding: String,
    #[serde(flatten)]
    pub(crate) resource: GroupResource,
    /// Namespace of its counterpart on this cluster; empty for a cluster-scoped object.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) provider: Provider,
    /// What would become of it with `--adoption=opt-in`.
    pub(crate) opt_in: Fate,
    /// What would become of it with `--adoption=all`.
    pub(crate) all: Fate,
    /// Whether adoption would create the namespace.
    pub(crate) makes_namespace: bool,
    pub(crate) why: String,
}

/// Namespace, name and UID of the object on the provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Provider {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The binding and the resource whose objects are judged.
#[derive(Clone, Debug)]
pub(crate) struct AdoptionScope<'a> {
    pub(crate) binding: &'a str,
    pub(crate) contract: &'a str,
    pub(crate) resource: &'a GroupResource,
    /// The consumer namespace that the konnector runs in.
    pub(crate) konnector_namespace: &'a str,
    /// Whether consumers share names, so that a name does not tell whose an object is.
    pub(crate) names_are_shared: bool,
}

/// Judges one object of the provider. `(namespace, name)` is where it belongs on the consumer, `counterpart` the object that
/// exists there. `has_namespace` is true if the namespace exists or none is needed.
pub(crate) fn item(
    scope: &AdoptionScope<'_>,
    (namespace, name): (String, String),
    object: &ObjectFacts,
    counterpart: Option<&ObjectFacts>,
    has_namespace: bool,
) -> AdoptionItem {
    let mark = |key: &str| object.annotations.get(key).map(String::as_str);
    let candidate = Candidate::of(mark, scope.contract, scope.names_are_shared);
    let is_protected = is_protected_namespace(&namespace, scope.konnector_namespace);
    let fates = [Adoption::OptIn, Adoption::All].map(|setting| {
        let setting = if is_protected { Adoption::Off } else { setting };
        fate(setting, &candidate, object, counterpart)
    });
    let adopted = fates.iter().any(|(fate, _)| *fate == Fate::Adopt);
    let [(opt_in, _), (all, why)] = fates;
    let is_fresh = matches!(candidate, Candidate::Fresh { .. });
    let why = match opt_in {
        Fate::Nothing if is_protected && is_fresh && counterpart.is_none() => {
            "no provider's object is created in its namespace here".to_owned()
        }
        Fate::Nothing if all != Fate::Nothing => format!("{why}; the provider has not opted it in"),
        _ => why,
    };
    AdoptionItem {
        binding: scope.binding.to_owned(),
        resource: scope.resource.clone(),
        makes_namespace: adopted && !has_namespace,
        namespace,
        name,
        provider: Provider {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.clone(),
        },
        opt_in,
        all,
        why,
    }
}

/// What would become of an object under a mode of adoption, and why.
fn fate(
    setting: Adoption,
    candidate: &Candidate,
    object: &ObjectFacts,
    counterpart: Option<&ObjectFacts>,
) -> (Fate, String) {
    let nothing = |why: &str| (Fate::Nothing, why.to_owned());
    match candidate {
        Candidate::Bound => return nothing("it has or had a counterpart here"),
        Candidate::OfAnother { contract } => return (Fate::Nothing, format!("it belongs to contract {contract}")),
        Candidate::Undecided => {
            return (
                Fate::Nothing,
                format!(
                    "consumers share names, and the provider does not say whose the object is; the annotation {} would say it",
                    annotations::CLUSTER_NAMESPACE
                ),
            );
        }
        Candidate::Fresh { .. } => {}
    }
    if object.deleting.is_some() {
        return nothing("it is being deleted");
    }
    let takes = setting.takes(candidate);
    let Some(counterpart) = counterpart else {
        let fate = if takes { Fate::Adopt } else { Fate::Nothing };
        return (fate, "it never had a counterpart here".to_owned());
    };
    if counterpart.annotations.get(annotations::ADOPTED) == Some(&object.uid) {
        return nothing("it is adopted already, and is marked next");
    }
    if counterpart.paused {
        return nothing("the object here is paused");
    }
    if counterpart.deleting.is_some() {
        return nothing("the object here is being deleted");
    }
    match differs(object, counterpart) {
        None if takes => (Fate::Link, "it is here already and says the same".to_owned()),
        None => (
            Fate::Conflict,
            "it is here already and says the same, but was not made by the binding".to_owned(),
        ),
        Some(field) => (
            Fate::Conflict,
            format!("it is here already and differs in {field}: make both equal, or delete one of them"),
        ),
    }
}

/// The first field in which two objects differ, in either direction.
fn differs(one: &ObjectFacts, other: &ObjectFacts) -> Option<String> {
    difference(one, other, |_| false).or_else(|| difference(other, one, |_| false))
}

impl Fate {
    fn as_str(self) -> &'static str {
        match self {
            Self::Adopt => "adopt",
            Self::Link => "link",
            Self::Conflict => "conflict",
            Self::Nothing => "-",
        }
    }
}

impl AdoptionItem {
    fn key(namespace: &str, name: &str) -> String {
        match namespace {
            "" => name.to_owned(),
            namespace => format!("{namespace}/{name}"),
        }
    }
}

impl Show for AdoptionItem {
    const HEADINGS: &'static [&'static str] = &[
        "BINDING",
        "RESOURCE",
        "OBJECT",
        "OPT-IN",
        "ALL",
        "NAMESPACE",
        "WHY",
        "PROVIDER",
        "UID",
    ];
    const PLAIN: usize = 7;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        let namespace = match (self.namespace.as_str(), self.makes_namespace) {
            ("", _) => "-",
            (_, true) => "to be made",
            (_, false) => "exists",
        };
        vec![
            self.binding.clone(),
            self.resource.to_string(),
            Self::key(&self.namespace, &self.name),
            self.opt_in.as_str().to_owned(),
            self.all.as_str().to_owned(),
            namespace.to_owned(),
            self.why.clone(),
            Self::key(&self.provider.namespace, &self.provider.name),
            self.provider.uid.clone(),
        ]
    }

    fn reference(&self) -> String {
        format!("{}/{}", self.resource, self.name)
    }
}

#[cfg(test)]
mod tests;
