//! The right of the server to see what is in a provider namespace that it made: it deletes none that holds valuable objects.

use bindery_api::labels;
use k8s_openapi::api::rbac::v1::{RoleBinding, Subject};
use kube::api::ObjectMeta;

use super::role_ref;

/// The ClusterRole of Kubernetes by which users see what is in a namespace, without Secrets. The server may bind it by name.
pub const VIEW_ROLE: &str = "view";
/// The RoleBinding by which the server has that role in a namespace that it made. Its label `kube-bind.io/component` has the same
/// value.
pub const VIEW_BINDING: &str = "bindery-server-view";

/// What the server lacks where it may not bind [`VIEW_ROLE`], and what mends it.
pub const LACKING: &str = "the server may not bind ClusterRole view, by which it sees what is in a provider namespace before it \
                           deletes that; add the rule {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], \
                           resourceNames: [view], verbs: [bind]} to ClusterRole bindery-server, as an upgrade of its chart does";

/// RoleBinding `bindery-server-view` in a namespace.
pub fn server(namespace: &str, subject: Subject) -> RoleBinding {
    RoleBinding {
        metadata: ObjectMeta {
            name: Some(VIEW_BINDING.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some([(labels::COMPONENT.to_owned(), VIEW_BINDING.to_owned())].into()),
            ..ObjectMeta::default()
        },
        role_ref: role_ref("ClusterRole", VIEW_ROLE),
        subjects: Some(vec![subject]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_sees_by_the_role_of_kubernetes_in_one_namespace() {
        let binding = server("kube-bind-a-team1", Subject::default());
        assert_eq!(binding.metadata.namespace.as_deref(), Some("kube-bind-a-team1"));
        assert_eq!(
            (&*binding.role_ref.kind, &*binding.role_ref.name),
            ("ClusterRole", "view")
        );
        assert_eq!(binding.metadata.labels.unwrap()[labels::COMPONENT], VIEW_BINDING);
    }
}
