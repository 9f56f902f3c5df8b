//! The manifests of `deploy/konnector`, compiled into the command.

use serde_json::Value;

use crate::errors::Failure;

macro_rules! konnector {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../deploy/konnector/", $name)))
    };
}

/// The files that are always applied, in their order.
pub(super) const ALWAYS: [(&str, &str); 5] = [
    konnector!("account-policy.yaml"),
    konnector!("namespace.yaml"),
    konnector!("own-namespace.yaml"),
    konnector!("policy.yaml"),
    konnector!("role.yaml"),
];
/// The ClusterRoleBinding of the konnector.
pub(super) const GRANT: &str = "kube-bind-konnector";
/// The file with the Deployment, which is applied last.
pub(super) const WORKLOAD: (&str, &str) = konnector!("workload.yaml");
/// The file with the rights that adoption needs.
pub(super) const ADOPTION: (&str, &str) = konnector!("optional/adoption.yaml");

/// The manifests that every konnector needs, without its Deployment.
pub(crate) fn always() -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for file in ALWAYS {
        all.extend(documents(file)?);
    }
    Ok(all)
}

pub(super) fn adoption() -> Result<Vec<Value>, Failure> {
    documents(ADOPTION)
}

/// Parses the documents of a file.
pub(super) fn documents((name, text): (&str, &str)) -> Result<Vec<Value>, Failure> {
    serde_saphyr::from_multiple(text).map_err(|error| Failure::Format(format!("{name}: {error}")))
}
