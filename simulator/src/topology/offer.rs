//! What a provider offers: an API with its scope, its isolation and its permission claims.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The scope of an API as the consumer sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Objects live in namespaces.
    #[default]
    Namespaced,
    /// Objects have no namespace.
    Cluster,
}

/// Where copies of cluster-scoped objects are placed on the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Isolation {
    /// The contract's name is put in front of the name.
    #[default]
    Prefixed,
    /// The copy is in the contract namespace.
    Namespaced,
    /// The copy has the name of its source, and consumers share names.
    None,
}

/// A resource that a provider claims beside its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClaimedResource {
    /// Secrets.
    Secrets,
    /// ConfigMaps.
    ConfigMaps,
}

/// Which objects a permission claim selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Selection {
    /// Objects named `named`.
    Named,
    /// Objects with label `claimed=true`.
    Labelled,
    /// Objects that a bound object refers to.
    Referenced,
}

/// The side that makes claimed objects in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// Users of the consumer make them; their copies are on the provider.
    Consumer,
    /// The provider's operator makes them; their copies are on the consumer.
    Provider,
}

/// One permission claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// What is claimed.
    pub resource: ClaimedResource,
    /// Which objects of the resource are claimed.
    pub selection: Selection,
    /// Who makes the claimed objects.
    pub owner: Owner,
}

/// An API that a provider offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Offer {
    /// Scope of the API on the consumer.
    pub scope: Scope,
    /// Isolation of cluster-scoped objects.
    pub isolation: Isolation,
    /// What the provider claims beside the API.
    pub claims: Vec<Claim>,
    /// How long copies of deleted objects are retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// How long an offer retains the copies of deleted objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Retention {
    /// For seconds, so that copies end in a history.
    Short,
    /// For longer than a history lasts.
    Long,
}

/// The plural name of every API that a provider offers.
pub const PLURAL: &str = "widgets";

/// The API group of the provider of this number. Each provider has a group of its own, so that a consumer can bind both.
pub fn group(provider: u8) -> String {
    format!("provider-{provider}.example.dev")
}

/// The number of the provider that offers the API of this group; `None` for any other group.
pub fn provider_of_group(group: &str) -> Option<u8> {
    group
        .strip_prefix("provider-")?
        .strip_suffix(".example.dev")?
        .parse()
        .ok()
}

/// The name of the template, of the export and of the binding of a provider's API.
pub fn offer_name(provider: u8) -> String {
    format!("widgets-{provider}")
}

/// The name of the CRD of a provider's API.
pub fn definition_name(provider: u8) -> String {
    format!("{PLURAL}.{}", group(provider))
}

// === impl ClaimedResource ===

impl ClaimedResource {
    /// The plural name of the resource, as in the path of a request.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Secrets => "secrets",
            Self::ConfigMaps => "configmaps",
        }
    }
}

// === impl Retention ===

impl Retention {
    /// The time as the template says it.
    pub fn duration(self) -> &'static str {
        match self {
            Self::Short => "3s",
            Self::Long => "720h",
        }
    }
}

// === impl Offer ===

impl Offer {
    /// The claim on a resource, if there is one. An offer claims each resource once at most.
    pub fn claim(&self, resource: ClaimedResource) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.resource == resource)
    }

    /// Whether copies live in the CRD's namespaced form on the provider.
    pub fn is_namespaced_on_provider(&self) -> bool {
        self.scope == Scope::Namespaced || self.isolation == Isolation::Namespaced
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Namespaced => f.write_str("a namespaced API")?,
            Scope::Cluster => write!(f, "a cluster-scoped API with isolation {:?}", self.isolation)?,
        }
        for claim in &self.claims {
            let owner = match claim.owner {
                Owner::Consumer => "consumer's",
                Owner::Provider => "provider's",
            };
            let selection = match claim.selection {
                Selection::Named => "by name",
                Selection::Labelled => "by label",
                Selection::Referenced => "by reference",
            };
            write!(f, ", claims the {owner} {} {selection}", claim.resource.plural())?;
        }
        if let Some(retention) = self.retention {
            write!(f, ", retains copies for {}", retention.duration())?;
        }
        Ok(())
    }
}
