//! The admission policies on the konnector's account: for each a request that it has to deny if the account sends it, and the message of
//! the denial.

use bindery_api::names;
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::api::ApiResource;
use serde_json::json;

use super::Probe;

/// The beginning of the names of the policies that `kubectl bind deploy` installs.
pub const BASE_NAME: &str = "kube-bind-konnector";

/// The probes of all policies of the konnector of this namespace, the names of which begin with `base`.
pub fn probes(base: &str, namespace: &str) -> [(Probe, String); 3] {
    [account(base, namespace), definitions(base), claims(base, namespace)]
}

/// The probe of the policy that limits what the account writes of Kubernetes' own resources. In the konnector's own namespace no other
/// policy denies it: an API server tells the denial of one policy alone. The revision is raised with every change of what the policy
/// forbids.
pub fn account(base: &str, namespace: &str) -> (Probe, String) {
    let policy = named(base, "account");
    let words = format!("{} is refused by {policy}, revision 1", names::POLICY_PROBE);
    (secret(policy, namespace, names::POLICY_PROBE), words)
}

fn definitions(base: &str) -> (Probe, String) {
    let probe = Probe {
        policy: base.to_owned(),
        resource: ApiResource::erase::<CustomResourceDefinition>(&()),
        namespace: None,
        object: json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "probes.policy.invalid" },
            "spec": {
                "group": "policy.invalid", "scope": "Namespaced",
                "names": { "plural": "probes", "singular": "probe", "kind": "Probe", "listKind": "ProbeList" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } },
                }],
            },
        }),
    };
    let words = "the konnector writes no CustomResourceDefinition that belongs to no APIServiceBinding";
    (probe, words.to_owned())
}

fn claims(base: &str, namespace: &str) -> (Probe, String) {
    let words = "the konnector writes no Secret with what synk or Helm keeps for a rollback";
    (
        secret(named(base, "claims"), namespace, "synk-policy-probe"),
        words.to_owned(),
    )
}

/// The creation of a Secret.
fn secret(policy: String, namespace: &str, name: &str) -> Probe {
    Probe {
        policy,
        resource: ApiResource::erase::<Secret>(&()),
        namespace: Some(namespace.to_owned()),
        object: json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } }),
    }
}

/// A name as the chart gives it: a release with a name of its own has dots.
fn named(base: &str, part: &str) -> String {
    let joint = if base.contains('.') { '.' } else { '-' };
    format!("{base}{joint}{part}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(base: &str, expect: [&str; 3]) {
        assert_eq!(probes(base, "there").map(|(probe, _)| probe.policy), expect);
    }

    #[test]
    fn policies_are_named_as_the_chart_names_them() {
        check(
            BASE_NAME,
            [
                "kube-bind-konnector-account",
                "kube-bind-konnector",
                "kube-bind-konnector-claims",
            ],
        );
        check("east.sync", ["east.sync.account", "east.sync", "east.sync.claims"]);
    }

    #[test]
    fn the_shipped_policies_deny_in_these_words() {
        let shipped = [
            include_str!("../../../deploy/konnector/account-policy.yaml"),
            include_str!("../../../deploy/konnector/policy.yaml"),
        ];
        for (_, words) in probes(BASE_NAME, names::KUBE_BIND_NAMESPACE) {
            let message = format!("message: {words}");
            let denies = |text: &&str| text.lines().any(|line| line.trim() == message);
            assert!(shipped.iter().any(denies), "{message}");
        }
    }
}
