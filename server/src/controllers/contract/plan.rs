//! What is missing in a contract namespace.

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
use serde_json::{Value, json};

use crate::{credentials, rbac, writes};

/// A contract namespace and what it holds.
pub(super) struct Observed<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) server: Option<&'a RoleBinding>,
    pub(super) account: Option<&'a ServiceAccount>,
    pub(super) binder: Option<&'a RoleBinding>,
    pub(super) cluster_binding: Option<&'a ClusterBinding>,
    /// The server itself.
    pub(super) subject: Subject,
    /// The provider's name for people.
    pub(super) pretty_name: &'a str,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    CreateRoleBinding(Box<RoleBinding>),
    DeleteRoleBinding {
        name: String,
        uid: Option<String>,
    },
    CreateAccount(Box<ServiceAccount>),
    CreateClusterBinding(Box<ClusterBinding>),
    SetPrettyName {
        patch: Value,
    },
    /// Ends what a revocation left undone.
    Sweep,
}

/// The server's own rights come first, for the rest is made with them.
pub(super) fn plan(seen: &Observed<'_>) -> Vec<Op> {
    let contract = seen.namespace.name_any();
    let revoked = seen
        .cluster_binding
        .is_some_and(|binding| credentials::revocation(binding).is_some());
    let mut ops = Vec::new();
    bind(seen.server, rbac::server(&contract, seen.subject.clone()), &mut ops);
    if seen.account.is_none() {
        ops.push(Op::CreateAccount(Box::new(account(&contract))));
    }
    match seen.cluster_binding {
        None => ops.push(Op::CreateClusterBinding(Box::new(cluster_binding(
            seen.namespace,
            seen.pretty_name,
        )))),
        Some(binding) if binding.spec.provider_pretty_name != seen.pretty_name => ops.push(Op::SetPrettyName {
            patch: json!({
                "metadata": writes::seen(binding),
                "spec": { "providerPrettyName": seen.pretty_name },
            }),
        }),
        Some(_) => {}
    }
    if !revoked {
        bind(seen.binder, rbac::kube_binder(&contract), &mut ops);
    } else if seen.binder.is_some() {
        ops.push(Op::Sweep);
    }
    ops
}

/// A role binding's role cannot be changed, so that one which is not as it should be is made anew.
fn bind(existing: Option<&RoleBinding>, wanted: RoleBinding, ops: &mut Vec<Op>) {
    match existing {
        Some(existing) if rbac::binds_the_same(existing, &wanted) => return,
        Some(existing) => ops.push(Op::DeleteRoleBinding {
            name: existing.name_any(),
            uid: existing.uid(),
        }),
        None => {}
    }
    ops.push(Op::CreateRoleBinding(Box::new(wanted)));
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
    struct Parts {
        server: Option<RoleBinding>,
        account: Option<ServiceAccount>,
        binder: Option<RoleBinding>,
        cluster_binding: Option<ClusterBinding>,
    }

    fn complete() -> Parts {
        Parts {
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
    fn check(parts: &Parts, expect: &[&str]) {
        let namespace = namespace();
        let ops = plan(&Observed {
            namespace: &namespace,
            server: parts.server.as_ref(),
            account: parts.account.as_ref(),
            binder: parts.binder.as_ref(),
            cluster_binding: parts.cluster_binding.as_ref(),
            subject: subject(),
            pretty_name: "Wild West",
        });
        let named: Vec<String> = ops
            .iter()
            .map(|op| match op {
                Op::CreateRoleBinding(binding) => format!("bind {}", binding.name_any()),
                Op::DeleteRoleBinding { name, .. } => format!("unbind {name}"),
                Op::CreateAccount(_) => "account".to_owned(),
                Op::CreateClusterBinding(_) => "cluster binding".to_owned(),
                Op::SetPrettyName { .. } => "pretty name".to_owned(),
                Op::Sweep => "sweep".to_owned(),
            })
            .collect();
        assert_eq!(named, expect);
    }

    #[test]
    fn only_what_is_missing_is_made_and_own_rights_first() {
        let nothing = Parts::default();
        check(
            &nothing,
            &["bind bindery-server", "account", "cluster binding", "bind kube-binder"],
        );
        check(&complete(), &[]);
        for (missing, expect) in [
            (
                Parts {
                    server: None,
                    ..complete()
                },
                "bind bindery-server",
            ),
            (
                Parts {
                    account: None,
                    ..complete()
                },
                "account",
            ),
            (
                Parts {
                    binder: None,
                    ..complete()
                },
                "bind kube-binder",
            ),
            (
                Parts {
                    cluster_binding: None,
                    ..complete()
                },
                "cluster binding",
            ),
        ] {
            check(&missing, &[expect]);
        }
    }

    #[test]
    fn a_binding_that_was_bent_is_made_anew() {
        let mut bent = complete();
        bent.binder.as_mut().unwrap().subjects = None;
        check(&bent, &["unbind kube-binder", "bind kube-binder"]);
        let mut bent = complete();
        bent.server.as_mut().unwrap().role_ref.name = "cluster-admin".to_owned();
        check(&bent, &["unbind bindery-server", "bind bindery-server"]);
    }

    #[test]
    fn a_revoked_contract_gets_no_rights_back() {
        let cluster_binding = Some(revoked());
        check(
            &Parts {
                cluster_binding: cluster_binding.clone(),
                ..complete()
            },
            &["sweep"],
        );
        check(
            &Parts {
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
        check(&old, &["pretty name"]);
    }
}
