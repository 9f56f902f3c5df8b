use crate::{claims::*, v1alpha2::GroupResource};

/// The konnector runs in `kube-bind`; the object is `namespace/name`.
#[track_caller]
fn check(resource: &str, object: &str, secret_type: Option<&str>, expect: Option<NeverClaimed>) {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let key = object.split_once('/').unwrap();
    let resource = GroupResource::new(group, plural);
    let why = never_claimed(&resource, key, secret_type, "kube-bind");
    assert_eq!(why, expect, "{resource} {object} {secret_type:?}");
}

#[test]
fn credentials_of_a_cluster_and_objects_of_every_namespace_are_never_claimed() {
    use NeverClaimed::{BootstrapToken, PerNamespace, ServiceAccountToken};
    let [account, bootstrap] = TOKEN_SECRET_TYPES;
    check("secrets", "west/a", None, None);
    check("secrets", "west/a", Some("Opaque"), None);
    check("secrets", "west/a", Some("kubernetes.io/dockerconfigjson"), None);
    check("secrets", "west/a", Some(account), Some(ServiceAccountToken));
    check("secrets", "west/a", Some(bootstrap), Some(BootstrapToken));
    check("secrets", "west/default", Some("Opaque"), None);
    check("secrets.example.com", "west/a", Some(account), None);
    check("configmaps", "west/kube-root-ca.crt", None, Some(PerNamespace));
    check("configmaps", "west/default", None, None);
    check("configmaps.example.com", "west/kube-root-ca.crt", None, None);
    check("serviceaccounts", "west/default", None, Some(PerNamespace));
    check("serviceaccounts", "west/builder", None, None);
}

#[test]
fn namespaces_of_kubernetes_and_of_the_konnector_are_closed_to_providers() {
    use NeverClaimed::{KonnectorNamespace, KubernetesNamespace};
    for (namespace, expect) in [
        ("west", None),
        ("default", None),
        ("kube-systems", None),
        ("kube-system", Some(KubernetesNamespace)),
        ("kube-public", Some(KubernetesNamespace)),
        ("kube-node-lease", Some(KubernetesNamespace)),
        ("kube-bind", Some(KonnectorNamespace)),
    ] {
        check("secrets", &format!("{namespace}/a"), None, expect);
        check("horses.wildwest.dev", &format!("{namespace}/a"), None, expect);
        assert_eq!(is_protected_namespace(namespace, "kube-bind"), expect.is_some());
    }
}

#[test]
fn the_secrets_of_a_service_account_are_not_copied() {
    let accounts = GroupResource::new("", "serviceaccounts");
    assert!(is_local_field(&accounts, "secrets"));
    assert!(!is_local_field(&accounts, "imagePullSecrets"));
    assert!(!is_local_field(&GroupResource::new("", "secrets"), "data"));
}
