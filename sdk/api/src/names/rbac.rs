//! Names of roles and role bindings.

use super::{KUBE_BINDER, NAME_LENGTH_MAX, fit};

/// ClusterRole and ClusterRoleBinding with the rights for all bindings of bundles, which the operator of the consumer lists: such
/// bindings have no roles of their own.
pub const KONNECTOR_BUNDLES_ROLE: &str = "kube-bind-konnector-bundles";
/// ClusterRole and ClusterRoleBinding with the konnector's rights for adoption.
pub const KONNECTOR_ADOPTION_ROLE: &str = "kube-bind-konnector-adoption";

/// ClusterRole and ClusterRoleBinding for an export's resources: `kube-binder-resources-<contract>-<export>`.
pub fn resources_cluster_role(contract: &str, export: &str) -> String {
    fit(format!("{KUBE_BINDER}-resources-{contract}-{export}"), NAME_LENGTH_MAX)
}

/// Role and RoleBinding for an export's resources in a provider namespace: `kube-binder-resources-<export>`.
pub fn resources_role(export: &str) -> String {
    fit(format!("{KUBE_BINDER}-resources-{export}"), NAME_LENGTH_MAX)
}

/// Role and RoleBinding for an export's claims in a provider namespace: `kube-binder-claims-<export>`.
pub fn claims_role(export: &str) -> String {
    fit(format!("{KUBE_BINDER}-claims-{export}"), NAME_LENGTH_MAX)
}

/// ClusterRole and ClusterRoleBinding for an export's claims: `kube-binder-claims-<contract>-<export>`.
pub fn claims_cluster_role(contract: &str, export: &str) -> String {
    fit(format!("{KUBE_BINDER}-claims-{contract}-{export}"), NAME_LENGTH_MAX)
}

/// RoleBinding of a shipped ClusterRole for one core claim: `kube-binder-claims-<export>:<resource>`.
pub fn core_claim_role_binding(export: &str, resource: &str) -> String {
    fit(format!("{KUBE_BINDER}-claims-{export}:{resource}"), NAME_LENGTH_MAX)
}

/// ClusterRole and ClusterRoleBinding of one binding on the consumer: `kube-bind-konnector-<binding>`. The program that binds
/// creates them; the konnector deletes them as its last step.
pub fn konnector_cluster_role(binding: &str) -> String {
    fit(format!("kube-bind-konnector-{binding}"), NAME_LENGTH_MAX)
}
