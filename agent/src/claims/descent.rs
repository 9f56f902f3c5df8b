//! Decides what of a provider's claimed objects comes down to the consumer: into which namespaces, Secrets of which types, and with
//! which labels.
//!
//! A provider chooses names, namespaces, types and labels of its own objects, and tools of the consumer believe an object by these: a
//! GitOps tool takes its repositories from labelled Secrets, Helm its releases from the type and the label `owner`, a replicator copies
//! where an annotation says so. So all of them are allow-lists.

use std::collections::BTreeSet;

use bindery_api::{
    claims::{Referenced, TOKEN_SECRET_TYPES},
    v1alpha2::{GroupResource, PermissionClaim},
};

/// Types of Secrets that come down although the consumer does not list them. Only a workload that names such a Secret reads it.
const SECRET_TYPES: [&str; 6] = [
    "Opaque",
    "kubernetes.io/tls",
    "kubernetes.io/basic-auth",
    "kubernetes.io/ssh-auth",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/dockercfg",
];
/// Labels that come down of every object: they describe it to people. `app.kubernetes.io/managed-by` and `app.kubernetes.io/instance` are
/// not among them, because Helm and Argo CD take an object with these for their own.
const LABELS: [&str; 4] = [
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
];

/// What one binding allows to come down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The namespaces that the consumer listed. Without a list, objects come down into namespaces that have a bound object.
    namespaces: Option<BTreeSet<String>>,
    /// Types of Secrets that the consumer listed beside [`SECRET_TYPES`].
    secret_types: BTreeSet<String>,
    /// The resources that the binding binds.
    bound: Vec<GroupResource>,
}

/// Whether a provider's object may come down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Descent {
    #[default]
    Allowed,
    /// Not all bound objects are known yet: nothing is created, and a copy is kept as it is.
    Unknown,
    Refused(Refusal),
}

/// Why a provider's object may not come down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The consumer listed namespaces, and not the object's.
    NotListed,
    /// The consumer listed no namespaces, and the object's namespace has no bound object.
    NoBoundObject,
    /// The Secret has a type that the consumer did not allow.
    SecretType,
}

// === impl Bounds ===

impl Bounds {
    /// The bounds of a binding that lists these namespaces, if it lists any, and these `spec.claimSecretTypes`, and binds these resources.
    pub(crate) fn new(namespaces: Option<&BTreeSet<String>>, secret_types: &[String], bound: &[GroupResource]) -> Self {
        Self {
            namespaces: namespaces.cloned(),
            secret_types: secret_types.iter().cloned().collect(),
            bound: bound.to_vec(),
        }
    }

    /// Whether the claims concern the objects of a namespace, the consumer's and the provider's.
    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        let listed = self.namespaces.as_ref();
        listed.is_none_or(|listed| listed.contains(namespace))
    }

    /// Decides about an object by its namespace on the consumer and, of a Secret, its type. `is_secret` tells Secrets from other objects
    /// with a field `type`; `has_bound` tells whether the namespace has an object of one of the bound resources.
    pub(crate) fn decide(
        &self,
        namespace: &str,
        secret_type: Option<&str>,
        is_secret: bool,
        has_bound: impl FnOnce(&[GroupResource]) -> Referenced,
    ) -> Descent {
        if is_secret && !self.allows_type(secret_type.unwrap_or(SECRET_TYPES[0])) {
            return Descent::Refused(Refusal::SecretType);
        }
        if self.namespaces.is_some() {
            return if self.has_namespace(namespace) {
                Descent::Allowed
            } else {
                Descent::Refused(Refusal::NotListed)
            };
        }
        match has_bound(&self.bound) {
            Referenced::Yes => Descent::Allowed,
            Referenced::No => Descent::Refused(Refusal::NoBoundObject),
            Referenced::Unknown => Descent::Unknown,
        }
    }

    fn allows_type(&self, secret_type: &str) -> bool {
        !TOKEN_SECRET_TYPES.contains(&secret_type)
            && (SECRET_TYPES.contains(&secret_type) || self.secret_types.contains(secret_type))
    }
}

// === impl Descent ===

impl Descent {
    /// The decision for an object that claims of several bindings select: one that allows it is enough.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Allowed, _) | (_, Self::Allowed) => Self::Allowed,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (first, _) => first,
        }
    }
}

/// Whether a label of a provider's object comes down. `selecting` are the [`selecting_labels`] of the claims. Annotations never do.
pub(crate) fn is_label_carried(key: &str, selecting: &BTreeSet<String>) -> bool {
    LABELS.contains(&key) || selecting.contains(key)
}

/// The keys of labels that an object must have to be selected by one of these claims: the consent showed them.
pub(crate) fn selecting_labels<'a>(claims: impl IntoIterator<Item = &'a PermissionClaim>) -> BTreeSet<String> {
    let selectors = claims
        .into_iter()
        .filter_map(|claim| claim.selector.label_selector.as_ref());
    let mut keys = BTreeSet::new();
    for selector in selectors {
        keys.extend(selector.match_labels.iter().flatten().map(|(key, _)| key.clone()));
        let required = selector.match_expressions.iter().flatten();
        let required = required.filter(|one| matches!(one.operator.as_str(), "In" | "Exists"));
        keys.extend(required.map(|one| one.key.clone()));
    }
    keys
}

#[cfg(test)]
#[path = "tests/descent.rs"]
mod tests;
