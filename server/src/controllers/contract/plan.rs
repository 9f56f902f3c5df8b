//! Plans what is missing in a contract namespace.

use std::collections::BTreeMap;

use bindery_api::{
    annotations, labels, names,
    v1alpha2::{ClusterBinding, ClusterBindingSpec, LocalSecretKeyRef},
};
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{RoleBinding, Subject},
};
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::json;

use crate::{controllers::grants, credentials, rbac, writes::Write};

/// A contract namespace, and those of its parts that exist.
pub(super) struct Observed<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) server: Option<&'a RoleBinding>,
    pub(super) account: Option<&'a ServiceAccount>,
    pub(super) binder: Option<&'a RoleBinding>,
    pub(super) cluster_binding: Option<&'a ClusterBinding>,
    /// The server itself, as a role binding names it.
    pub(super) subject: Subject,
    /// The provider's name for people.
    pub(super) pretty_name: &'a str,
}

/// What to do in a contract namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ContractPlan {
    pub(super) writes: Vec<Write>,
    /// Whether the contract's credentials are revoked and still work: their deletion was interrupted.
    pub(super) finish_revocation: bool,
}

/// Plans what is missing. The server's own rights come first, since it needs them for the rest.
pub(super) fn plan(seen: &Observed<'_>) -> ContractPlan {
    const MISSING: &str = "part of the contract is missing";
    let contract = seen.namespace.name_any();
    let is_revoked = seen
        .cluster_binding
        .is_some_and(|binding| credentials::revocation(binding).is_some());
    let mut writes = grants::binding(MISSING, seen.server, &rbac::server(&contract, seen.subject.clone()));
    if seen.account.is_none() {
        writes.push(Write::create(MISSING, &account(&contract), &[labels::CONTRACT]));
    }
    match seen.cluster_binding {
        None => {
            let binding = cluster_binding(seen.namespace, seen.pretty_name);
            // Only the server can create ClusterBindings.
            writes.push(Write::create(MISSING, &binding, &[]));
        }
        Some(binding) if binding.spec.provider_pretty_name != seen.pretty_name => {
            let patch = json!({ "spec": { "providerPrettyName": seen.pretty_name } });
            writes.push(Write::patch("the provider's name for people changed", binding, patch));
        }
        Some(_) => {}
    }
    if !is_revoked {
        writes.extend(grants::binding(MISSING, seen.binder, &rbac::kube_binder(&contract)));
    }
    ContractPlan {
        writes,
        finish_revocation: is_revoked && seen.binder.is_some(),
    }
}

fn account(contract: &str) -> ServiceAccount {
    ServiceAccount {
        metadata: ObjectMeta {
            name: Some(names::KUBE_BINDER.to_owned()),
            namespace: Some(contract.to_owned()),
            labels: Some(BTreeMap::from([(labels::CONTRACT.to_owned(), contract.to_owned())])),
            ..ObjectMeta::default()
        },
        // No pod runs as it, and its tokens come from requests alone.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

fn cluster_binding(namespace: &Namespace, pretty_name: &str) -> ClusterBinding {
    let carried = [
        annotations::IDENTITY,
        annotations::AUTHOR,
        annotations::CLUSTER_PRETTY_NAME,
    ];
    let carried = carried.iter().filter_map(|key| {
        let value = namespace.annotations().get(*key)?;
        Some(((*key).to_owned(), value.clone()))
    });
    ClusterBinding {
        metadata: ObjectMeta {
            name: Some(names::CLUSTER_BINDING.to_owned()),
            namespace: Some(namespace.name_any()),
            annotations: Some(carried.collect()),
            ..ObjectMeta::default()
        },
        spec: ClusterBindingSpec {
            kubeconfig_secret_ref: LocalSecretKeyRef {
                name: names::KUBECONFIG_SECRET.to_owned(),
                key: names::KUBECONFIG_KEY.to_owned(),
            },
            provider_pretty_name: pretty_name.to_owned(),
            service_provider_spec: None,
        },
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contract::{self, NewContract},
        principal::Principal,
    };

    fn namespace() -> Namespace {
        contract::namespace(&NewContract {
            name: "kube-bind-a",
            identity: "cluster-a",
            pretty_name: "Ranch",
            owner: &Principal::named("jane"),
            owner_groups: &[],
            template: "cowboys",
        })
    }

    fn subject() -> Subject {
        Subject {
            kind: "User".to_owned(),
            name: "server".to_owned(),
            ..Subject::default()
        }
    }

    #[derive(Clone, Default)]
    struct ContractParts {
        server: Option<RoleBinding>,
        account: Option<ServiceAccount>,
        binder: Option<RoleBinding>,
        cluster_binding: Option<ClusterBinding>,
    }

    fn complete() -> ContractParts {
        ContractParts {
            server: Some(rbac::server("kube-bind-a", subject())),
            account: Some(account("kube-bind-a")),
            binder: Some(rbac::kube_binder("kube-bind-a")),
            cluster_binding: Some(cluster_binding(&namespace(), "Wild West")),
        }
    }

    fn revoked() -> ClusterBinding {
        let mut binding = cluster_binding(&namespace(), "Wild West");
        let annotations = binding.annotations_mut();
        annotations.insert(annotations::REVOCATION.to_owned(), "{}".to_owned());
        binding
    }

    #[track_caller]
    fn check(parts: &ContractParts, expect: &[&str]) {
        let namespace = namespace();
        let plan = plan(&Observed {
            namespace: &namespace,
            server: parts.server.as_ref(),
            account: parts.account.as_ref(),
            binder: parts.binder.as_ref(),
            cluster_binding: parts.cluster_binding.as_ref(),
            subject: subject(),
            pretty_name: "Wild West",
        });
        let mut named: Vec<String> = plan.writes.iter().map(ToString::to_string).collect();
        named.extend(plan.finish_revocation.then(|| "finish revocation".to_owned()));
        assert_eq!(named, expect);
    }

    #[test]
    fn only_what_is_missing_is_made_and_own_rights_first() {
        let nothing = ContractParts::default();
        check(
            &nothing,
            &[
                "create RoleBinding kube-bind-a/bindery-server",
                "create ServiceAccount kube-bind-a/kube-binder",
                "create ClusterBinding kube-bind-a/cluster",
                "create RoleBinding kube-bind-a/kube-binder",
            ],
        );
        check(&complete(), &[]);
        for (missing, expect) in [
            (
                ContractParts {
                    server: None,
                    ..complete()
                },
                "create RoleBinding kube-bind-a/bindery-server",
            ),
            (
                ContractParts {
                    account: None,
                    ..complete()
                },
                "create ServiceAccount kube-bind-a/kube-binder",
            ),
            (
                ContractParts {
                    binder: None,
                    ..complete()
                },
                "create RoleBinding kube-bind-a/kube-binder",
            ),
            (
                ContractParts {
                    cluster_binding: None,
                    ..complete()
                },
                "create ClusterBinding kube-bind-a/cluster",
            ),
        ] {
            check(&missing, &[expect]);
        }
    }

    #[test]
    fn a_binding_that_was_bent_is_made_anew() {
        let mut bent = complete();
        bent.binder.as_mut().unwrap().subjects = None;
        check(
            &bent,
            &[
                "delete RoleBinding kube-bind-a/kube-binder",
                "create RoleBinding kube-bind-a/kube-binder",
            ],
        );
        let mut bent = complete();
        bent.server.as_mut().unwrap().role_ref.name = "cluster-admin".to_owned();
        check(
            &bent,
            &[
                "delete RoleBinding kube-bind-a/bindery-server",
                "create RoleBinding kube-bind-a/bindery-server",
            ],
        );
    }

    #[test]
    fn a_revoked_contract_gets_no_rights_back() {
        let cluster_binding = Some(revoked());
        check(
            &ContractParts {
                cluster_binding: cluster_binding.clone(),
                ..complete()
            },
            &["finish revocation"],
        );
        check(
            &ContractParts {
                cluster_binding,
                binder: None,
                ..complete()
            },
            &[],
        );
    }

    #[test]
    fn a_renamed_provider_tells_its_consumers() {
        let mut old = complete();
        old.cluster_binding.as_mut().unwrap().spec.provider_pretty_name = "Old".to_owned();
        check(&old, &["patch ClusterBinding kube-bind-a/cluster"]);
    }
}
