//! What differs between what is wanted and what is installed. Pure: nothing is read or written here.

use std::{collections::BTreeSet, fmt};

use bindery_api::{
    Accepted, Conditions as _, annotations,
    conditions::ConditionStatus,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, GroupResource},
};
use bindery_sdk::{Address, audience};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Secret},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;
use serde_json::Value;

use crate::{
    claims::news,
    errors::Failure,
    kubeconfig::Credential,
    manifests::{Manifests, is_ours},
};

/// What stands on the consumer of that which a bind installs.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    pub(crate) namespace: bool,
    pub(crate) secret: Option<Secret>,
    /// The kubeconfig in the Secret, if it is a good one.
    pub(crate) credential: Option<Credential>,
    pub(crate) cluster_role: Option<ClusterRole>,
    pub(crate) cluster_role_binding: Option<ClusterRoleBinding>,
    pub(crate) binding: Option<APIServiceBinding>,
}

/// A CRD of the consumer that has the name of one to be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstalledApi {
    pub(crate) resource: GroupResource,
    /// The binding that owns it; none if somebody else made it.
    pub(crate) binding: Option<String>,
    /// The binding that the user lets have it, with its objects.
    pub(crate) offered: Option<String>,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) object: Object,
    /// Whether the object exists and is changed.
    pub(crate) exists: bool,
}

/// What is written.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    Namespace(Namespace),
    ClusterRole(ClusterRole),
    ClusterRoleBinding(ClusterRoleBinding),
    Secret(Secret),
    Binding(Box<APIServiceBinding>),
    /// Somebody else's binding, of which only the record of the accepted claims is written.
    Record(Box<APIServiceBinding>),
    Bundle(Box<APIServiceBindingBundle>),
}

/// What stands in the way of a bind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Conflict {
    /// The binding leads to another provider.
    #[error(
        "APIServiceBinding {binding} uses the provider {uses}, not {asked}; \
         choose another name with --name, or end it first with `kubectl bind unbind {binding}`"
    )]
    OtherProvider {
        binding: String,
        uses: String,
        asked: String,
    },
    /// The bundle leads to another provider.
    #[error(
        "APIServiceBindingBundle {bundle} uses the provider {uses}, not {asked}; choose another name, or end it first with \
         `kubectl delete apiservicebindingbundle {bundle}`"
    )]
    OtherProviderOfBundle {
        bundle: String,
        uses: String,
        asked: String,
    },
    /// The bundle is about to go.
    #[error("APIServiceBindingBundle {bundle} is being deleted; run this again when it is gone")]
    UnbindingBundle { bundle: String },
    /// The binding would come back.
    #[error(
        "APIServiceBinding {binding} belongs to APIServiceBindingBundle {bundle}, which would bind {export} again at once; \
         have its spec.selector leave the export out, which ends the binding, or end all its bindings with \
         `kubectl delete apiservicebindingbundle {bundle}`"
    )]
    OfBundle {
        binding: String,
        bundle: String,
        export: String,
    },
    /// The binding is about to go.
    #[error(
        "APIServiceBinding {binding} is being unbound; bind again when it is gone (`kubectl bind status {binding}`)"
    )]
    Unbinding { binding: String },
    /// Something that this command did not make has the name of what it would make.
    #[error(
        "{kind} {name} exists and was not made by kubectl bind; \
         choose another name of the binding with --name, or rename or remove it"
    )]
    ForeignObject { kind: &'static str, name: String },
    /// Somebody else's binding accepts what is to be rejected.
    #[error(
        "APIServiceBinding {binding} was not made by kubectl bind and does not reject the claim on {claim}; \
         reject it there with `kubectl bind claims {binding} --reject {claim}`"
    )]
    ForeignBinding { binding: String, claim: GroupResource },
    /// Somebody else's role is to give a right, or to lose one.
    #[error(
        "ClusterRole {name} was not made by kubectl bind and is left as it is; have whoever made it give the konnector \
         rights on what is accepted, and no others"
    )]
    ForeignRole { name: String },
    /// A bundle says what its bindings accept.
    #[error(
        "APIServiceBinding {binding} belongs to APIServiceBindingBundle {bundle}, which says what its bindings accept; add the \
         claim on {claim} to spec.acceptedClaims of the bundle, and let the konnector have rights on it: \
         kubectl bind deploy --bundle-resource {claim}"
    )]
    ClaimOfBundle {
        binding: String,
        bundle: String,
        claim: GroupResource,
    },
    /// The binding is to another export.
    #[error(
        "APIServiceBinding {binding} is to the export {export}; choose another name with --name, or end it first with \
         `kubectl bind unbind {binding}`"
    )]
    OtherExport { binding: String, export: String },
    /// The role of a binding has the name of one that is to give rights for bundles.
    #[error("ClusterRole {name} is that of a binding; end the binding, and bind it under another name with --name")]
    RoleOfBinding { name: &'static str },
    /// Without the konnector nobody would end them.
    #[error("{what} must be ended first, which nobody but the konnector can do:\n  {first}")]
    StillBound { what: String, first: String },
    /// A set that is not the konnector's has its name.
    #[error(
        "set {set} of this cluster is not that of the konnector: {why}; look at it with `kubectl get resourceset {version} -o          yaml`, and apply it under another name"
    )]
    ForeignSet { set: String, version: String, why: String },
    /// The API is on this cluster already.
    #[error("CustomResourceDefinition {resource} exists on this cluster and belongs to {owner}; {mend}")]
    ForeignApi {
        resource: GroupResource,
        owner: String,
        mend: String,
    },
}

impl Object {
    fn kind(&self) -> &'static str {
        match self {
            Self::Namespace(_) => "Namespace",
            Self::ClusterRole(_) => "ClusterRole",
            Self::ClusterRoleBinding(_) => "ClusterRoleBinding",
            Self::Secret(_) => "Secret",
            Self::Binding(_) | Self::Record(_) => "APIServiceBinding",
            Self::Bundle(_) => "APIServiceBindingBundle",
        }
    }

    /// As it is written.
    pub(crate) fn manifest(&self) -> Result<Value, Failure> {
        let value = match self {
            Self::Namespace(object) => serde_json::to_value(object),
            Self::ClusterRole(object) => serde_json::to_value(object),
            Self::ClusterRoleBinding(object) => serde_json::to_value(object),
            Self::Secret(object) => serde_json::to_value(object),
            Self::Binding(object) | Self::Record(object) => serde_json::to_value(object),
            Self::Bundle(object) => serde_json::to_value(object),
        };
        value.map_err(|error| Failure::Format(error.to_string()))
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Namespace(object) => &object.metadata,
            Self::ClusterRole(object) => &object.metadata,
            Self::ClusterRoleBinding(object) => &object.metadata,
            Self::Secret(object) => &object.metadata,
            Self::Binding(object) | Self::Record(object) => &object.metadata,
            Self::Bundle(object) => &object.metadata,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.meta().name.as_deref().unwrap_or_default();
        match &self.meta().namespace {
            Some(namespace) => write!(f, "{} {namespace}/{name}", self.kind()),
            None => write!(f, "{} {name}", self.kind()),
        }
    }
}

/// Whether the binding of this name, if there is one, is to stay.
pub(crate) fn is_to_stay(seen: &Installed) -> Result<(), Conflict> {
    match &seen.binding {
        Some(binding) if binding.metadata.deletion_timestamp.is_some() => Err(Conflict::Unbinding {
            binding: binding.name_any(),
        }),
        _ => Ok(()),
    }
}

/// Whether the binding of this name, if there is one, is to the export of this name.
pub(crate) fn same_export(seen: &Installed) -> Result<(), Conflict> {
    match &seen.binding {
        Some(binding) if binding.export_name() != binding.name_any() => Err(Conflict::OtherExport {
            binding: binding.name_any(),
            export: binding.export_name().to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Before anybody is asked: whether the binding of this name can be one with the backend at this address.
pub(crate) fn before_asking(seen: &Installed, asked: &Address) -> Result<(), Conflict> {
    is_to_stay(seen)?;
    same_export(seen)?;
    let Some(binding) = &seen.binding else {
        return Ok(());
    };
    let uses = seen
        .credential
        .as_ref()
        .and_then(|credential| credential.backend.as_ref());
    let uses = uses.and_then(|backend| audience(&backend.address).ok());
    match uses {
        Some(uses) if uses != asked.to_string() => Err(Conflict::OtherProvider {
            binding: binding.name_any(),
            uses,
            asked: asked.to_string(),
        }),
        _ => Ok(()),
    }
}

/// After the provider has answered: whether its contract is the one that the binding uses.
pub(crate) fn same_contract(seen: &Installed, got: &Credential, contract_uid: &str) -> Result<(), Conflict> {
    let Some(binding) = &seen.binding else {
        return Ok(());
    };
    let pinned = binding
        .status
        .as_ref()
        .and_then(|status| status.contract_uid.as_deref());
    if pinned.is_some() && pinned == Some(contract_uid) {
        return Ok(());
    }
    // A contract made anew at the same place is the same provider: the konnector asks for consent before it goes on.
    match &seen.credential {
        Some(used) if used.server != got.server || used.namespace != got.namespace => Err(Conflict::OtherProvider {
            binding: binding.name_any(),
            uses: format!("{} (contract {})", used.server, used.namespace),
            asked: format!("{} (contract {})", got.server, got.namespace),
        }),
        _ => Ok(()),
    }
}

/// Whether APIs that are to be bound are on this cluster already, other than by this binding.
pub(crate) fn foreign_apis(seen: &[InstalledApi], binding: &str) -> Result<(), Conflict> {
    let is_free = |api: &InstalledApi| match &api.binding {
        Some(owner) => owner == binding,
        None => api.offered.as_deref() == Some(binding),
    };
    let foreign = seen.iter().find(|api| !is_free(api));
    foreign.map_or(Ok(()), |api| {
        Err(Conflict::ForeignApi {
            resource: api.resource.clone(),
            owner: match &api.binding {
                Some(other) => format!("APIServiceBinding {other}"),
                None => "somebody else".to_owned(),
            },
            mend: match &api.binding {
                Some(_) => "an API can be bound once, so end that binding first".to_owned(),
                None => format!(
                    "objects of it would get into the provider's hands: bind on another cluster, or, if that is what you want, \
                     let the binding have it with `kubectl annotate crd {} {}={binding}`",
                    api.resource,
                    annotations::ADOPT_BY
                ),
            },
        })
    })
}

/// The writes that are missing, in the order in which they are made: the binding last, for the konnector acts on it.
pub(crate) fn plan(wanted: &Manifests, seen: &Installed, now: Timestamp) -> Result<Vec<Op>, Conflict> {
    let mut ops = Vec::new();
    if !seen.namespace {
        ops.push(create(Object::Namespace(wanted.namespace.clone())));
    }
    let role = Object::ClusterRole(wanted.cluster_role.clone());
    let same_role = |role: &ClusterRole| same_rules(role, &wanted.cluster_role);
    ops.extend(marked(role, seen.cluster_role.as_ref(), same_role)?);
    let grant = Object::ClusterRoleBinding(wanted.cluster_role_binding.clone());
    ops.extend(marked(grant, seen.cluster_role_binding.as_ref(), |grant| {
        same_grant(grant, wanted)
    })?);
    let secret = Object::Secret(wanted.secret.clone());
    ops.extend(marked(secret, seen.secret.as_ref(), |_| {
        keeps_credential(wanted, seen, now)
    })?);
    ops.extend(plan_binding(wanted, seen)?);
    Ok(ops)
}

/// Whether two roles give the same rights; rules have no order.
fn same_rules(one: &ClusterRole, other: &ClusterRole) -> bool {
    let sorted = |role: &ClusterRole| {
        let rules = role.rules.iter().flatten();
        let mut rules: Vec<_> = rules.map(|rule| format!("{rule:?}")).collect();
        rules.sort_unstable();
        rules
    };
    sorted(one) == sorted(other)
}

/// A write unless the object is as it should be. One that is not ours is kept as it is, or stands in the way.
fn marked<K: kube::Resource>(
    wanted: Object,
    seen: Option<&K>,
    is_same: impl FnOnce(&K) -> bool,
) -> Result<Option<Op>, Conflict> {
    match seen {
        None => Ok(Some(create(wanted))),
        Some(seen) if is_same(seen) => Ok(None),
        Some(seen) if is_ours(seen.meta()) => Ok(Some(Op {
            object: wanted,
            exists: true,
        })),
        Some(seen) => Err(Conflict::ForeignObject {
            kind: wanted.kind(),
            name: seen.name_any(),
        }),
    }
}

fn create(object: Object) -> Op {
    Op { object, exists: false }
}

fn same_grant(seen: &ClusterRoleBinding, wanted: &Manifests) -> bool {
    let subjects = |grant: &ClusterRoleBinding| -> Vec<_> {
        let subjects = grant.subjects.iter().flatten();
        subjects
            .map(|subject| (subject.kind.clone(), subject.namespace.clone(), subject.name.clone()))
            .collect()
    };
    seen.role_ref.name == wanted.cluster_role_binding.role_ref.name
        && seen.role_ref.kind == wanted.cluster_role_binding.role_ref.kind
        && subjects(seen) == subjects(&wanted.cluster_role_binding)
}

/// Whether the installed kubeconfig is as good as the new one: it leads to the same place, has not expired, and nobody
/// complains of it.
fn keeps_credential(wanted: &Manifests, seen: &Installed, now: Timestamp) -> bool {
    let Some(installed) = &seen.credential else {
        return false;
    };
    let complaint = seen.binding.as_ref().is_some_and(|binding| {
        ["SecretValid", "Connected", "Heartbeating"].iter().any(|type_| {
            binding
                .condition(type_)
                .is_some_and(|condition| condition.status == ConditionStatus::False)
        })
    });
    let documents = wanted.secret.data.iter().flatten();
    let offered = documents.map(|(_, document)| Credential::parse(&document.0)).next();
    // Without a new one, as before a bind, the question is only whether the old one may stay.
    let same = offered.is_none_or(|offered| offered.is_ok_and(|offered| offered.differs_by_token_alone(installed)));
    same && installed.is_valid_at(now) && !complaint
}

/// A binding that somebody else made is used as it is, if it rejects what is to be rejected. It gets a record of the claims
/// that whoever binds accepts, where that is more than it says.
fn plan_binding(wanted: &Manifests, seen: &Installed) -> Result<Option<Op>, Conflict> {
    let object = Object::Binding(Box::new(wanted.binding.clone()));
    let Some(seen) = &seen.binding else {
        return Ok(Some(create(object)));
    };
    let rejected = |binding: &APIServiceBinding| -> BTreeSet<GroupResource> {
        binding.spec.rejected_permission_claims.iter().cloned().collect()
    };
    let (seen_rejects, wanted_rejects) = (rejected(seen), rejected(&wanted.binding));
    let same = holds(seen.labels(), wanted.binding.labels())
        && holds(seen.annotations(), wanted.binding.annotations())
        && seen_rejects == wanted_rejects;
    if is_ours(&seen.metadata) {
        return Ok((!same).then_some(Op { object, exists: true }));
    }
    match wanted_rejects.difference(&seen_rejects).next() {
        None => Ok(recorded(&wanted.binding, seen)),
        Some(claim) => Err(Conflict::ForeignBinding {
            binding: seen.name_any(),
            claim: claim.clone(),
        }),
    }
}

fn recorded(wanted: &APIServiceBinding, seen: &APIServiceBinding) -> Option<Op> {
    let (Accepted::Claims(claims), known) = (Accepted::of(wanted), Accepted::of(seen)) else {
        return None;
    };
    let is_more = claims.iter().any(|claim| news(&known, claim).is_some());
    let record = wanted.annotations().get(annotations::ACCEPTED_CLAIMS)?;
    let mut binding = seen.clone();
    let annotations = binding.annotations_mut();
    annotations.insert(annotations::ACCEPTED_CLAIMS.to_owned(), record.clone());
    is_more.then(|| Op {
        object: Object::Record(Box::new(binding)),
        exists: true,
    })
}

fn holds(
    seen: &std::collections::BTreeMap<String, String>,
    wanted: &std::collections::BTreeMap<String, String>,
) -> bool {
    wanted.iter().all(|(key, value)| seen.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
