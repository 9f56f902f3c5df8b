//! Other konnectors of the cluster, which their ClusterRoleBindings tell.

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::ResourceExt as _;

use super::files;
use crate::errors::conflict::Conflict;

/// The label of a konnector's ClusterRoleBinding, as the chart gives it too.
pub(crate) const SELECTOR: &str = "app.kubernetes.io/component=konnector";

/// Refuses a second konnector on the cluster: it would serve the bindings of the first one. `grants` are the ClusterRoleBindings
/// that [`SELECTOR`] finds.
pub(crate) fn refuse_other(grants: &[ClusterRoleBinding]) -> Result<(), Conflict> {
    let Some(other) = grants.iter().find(|grant| grant.name_any() != files::GRANT) else {
        return Ok(());
    };
    let account = other.subjects.iter().flatten().next();
    let account = account.map(|account| format!("{}/{}", account.namespace.as_deref().unwrap_or("-"), account.name));
    Err(Conflict::OtherKonnector {
        account: account.unwrap_or_default(),
        grant: other.name_any(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn grant(name: &str, namespace: &str) -> ClusterRoleBinding {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "east"}],
        }))
        .unwrap()
    }

    #[test]
    fn a_konnector_of_another_release_is_named() {
        let own = grant(files::GRANT, "kube-bind");
        assert_eq!(refuse_other(&[]), Ok(()));
        assert_eq!(refuse_other(std::slice::from_ref(&own)), Ok(()));
        let refused = refuse_other(&[own, grant("east.bind", "bind")])
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("bind/east") && refused.contains("east.bind"),
            "{refused}"
        );
    }

    #[test]
    fn the_konnector_of_this_command_is_found_by_the_selector() {
        let (key, value) = SELECTOR.split_once('=').unwrap();
        let manifests = files::always().unwrap();
        let grant = manifests
            .iter()
            .find(|manifest| manifest["kind"] == "ClusterRoleBinding")
            .unwrap();
        assert_eq!(grant["metadata"]["name"], files::GRANT);
        assert_eq!(grant["metadata"]["labels"][key], value);
    }
}
