//! The clusters of one seed: which providers offer what, and which consumers bind it at the start.

use std::fmt;

use serde::{Deserialize, Serialize};

mod offer;

pub use offer::{
    Claim, ClaimedResource, Isolation, Offer, Owner, PLURAL, Retention, Scope, Selection, definition_name, group,
    offer_name, provider_of_group,
};

/// One cluster of a seed. Numbers begin at 1, as users count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cluster {
    /// A cluster that binds APIs.
    Consumer(u8),
    /// A cluster that offers an API.
    Provider(u8),
    /// A second cluster that was started from a backup of the consumer of this number, while the consumer still runs.
    Clone(u8),
}

/// What a consumer binds an API with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BoundBy {
    /// An APIServiceBinding that the user made.
    Binding,
    /// An APIServiceBindingBundle, whose bindings the konnector makes.
    Bundle,
}

/// The field `spec.deletionPolicy` of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// The user said nothing, so copies are kept when the binding is deleted.
    Unset,
    /// The user wants copies deleted with the binding. This is the user's explicit word.
    Delete,
    /// The user wants copies kept when the binding is deleted.
    Orphan,
}

/// How long after a write the controllers of control planes work, while a history is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ControllerPace {
    /// After milliseconds, as in a cluster without load.
    #[default]
    Quick,
    /// After some seconds, as in a busy cluster.
    Slow,
    /// After up to half a minute, as while the controller manager changes its leader.
    Late,
}

/// A provider cluster with its one API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderSetup {
    /// Number of server replicas.
    pub replicas: u8,
    /// What the provider offers.
    pub offer: Offer,
}

/// A use of a provider's API by a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingSetup {
    /// Number of the provider.
    pub provider: u8,
    /// What it is bound with.
    pub by: BoundBy,
    /// What the user wants to happen to copies when the binding is deleted.
    pub policy: DeletionPolicy,
}

/// A consumer cluster with its bindings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerSetup {
    /// Number of konnector replicas.
    pub replicas: u8,
    /// What is bound before the history begins.
    pub bindings: Vec<BindingSetup>,
}

/// All clusters of one seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Providers 1, 2, ….
    pub providers: Vec<ProviderSetup>,
    /// Consumers 1, 2, ….
    pub consumers: Vec<ConsumerSetup>,
    /// The pace of the controllers of all control planes.
    #[serde(default)]
    pub pace: ControllerPace,
    /// How long after the creation of an admission policy the API servers enforce it, in milliseconds.
    #[serde(default)]
    pub policy_delay: u32,
}

// === impl Cluster ===

impl Cluster {
    /// The number of the consumer that the cluster is, or is a clone of.
    pub fn consumer(self) -> Option<u8> {
        match self {
            Self::Consumer(number) | Self::Clone(number) => Some(number),
            Self::Provider(_) => None,
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumer(number) => write!(f, "consumer {number}"),
            Self::Provider(number) => write!(f, "provider {number}"),
            Self::Clone(number) => write!(f, "the clone of consumer {number}"),
        }
    }
}

// === impl BoundBy ===

impl fmt::Display for BoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binding => "binding",
            Self::Bundle => "bundle",
        })
    }
}

// === impl Topology ===

impl Topology {
    /// What a provider offers; `None` if there is no provider of this number.
    pub fn offer(&self, provider: u8) -> Option<&Offer> {
        let index = usize::from(provider.checked_sub(1)?);
        self.providers.get(index).map(|provider| &provider.offer)
    }

    /// Numbers of the providers.
    pub fn provider_numbers(&self) -> impl Iterator<Item = u8> + use<> {
        1..=u8::try_from(self.providers.len()).unwrap_or(u8::MAX)
    }

    /// Numbers of the consumers.
    pub fn consumer_numbers(&self) -> impl Iterator<Item = u8> + use<> {
        1..=u8::try_from(self.consumers.len()).unwrap_or(u8::MAX)
    }

    /// One provider with one API of namespaced objects, and one consumer that has bound it. Scenarios begin with this.
    pub fn pair() -> Self {
        Self {
            providers: vec![ProviderSetup {
                replicas: 1,
                offer: Offer::default(),
            }],
            consumers: vec![ConsumerSetup {
                replicas: 1,
                bindings: vec![BindingSetup {
                    provider: 1,
                    by: BoundBy::Binding,
                    policy: DeletionPolicy::Unset,
                }],
            }],
            pace: ControllerPace::Quick,
            policy_delay: 0,
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, provider) in self.provider_numbers().zip(&self.providers) {
            writeln!(
                f,
                "provider {number} ({} servers) offers {}",
                provider.replicas, provider.offer
            )?;
        }
        for (number, consumer) in self.consumer_numbers().zip(&self.consumers) {
            write!(f, "consumer {number} ({} konnectors) has bound", consumer.replicas)?;
            for (at, binding) in consumer.bindings.iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                write!(f, "{comma} provider {} by a {}", binding.provider, binding.by)?;
                match binding.policy {
                    DeletionPolicy::Unset => {}
                    policy => write!(f, " with deletionPolicy {policy:?}")?,
                }
            }
            writeln!(f)?;
        }
        match self.pace {
            ControllerPace::Quick => {}
            ControllerPace::Slow => writeln!(f, "controllers of control planes work up to 5 s after a write")?,
            ControllerPace::Late => writeln!(f, "controllers of control planes work up to 30 s after a write")?,
        }
        if self.policy_delay > 0 {
            writeln!(
                f,
                "API servers enforce an admission policy {} ms after its creation",
                self.policy_delay
            )?;
        }
        Ok(())
    }
}
