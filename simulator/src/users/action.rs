//! What users and operators do in a history.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::topology::{BoundBy, ClaimedResource, Cluster, DeletionPolicy};

/// How Kubernetes treats dependents of a deleted object: field `propagationPolicy` of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Propagation {
    /// The object goes at once, and the garbage collector deletes its dependents afterwards.
    Background,
    /// The object stays until its dependents are gone. Some GitOps tools use this when they prune.
    Foreground,
    /// Dependents stay.
    Orphan,
}

/// The kind of an object in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// An object of the API of the provider of this number.
    Bound(u8),
    /// A Secret or ConfigMap, which the provider of this number may claim.
    Claimed(u8, ClaimedResource),
}

/// An object as users of a consumer know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    /// Its kind.
    pub kind: Kind,
    /// Number of its namespace; ignored if the API is cluster-scoped.
    pub namespace: u8,
    /// Number of its name.
    pub name: u8,
}

/// The use of a provider's API by a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Relation {
    /// Number of the consumer.
    pub consumer: u8,
    /// Number of the provider.
    pub provider: u8,
}

/// What a user consents to, because the product asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Consent {
    /// Copies that lost their source are deleted.
    Orphans,
    /// A bundle may delete a binding whose export the provider removed.
    Unbind,
    /// Another provider or cluster replaces the pinned one.
    ProviderChange,
    /// The binding goes without the provider's word.
    Force,
    /// The binding takes over a CRD that was there before.
    Adopt,
    /// This cluster goes on with the contract.
    Holder,
}

/// The resource that a user deletes to end the use of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ending {
    /// The APIServiceBinding of the API.
    Binding,
    /// The APIServiceBindingBundle.
    Bundle,
    /// The consumer's CRD of the API.
    Definition,
}

/// One thing that a user or an operator does. Actions on objects that do not exist do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Action {
    /// A user creates an object on a consumer or its clone.
    Create {
        /// The cluster.
        on: Cluster,
        /// The object.
        object: ObjectName,
    },
    /// A user changes the content of an object.
    Edit {
        /// The cluster.
        on: Cluster,
        /// The object.
        object: ObjectName,
    },
    /// A user makes a bound object refer to the Secret or ConfigMap of this number, or to none.
    Refer {
        /// The cluster.
        on: Cluster,
        /// The object.
        object: ObjectName,
        /// Number of the name.
        to: Option<u8>,
    },
    /// A user sets or removes the label by which a claim selects.
    Label {
        /// The cluster.
        on: Cluster,
        /// The object.
        object: ObjectName,
        /// Whether the label is set.
        claimed: bool,
    },
    /// A user deletes an object.
    Delete {
        /// The cluster.
        on: Cluster,
        /// The object.
        object: ObjectName,
        /// How.
        propagation: Propagation,
    },
    /// A user removes all finalizers of an object that is being deleted.
    StripFinalizers {
        /// The cluster.
        on: Cluster,
        /// The object.
        object: ObjectName,
    },
    /// A user pauses an object or resumes it.
    Pause {
        /// The cluster.
        on: Cluster,
        /// The object.
        object: ObjectName,
        /// Whether the object is paused.
        paused: bool,
    },
    /// The operator of a provider sets the status of a copy.
    SetStatus {
        /// Whose copy.
        relation: Relation,
        /// The object of which the copy was made.
        object: ObjectName,
    },
    /// The operator adds a field to the spec of a copy, or changes it there.
    EditCopy {
        /// Whose copy.
        relation: Relation,
        /// The object of which the copy was made.
        object: ObjectName,
        /// Whether a field of the consumer is changed, which the konnector writes back.
        overwrite: bool,
    },
    /// The operator deletes a copy.
    DeleteCopy {
        /// Whose copy.
        relation: Relation,
        /// The object of which the copy was made.
        object: ObjectName,
    },
    /// The operator creates, changes or deletes an object that is claimed for the consumer.
    Provide {
        /// For whom.
        relation: Relation,
        /// The object.
        object: ObjectName,
        /// Whether it is deleted.
        delete: bool,
    },
    /// The operator puts an object of their own, which nothing claims, into the provider namespace of a consumer's namespace.
    PutBeside {
        /// For whom.
        relation: Relation,
        /// Number of the consumer's namespace.
        namespace: u8,
    },
    /// A user creates a namespace.
    CreateNamespace {
        /// The cluster.
        on: Cluster,
        /// Number of the namespace.
        namespace: u8,
    },
    /// A user deletes a namespace.
    DeleteNamespace {
        /// The cluster.
        on: Cluster,
        /// Number of the namespace.
        namespace: u8,
    },
    /// A user removes the finalizer of a namespace that terminates, so that it goes although objects are left.
    ForceNamespace {
        /// The cluster.
        on: Cluster,
        /// Number of the namespace.
        namespace: u8,
    },
    /// The owner of a contract unbinds its export at the provider, by a call.
    Unbind {
        /// What is unbound.
        relation: Relation,
        /// Whether copies on the provider are no hindrance.
        force: bool,
    },
    /// A user deletes a binding, a bundle or a CRD.
    End {
        /// What is ended.
        relation: Relation,
        /// The object that is deleted.
        what: Ending,
        /// How.
        propagation: Propagation,
    },
    /// A GitOps tool deletes the binding with its Secret, in the foreground.
    Prune {
        /// What is pruned.
        relation: Relation,
    },
    /// A user binds an API, anew or for the first time.
    Bind {
        /// What is bound.
        relation: Relation,
        /// By what.
        by: BoundBy,
        /// What is to happen to copies at the end.
        policy: DeletionPolicy,
    },
    /// A user pauses a binding or resumes it.
    PauseBinding {
        /// Which binding.
        relation: Relation,
        /// Whether it is paused.
        paused: bool,
    },
    /// A user restores a deleted object from its retained copy, or discards the copy.
    EndRetention {
        /// Whose object.
        relation: Relation,
        /// The object.
        object: ObjectName,
        /// Whether the copy is discarded.
        discard: bool,
    },
    /// A user consents to what a condition of the binding asks.
    Consent {
        /// Which binding.
        relation: Relation,
        /// To what.
        to: Consent,
    },
}

// === impl Action ===

impl Action {
    /// The names of all kinds of actions, for statistics.
    pub const KINDS: [&str; 30] = [
        "create",
        "edit",
        "refer",
        "label",
        "delete",
        "strip finalizers",
        "pause object",
        "set status",
        "edit copy",
        "delete copy",
        "provide claimed",
        "withdraw provided",
        "put beside",
        "create namespace",
        "delete namespace",
        "force namespace",
        "unbind by call",
        "delete binding",
        "delete bundle",
        "delete definition",
        "prune",
        "bind",
        "pause binding",
        "consent",
        "restore retained",
        "discard retained",
        "delete in background",
        "delete in foreground",
        "delete and orphan",
        "act on clone",
    ];

    /// The kinds of an action: names among [`Self::KINDS`].
    pub fn kinds(&self) -> Vec<&'static str> {
        let mut kinds = vec![self.kind()];
        if let Self::Delete { propagation, .. } | Self::End { propagation, .. } = self {
            kinds.push(match propagation {
                Propagation::Background => "delete in background",
                Propagation::Foreground => "delete in foreground",
                Propagation::Orphan => "delete and orphan",
            });
        }
        if self.on().is_some_and(|on| matches!(on, Cluster::Clone(_))) {
            kinds.push("act on clone");
        }
        kinds
    }

    /// The main kind of an action.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Edit { .. } => "edit",
            Self::Refer { .. } => "refer",
            Self::Label { .. } => "label",
            Self::Delete { .. } => "delete",
            Self::StripFinalizers { .. } => "strip finalizers",
            Self::Pause { .. } => "pause object",
            Self::SetStatus { .. } => "set status",
            Self::EditCopy { .. } => "edit copy",
            Self::DeleteCopy { .. } => "delete copy",
            Self::Provide { delete: false, .. } => "provide claimed",
            Self::Provide { delete: true, .. } => "withdraw provided",
            Self::PutBeside { .. } => "put beside",
            Self::CreateNamespace { .. } => "create namespace",
            Self::DeleteNamespace { .. } => "delete namespace",
            Self::ForceNamespace { .. } => "force namespace",
            Self::Unbind { .. } => "unbind by call",
            Self::End { what, .. } => match what {
                Ending::Binding => "delete binding",
                Ending::Bundle => "delete bundle",
                Ending::Definition => "delete definition",
            },
            Self::Prune { .. } => "prune",
            Self::Bind { .. } => "bind",
            Self::PauseBinding { .. } => "pause binding",
            Self::EndRetention { discard, .. } => {
                if *discard {
                    "discard retained"
                } else {
                    "restore retained"
                }
            }
            Self::Consent { .. } => "consent",
        }
    }

    /// The same action by a user of another cluster.
    #[must_use]
    pub fn moved_to(mut self, cluster: Cluster) -> Self {
        if let Self::Create { on, .. }
        | Self::Edit { on, .. }
        | Self::Refer { on, .. }
        | Self::Label { on, .. }
        | Self::Delete { on, .. }
        | Self::StripFinalizers { on, .. }
        | Self::Pause { on, .. }
        | Self::CreateNamespace { on, .. }
        | Self::DeleteNamespace { on, .. }
        | Self::ForceNamespace { on, .. } = &mut self
        {
            *on = cluster;
        }
        self
    }

    /// The cluster of the user, where an action names one.
    pub fn on(&self) -> Option<Cluster> {
        match self {
            Self::Create { on, .. }
            | Self::Edit { on, .. }
            | Self::Refer { on, .. }
            | Self::Label { on, .. }
            | Self::Delete { on, .. }
            | Self::StripFinalizers { on, .. }
            | Self::Pause { on, .. }
            | Self::CreateNamespace { on, .. }
            | Self::DeleteNamespace { on, .. }
            | Self::ForceNamespace { on, .. } => Some(*on),
            _ => None,
        }
    }
}

// === impl ObjectName ===

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Bound(provider) => format!("object of provider {provider}'s API"),
            Kind::Claimed(_, ClaimedResource::Secrets) => "Secret".to_owned(),
            Kind::Claimed(_, ClaimedResource::ConfigMaps) => "ConfigMap".to_owned(),
        };
        write!(
            f,
            "{kind} {}/{}",
            namespace_name(self.namespace),
            object_name(self.name)
        )
    }
}

/// The name of the consumer's namespace of this number.
pub fn namespace_name(number: u8) -> String {
    format!("team-{number}")
}

/// The name of the object of this number. Object 0 is the one that claims select by name.
pub fn object_name(number: u8) -> String {
    match number {
        0 => "named".to_owned(),
        number => format!("object-{number}"),
    }
}

// === impl Relation ===

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "consumer {} at provider {}", self.consumer, self.provider)
    }
}

// === impl Ending ===

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binding => "APIServiceBinding",
            Self::Bundle => "APIServiceBindingBundle",
            Self::Definition => "CRD",
        })
    }
}

// === impl Action ===

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { on, object } => write!(f, "a user of {on} creates the {object}"),
            Self::Edit { on, object } => write!(f, "a user of {on} changes the {object}"),
            Self::Refer { on, object, to } => match to {
                Some(to) => write!(f, "a user of {on} makes the {object} refer to {}", object_name(*to)),
                None => write!(f, "a user of {on} removes the references of the {object}"),
            },
            Self::Label { on, object, claimed } => {
                let verb = if *claimed { "sets" } else { "removes" };
                write!(f, "a user of {on} {verb} the label claimed=true of the {object}")
            }
            Self::Delete {
                on,
                object,
                propagation,
            } => write!(f, "a user of {on} deletes the {object} ({propagation:?})"),
            Self::StripFinalizers { on, object } => {
                write!(
                    f,
                    "a user of {on} removes the finalizers of the {object}, if it is being deleted"
                )
            }
            Self::Pause { on, object, paused } => {
                let verb = if *paused { "pauses" } else { "resumes" };
                write!(f, "a user of {on} {verb} the {object}")
            }
            Self::SetStatus { relation, object } => {
                write!(
                    f,
                    "the operator sets the status of the copy of the {object} of {relation}"
                )
            }
            Self::EditCopy {
                relation,
                object,
                overwrite,
            } => {
                let what = if *overwrite {
                    "overwrites the spec"
                } else {
                    "adds a field to the spec"
                };
                write!(f, "the operator {what} of the copy of the {object} of {relation}")
            }
            Self::EndRetention { relation, object, .. } => {
                write!(f, "a user orders to {} the {object} of {relation}", self.kind())
            }
            Self::DeleteCopy { relation, object } => {
                write!(f, "the operator deletes the copy of the {object} of {relation}")
            }
            Self::Provide {
                relation,
                object,
                delete,
            } => {
                let verb = if *delete { "deletes" } else { "writes" };
                write!(f, "the operator {verb} the {object} for {relation}")
            }
            Self::PutBeside { relation, namespace } => write!(
                f,
                "the operator puts an object of their own beside the copies of {} of {relation}",
                namespace_name(*namespace)
            ),
            Self::CreateNamespace { on, namespace } => {
                write!(f, "a user of {on} creates namespace {}", namespace_name(*namespace))
            }
            Self::DeleteNamespace { on, namespace } => {
                write!(f, "a user of {on} deletes namespace {}", namespace_name(*namespace))
            }
            Self::ForceNamespace { on, namespace } => write!(
                f,
                "a user of {on} removes the finalizer of namespace {}, if it terminates",
                namespace_name(*namespace)
            ),
            Self::Unbind { relation, force } => {
                let force = if *force { " with force" } else { "" };
                write!(f, "the owner unbinds {relation} by a call{force}")
            }
            Self::End {
                relation,
                what,
                propagation,
            } => write!(f, "a user deletes the {what} of {relation} ({propagation:?})"),
            Self::Prune { relation } => write!(f, "a GitOps tool prunes the binding of {relation} with its Secret"),
            Self::Bind { relation, by, policy } => {
                write!(f, "a user binds {relation} by a {by}")?;
                match policy {
                    DeletionPolicy::Unset => Ok(()),
                    policy => write!(f, " with deletionPolicy {policy:?}"),
                }
            }
            Self::PauseBinding { relation, paused } => {
                let verb = if *paused { "pauses" } else { "resumes" };
                write!(f, "a user {verb} the binding of {relation}")
            }
            Self::Consent { relation, to } => write!(f, "a user consents for {relation}: {to:?}"),
        }
    }
}
