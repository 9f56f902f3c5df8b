//! The choices a provider, a template or a binding makes, as closed sets.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How cluster-scoped objects of many consumers share one provider.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// The object's name gets the contract's name in front.
    #[default]
    Prefixed,
    /// The object lives in a namespace of the contract; its CRD is namespaced on the provider.
    Namespaced,
    /// Names are those of the consumer: consumers share one space of names.
    None,
}

/// Whether the konnector watches a resource on the provider cluster-wide or per namespace.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InformerScope {
    /// One watch over all namespaces.
    Cluster,
    /// One watch per provider namespace of the contract.
    #[default]
    Namespaced,
}

/// The scope of a resource as the consumer sees it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Objects have no namespace.
    Cluster,
    /// Objects live in namespaces.
    #[default]
    Namespaced,
}

/// Whether an existing export follows changes of the provider's CRD. Either way, condition SchemaInSync of the export says
/// where the two differ.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchemaUpdatePolicy {
    /// The schema stays as it was at the time of the bind.
    #[default]
    Never,
    /// Changes that leave every object valid and whole are carried through to the consumer; others are refused.
    Always,
}

/// How far a request has come.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not decided yet.
    #[default]
    Pending,
    /// Refused for good; a new request is needed.
    Failed,
    /// Everything that was asked for exists.
    Succeeded,
}

/// Who wins when two consumers write one object under isolation None.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConflictPolicy {
    /// The first writer owns the object; later ones see a conflict.
    #[default]
    FirstWins,
    /// Each write replaces the one before it.
    LastWins,
}

/// What a bundle does with a binding whose export the provider has removed, while objects of it are left on the consumer.
/// A binding without objects goes at once.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RemovedExports {
    /// The binding stays until the objects are gone, or until the user consents.
    #[default]
    Keep,
    /// The binding goes, and with it the objects.
    Unbind,
}

/// What happens to the provider's objects when a binding or its CRD is deleted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeletionPolicy {
    /// They are deleted too.
    Delete,
    /// They stay and are marked released.
    Orphan,
}

/// Another implementation whose konnector is to be served.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compatibility {
    /// kube-bind's konnector, which reads its kubeconfig from a Secret of the contract namespace.
    KubeBind,
}

/// The side that owns a claimed object or a namespace: the values of label `kube-bind.io/owner`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// The provider made it.
    Provider,
    /// The consumer made it.
    Consumer,
}

macro_rules! names {
    ($type:ty { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $type {
            /// The value as it stands in the API.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The value of that name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

names!(Isolation { Prefixed => "Prefixed", Namespaced => "Namespaced", None => "None" });
names!(InformerScope { Cluster => "Cluster", Namespaced => "Namespaced" });
names!(Scope { Cluster => "Cluster", Namespaced => "Namespaced" });
names!(SchemaUpdatePolicy { Never => "Never", Always => "Always" });
names!(Phase { Pending => "Pending", Failed => "Failed", Succeeded => "Succeeded" });
names!(ConflictPolicy { FirstWins => "FirstWins", LastWins => "LastWins" });
names!(DeletionPolicy { Delete => "Delete", Orphan => "Orphan" });
names!(Compatibility { KubeBind => "KubeBind" });
names!(Owner { Provider => "provider", Consumer => "consumer" });
