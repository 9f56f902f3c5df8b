//! Names of objects, each made in one place. What fits is exactly the wire's; what would be too long is shortened.

use sha2::{Digest, Sha224, Sha256};

use crate::v1alpha2::GroupResource;

mod rbac;
mod typed;

pub use rbac::{
    KONNECTOR_ADOPTION_ROLE, KONNECTOR_BUNDLES_ROLE, claims_cluster_role, claims_role, core_claim_role_binding,
    konnector_cluster_role, resources_cluster_role, resources_role,
};
pub use typed::{
    BoundSchemaName, ClusterIdentity, CollectionName, ContractName, ExportName, InvalidName, RequestName, TemplateName,
    Uid, plain_text,
};

/// A namespace may be this long at most: a DNS label (RFC 1123).
pub const NAMESPACE_LENGTH_MAX: usize = 63;
/// Any other object's name may be this long at most: a DNS subdomain (RFC 1123).
pub const NAME_LENGTH_MAX: usize = 253;

/// The ServiceAccount, Role and RoleBinding of a contract.
pub const KUBE_BINDER: &str = "kube-binder";
/// The ClusterBinding of a contract.
pub const CLUSTER_BINDING: &str = "cluster";
/// The Cluster of a provider.
pub const CLUSTER: &str = "default";
/// The Secret of a contract namespace that holds a kubeconfig, where compatibility asks for one.
pub const KUBECONFIG_SECRET: &str = "kubeconfig";
/// The key of a kubeconfig in a Secret.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// The key of the response to a request in its Secret.
pub const BINDING_RESPONSE_KEY: &str = "binding-response";
/// The namespace of the konnector on a consumer, and of the server on a provider.
pub const KUBE_BIND_NAMESPACE: &str = "kube-bind";
/// The konnector's ServiceAccount and Deployment.
pub const KONNECTOR: &str = "konnector";
/// The prefix of contract namespaces, unless a flag says otherwise.
pub const NAMESPACE_PREFIX: &str = "kube-bind-";
/// The field manager of what the konnector applies to synced objects.
pub const FIELD_MANAGER: &str = "kube-bind.io";
/// The field manager under which kube-bind's konnector created objects.
pub const FIELD_MANAGER_KUBE_BIND: &str = "konnector";
/// A name that no namespace can have: creating an APIServiceNamespace of it probes the admission policy.
pub const POLICY_PROBE: &str = "policy.probe";

/// The first eight bytes of the identity's SHA-224 in base 36: at most 13 characters, and the same as kube-bind's.
pub fn identity_hash(identity: &str) -> String {
    short_hash(identity.as_bytes())
}

/// The contract namespace of a consumer: `<prefix><hash of its identity>`.
pub fn contract_namespace(prefix: &str, identity: &str) -> String {
    format!("{prefix}{}", identity_hash(identity))
}

/// The provider's namespace for one of the consumer's: `<contract>-<namespace>`, as on the wire. See [`prefixed_name`] for
/// those that would be too long.
pub fn provider_namespace(contract: &str, consumer_namespace: &str) -> String {
    prefixed(contract, consumer_namespace, NAMESPACE_LENGTH_MAX)
}

/// The provider's name for a cluster-scoped object under isolation Prefixed: `<contract>-<name>`, as on the wire.
///
/// One that would be too long becomes `<contract>--<beginning>-<hash>`: no name begins with a dash, so that a shortened name
/// is never that of an object whose name fits.
pub fn prefixed_name(contract: &str, name: &str) -> String {
    prefixed(contract, name, NAME_LENGTH_MAX)
}

/// The consumer's name of an object by its provider's under isolation Prefixed; `None` if it is not of this contract. `noted`
/// is the whole name that the object carries where its own is a shortened one.
pub fn unprefixed_name<'a>(contract: &str, name: &'a str, noted: Option<&'a str>) -> Option<&'a str> {
    let rest = name.strip_prefix(contract)?.strip_prefix('-')?;
    if rest.starts_with('-') {
        return noted.filter(|noted| prefixed_name(contract, noted) == name);
    }
    (!rest.is_empty()).then_some(rest)
}

fn prefixed(contract: &str, name: &str, length_max: usize) -> String {
    let whole = format!("{contract}-{name}");
    if whole.len() <= length_max {
        return whole;
    }
    let hash = short_hash(whole.as_bytes());
    let room = length_max.saturating_sub(contract.len() + "---".len() + hash.len());
    let kept = name[..name.floor_char_boundary(room)].trim_end_matches(['-', '.']);
    let dash = if kept.is_empty() { "" } else { "-" };
    format!("{contract}--{kept}{dash}{hash}")
}

/// The name of a BoundSchema: `<plural>.<group>`, with `core` for the core group.
pub fn bound_schema(resource: &GroupResource) -> String {
    let group = if resource.is_core() { "core" } else { &resource.group };
    format!("{}.{group}", resource.resource)
}

/// The name of a CRD: `<plural>.<group>`.
pub fn custom_resource_definition(plural: &str, group: &str) -> String {
    format!("{plural}.{group}")
}

/// The BindableResourcesRequest of one principal for one cluster under one name.
pub fn bind_request(principal: &str, cluster_identity: &str, name: &str) -> String {
    let mut hash = Sha256::new();
    for part in [principal, cluster_identity, name] {
        // Each part with its length, so that no two triples read the same.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    format!("bind-{}", hex(&hash.finalize()[..20]))
}

/// The Secret for the response to a request that names none: `<request>-binding-response`.
pub fn response_secret(request: &str) -> String {
    fit(format!("{request}-{BINDING_RESPONSE_KEY}"), NAME_LENGTH_MAX)
}

/// The consumer's Secret that whoever binds puts the provider's kubeconfig into: `kubeconfig-<binding>`.
pub fn provider_kubeconfig_secret(binding: &str) -> String {
    fit(format!("{KUBECONFIG_SECRET}-{binding}"), NAME_LENGTH_MAX)
}

/// Whether a name is a DNS label (RFC 1123), as that of a namespace must be.
pub fn is_label(name: &str) -> bool {
    name.len() <= NAMESPACE_LENGTH_MAX && is_part(name)
}

/// Whether a name is a DNS subdomain (RFC 1123), as those of most objects must be.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= NAME_LENGTH_MAX && name.split('.').all(is_part)
}

fn is_part(part: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
}

/// Whom a group of APIs belongs to that no provider may offer: Kubernetes, or kube-bind.
pub fn owner_of_group(group: &str) -> Option<&'static str> {
    let under = |domain: &str| group == domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    // Groups without a dot are Kubernetes' own, such as apps, and the core group is empty.
    if !group.contains('.') || under("k8s.io") || under("kubernetes.io") {
        Some("Kubernetes itself")
    } else if under("kube-bind.io") || under("kubebind.io") {
        Some("kube-bind itself")
    } else {
        None
    }
}

/// The name itself where it fits, else its beginning and a hash of the whole.
pub fn fit(name: String, length_max: usize) -> String {
    if name.len() <= length_max {
        return name;
    }
    let hash = short_hash(name.as_bytes());
    let kept = &name[..name.floor_char_boundary(length_max.saturating_sub(hash.len() + 1))];
    format!("{}-{hash}", kept.trim_end_matches(['-', '.']))
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0xf])
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
}

fn short_hash(bytes: &[u8]) -> String {
    let digest = Sha224::digest(bytes);
    base36(digest.first_chunk().copied().unwrap_or_default())
}

/// A number in base 36; each leading zero byte gives one leading zero.
fn base36(bytes: [u8; 8]) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut number = u64::from_be_bytes(bytes);
    let mut reversed = Vec::new();
    while number > 0 {
        let digit = usize::try_from(number % 36).unwrap_or_default();
        reversed.push(char::from(DIGITS[digit]));
        number /= 36;
    }
    let leading_zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    std::iter::repeat_n('0', leading_zeros)
        .chain(reversed.into_iter().rev())
        .collect()
}

#[cfg(test)]
mod tests;
