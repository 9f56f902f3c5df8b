//! The two kinds of objects that own a provider's credential: bindings and bundles.

use std::fmt;

use bindery_api::{
    Condition, Conditions as _,
    conditions::{CONNECTED, ConditionStatus, HEARTBEATING, PROVIDER_REACHABLE, READY, SECRET_VALID},
    meta,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, ClusterSecretKeyRef},
};
use bindery_sdk::manifests::ManifestOwner;
use kube::{Resource, core::ObjectMeta};

/// The object that names the Secret with a provider's kubeconfig: an APIServiceBinding, which binds one export, or an
/// APIServiceBindingBundle, which binds all exports that its kubeconfig reaches.
#[derive(Clone, Debug)]
pub(crate) enum CredentialOwner {
    Binding(Box<APIServiceBinding>),
    Bundle(Box<APIServiceBindingBundle>),
}

/// What differs between the two kinds of [`CredentialOwner`].
#[derive(Debug)]
pub(crate) struct OwnerKind {
    /// The kind in manifests.
    pub(crate) kind: &'static str,
    /// Types of the conditions that are False while the credential does not work.
    credential: &'static [&'static str],
    /// The flag that gives an owner its name.
    pub(crate) name_flag: &'static str,
    /// The command that ends an owner, without its name.
    pub(crate) end_command: &'static str,
}

const BINDING: OwnerKind = OwnerKind {
    kind: "APIServiceBinding",
    credential: &[SECRET_VALID, CONNECTED, HEARTBEATING],
    name_flag: "--name",
    end_command: "kubectl bind unbind",
};
const BUNDLE: OwnerKind = OwnerKind {
    kind: "APIServiceBindingBundle",
    credential: &[SECRET_VALID, PROVIDER_REACHABLE],
    name_flag: "--bundle",
    end_command: "kubectl delete apiservicebindingbundle",
};

/// Applies one expression to whichever object an owner holds.
macro_rules! either {
    ($owner:expr, $object:ident => $value:expr) => {
        match $owner {
            CredentialOwner::Binding($object) => $value,
            CredentialOwner::Bundle($object) => $value,
        }
    };
}
pub(super) use either;

impl From<ManifestOwner> for CredentialOwner {
    fn from(owner: ManifestOwner) -> Self {
        match owner {
            ManifestOwner::Binding(binding) => Self::Binding(binding),
            ManifestOwner::Bundle(bundle) => Self::Bundle(bundle),
        }
    }
}

impl From<APIServiceBinding> for CredentialOwner {
    fn from(binding: APIServiceBinding) -> Self {
        Self::Binding(Box::new(binding))
    }
}

impl From<APIServiceBindingBundle> for CredentialOwner {
    fn from(bundle: APIServiceBindingBundle) -> Self {
        Self::Bundle(Box::new(bundle))
    }
}

/// The owner as messages name it, such as `APIServiceBinding cowboys`.
impl fmt::Display for CredentialOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind().kind, self.name())
    }
}

impl CredentialOwner {
    pub(crate) fn kind(&self) -> &'static OwnerKind {
        match self {
            Self::Binding(_) => &BINDING,
            Self::Bundle(_) => &BUNDLE,
        }
    }

    pub(crate) fn meta(&self) -> &ObjectMeta {
        either!(self, object => &object.metadata)
    }

    pub(crate) fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    pub(crate) fn binding(&self) -> Option<&APIServiceBinding> {
        match self {
            Self::Binding(binding) => Some(binding),
            Self::Bundle(_) => None,
        }
    }

    pub(crate) fn bundle(&self) -> Option<&APIServiceBindingBundle> {
        match self {
            Self::Binding(_) => None,
            Self::Bundle(bundle) => Some(bundle),
        }
    }

    /// The Secret with the kubeconfig that the user installed.
    pub(crate) fn secret_ref(&self) -> &ClusterSecretKeyRef {
        either!(self, object => &object.spec.kubeconfig_secret_ref)
    }

    /// The binding; none if the owner is a bundle.
    pub(crate) fn as_binding(&self) -> Option<&APIServiceBinding> {
        match self {
            Self::Binding(binding) => Some(binding),
            Self::Bundle(_) => None,
        }
    }

    /// The contract namespace, as the konnector reports it.
    pub(crate) fn contract(&self) -> Option<&str> {
        either!(self, object => object.status.as_ref()?.provider_namespace.as_deref())
    }

    /// The UID of the contract namespace that the konnector has pinned.
    pub(crate) fn contract_uid(&self) -> Option<&str> {
        either!(self, object => object.status.as_ref()?.contract_uid.as_deref())
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        either!(self, object => object.condition(type_))
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// Whether the konnector reports that the credential does not work.
    pub(crate) fn credential_fails(&self) -> bool {
        let mut known = self.kind().credential.iter().filter_map(|type_| self.condition(type_));
        known.any(|condition| condition.status == ConditionStatus::False)
    }

    /// Whether the konnector reports the owner as ready, for its present spec.
    pub(crate) fn is_ready(&self) -> bool {
        let is_observed = self.bundle().is_none_or(|bundle| {
            let observed = bundle.status.as_ref().and_then(|status| status.observed_generation);
            observed >= bundle.metadata.generation
        });
        let ready = self.condition(READY);
        !self.is_deleting() && is_observed && ready.is_some_and(Condition::is_true)
    }

    /// What keeps the owner from being ready, in words.
    pub(crate) fn not_ready(&self) -> Option<String> {
        if self.is_ready() {
            return None;
        }
        Some(match self.condition(READY) {
            None if either!(self, object => object.conditions().is_empty()) => format!(
                "waiting for the konnector, which has not seen the {} yet; does it run?",
                self.kind().kind
            ),
            Some(ready) if ready.status == ConditionStatus::False => match ready.message.as_str() {
                "" => format!("not ready: {}", ready.reason),
                message => format!("not ready: {message} ({})", ready.reason),
            },
            None | Some(_) => "waiting for the konnector".to_owned(),
        })
    }

    /// What keeps the konnector from using a new credential, in words. Ready also speaks of objects and rights, which may fail for other
    /// reasons.
    pub(crate) fn not_renewed(&self) -> Option<String> {
        if self.is_ready() {
            return None;
        }
        self.kind()
            .credential
            .iter()
            .find_map(|type_| match self.condition(type_) {
                Some(condition) if condition.is_true() => None,
                Some(condition) => Some(format!("{}: {}", condition.reason, condition.message)),
                None => Some("waiting for the konnector; does it run?".to_owned()),
            })
    }
}

/// Name and UID of the bundle that made the binding.
pub(crate) fn bundle_of(binding: &APIServiceBinding) -> Option<(&str, &str)> {
    controller::<APIServiceBindingBundle>(&binding.metadata)
}

/// Name and UID of the controller of an object, if it is of this kind, in any version.
pub(crate) fn controller<K: Resource<DynamicType = ()>>(meta: &ObjectMeta) -> Option<(&str, &str)> {
    let owner = meta::controller(meta)?;
    let (group, _) = owner.api_version.split_once('/')?;
    (owner.kind == K::kind(&()) && group == K::group(&())).then_some((&owner.name, &owner.uid))
}

#[cfg(test)]
mod tests;
