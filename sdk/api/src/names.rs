//! Names of objects. A name that fits is exactly kube-bind's; a longer one is shortened by a hash.

use sha2::{Digest as _, Sha224};

use crate::{hash, v1alpha2::GroupResource};

mod rbac;
mod typed;

pub use rbac::{
    KONNECTOR_ADOPTION_ROLE, KONNECTOR_BUNDLES_ROLE, claims_cluster_role, claims_role, core_claim_role_binding,
    konnector_cluster_role, resources_cluster_role, resources_role,
};
pub use typed::{
    BoundSchemaName, ClusterIdentity, CollectionName, ContractName, ExportName, GroupName, InvalidName, NamespaceName,
    ObjectName, PluralName, RequestName, TemplateName, Uid, VersionName, plain_text,
};

/// Length limit of a namespace's name: that of a DNS label (RFC 1123).
pub const NAMESPACE_LENGTH_MAX: usize = 63;
/// Length limit of other objects' names: that of a DNS subdomain (RFC 1123).
pub const NAME_LENGTH_MAX: usize = 253;

/// Name of the ServiceAccount, Role and RoleBinding of a contract.
pub const KUBE_BINDER: &str = "kube-binder";
/// Name of the ClusterBinding of a contract.
pub const CLUSTER_BINDING: &str = "cluster";
/// Name of the Cluster object of a provider.
pub const CLUSTER: &str = "default";
/// Name of the Secret with a kubeconfig in a contract namespace, which exists only for compatibility with kube-bind's konnector.
pub const KUBECONFIG_SECRET: &str = "kubeconfig";
/// The key of a kubeconfig in a Secret.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// The key of the response to a request in its Secret.
pub const BINDING_RESPONSE_KEY: &str = "binding-response";
/// The namespace of the konnector on a consumer, and of the server on a provider.
pub const KUBE_BIND_NAMESPACE: &str = "kube-bind";
/// Name of the konnector's ServiceAccount and Deployment.
pub const KONNECTOR: &str = "konnector";
/// Name of the Lease by which one konnector leads. It is that of kube-bind's konnector, so that the two never work at the same
/// time in one namespace.
pub const KONNECTOR_LEASE: &str = "kube-bind";
/// Name of the server's ServiceAccount, and of the Lease by which one server leads.
pub const SERVER: &str = "bindery-server";
/// Default prefix of contract namespaces.
pub const NAMESPACE_PREFIX: &str = "kube-bind-";
/// The field manager under which the konnector applies synced objects.
pub const FIELD_MANAGER: &str = "kube-bind.io";
/// The field manager under which kube-bind's konnector created objects.
pub const FIELD_MANAGER_KUBE_BIND: &str = "konnector";
/// A name that no namespace can have: the server probes the admission policy by creating an APIServiceNamespace of this name.
pub const POLICY_PROBE: &str = "policy.probe";

/// Returns the first eight bytes of the identity's SHA-224 in base 36, as kube-bind does: 13 characters at most.
pub fn identity_hash(identity: &str) -> String {
    short_hash(identity.as_bytes())
}

/// Returns the contract namespace of a consumer: `<prefix><hash of its identity>`.
pub fn contract_namespace(prefix: &str, identity: &str) -> String {
    format!("{prefix}{}", identity_hash(identity))
}

/// Returns the provider namespace of a consumer's namespace: `<contract>-<namespace>`, shortened as [`prefixed_name`] if that is
/// too long.
pub fn provider_namespace(contract: &str, consumer_namespace: &str) -> String {
    prefixed(contract, consumer_namespace, NAMESPACE_LENGTH_MAX)
}

/// Returns the provider's name for a cluster-scoped object under isolation Prefixed: `<contract>-<name>`.
///
/// A name that is too long becomes `<contract>--<beginning>-<hash>`. No name begins with a dash, so a shortened name never equals
/// that of an object whose name fits.
pub fn prefixed_name(contract: &str, name: &str) -> String {
    prefixed(contract, name, NAME_LENGTH_MAX)
}

/// Returns the consumer's name of an object under isolation Prefixed by the provider's name; `None` if it is not of this contract.
/// `noted` is the full name in the object's annotation, if the name was shortened.
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

/// Returns the name of a BoundSchema: `<plural>.<group>`, with `core` for the core group.
pub fn bound_schema(resource: &GroupResource) -> String {
    let group = if resource.is_core() { "core" } else { &resource.group };
    format!("{}.{group}", resource.resource)
}

/// Returns the name of a CRD: `<plural>.<group>`.
pub fn custom_resource_definition(plural: &str, group: &str) -> String {
    format!("{plural}.{group}")
}

/// Returns the object name of a BindableResourcesRequest that a principal made over gRPC for a cluster under a name.
pub fn bind_request(principal: &str, cluster_identity: &str, name: &str) -> String {
    let hash = hash::of_parts([principal, cluster_identity, name]);
    format!("bind-{}", hash::hex(&hash[..20]))
}

/// Returns the Secret for the response to a request that names no Secret: `<request>-binding-response`.
pub fn response_secret(request: &str) -> String {
    fit(format!("{request}-{BINDING_RESPONSE_KEY}"), NAME_LENGTH_MAX)
}

/// Returns the consumer's Secret for the provider's kubeconfig of a binding: `kubeconfig-<binding>`.
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

/// Whether a name can be one segment of the path of an API call, as it stands. Kubernetes asks of every object's name that it is no
/// `.` or `..` and holds no `/` or `%`; a name with other characters that end or change a path is none here either.
pub fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_LENGTH_MAX && name.bytes().all(is_path_byte) && !is_dots(name)
}

/// Appends one segment to the path of an API call. Whatever could end the segment or change the path is escaped, so that no name
/// leads to another object than that of this name.
pub fn push_segment(path: &mut String, segment: &str) {
    use std::fmt::Write as _;

    path.push('/');
    let is_dots = is_dots(segment);
    for byte in segment.bytes() {
        if is_path_byte(byte) && !is_dots {
            path.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

/// Shows a name that is not valid: in quotes, with its special characters escaped, and cut if it is long.
pub fn quoted(name: &str) -> String {
    /// Bytes of a name that are shown.
    const SHOWN_MAX: usize = 100;

    let shown = &name[..name.floor_char_boundary(SHOWN_MAX)];
    let rest = if shown.len() < name.len() { "..." } else { "" };
    format!("{shown:?}{rest}")
}

/// Whether a byte may stand in a segment of a path (RFC 3986).
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

/// Whether a segment leads to the path itself or to the one above.
fn is_dots(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

fn is_part(part: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
}

/// Returns the owner of an API group that no provider may offer, Kubernetes or kube-bind; `None` for other groups.
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

/// Returns a name if it fits, or else its beginning and a hash of the whole name.
pub fn fit(name: String, length_max: usize) -> String {
    if name.len() <= length_max {
        return name;
    }
    let hash = short_hash(name.as_bytes());
    let kept = &name[..name.floor_char_boundary(length_max.saturating_sub(hash.len() + 1))];
    format!("{}-{hash}", kept.trim_end_matches(['-', '.']))
}

fn short_hash(bytes: &[u8]) -> String {
    let digest = Sha224::digest(bytes);
    base36(digest.first_chunk().copied().unwrap_or_default())
}

/// Formats a number in base 36; each leading zero byte gives one leading zero.
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
