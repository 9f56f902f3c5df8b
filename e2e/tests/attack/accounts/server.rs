//! The server's account, on the provider.

use anyhow::{Result, ensure};
use bindery_e2e::NAMESPACE;
use serde_json::json;

use super::{
    Done, RBAC, STRANGER, Step, binding, delete, everything, get, none_arrives, patch, paths, plant, post, token_secret,
};
use crate::{
    served::{self, Stock},
    tenant::RANCH,
    world::{Scope, World, attack},
};

/// Ways of the server's account to more than contracts.
#[expect(clippy::too_many_lines, reason = "one row for each way")]
fn server_chains(world: &World) -> Vec<(&'static str, Vec<Step>)> {
    let me = (NAMESPACE, "bindery-server");
    let (contract, space) = (world.zorro.contract.as_str(), world.zorro.space.as_str());
    let [system_bindings, system_secrets, system_accounts] = paths("kube-system");
    let [contract_bindings, contract_secrets, contract_accounts] = paths(contract);
    let [space_bindings, space_secrets, _] = paths(space);
    let (definitions, roles) = (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        format!("{RBAC}/clusterroles"),
    );
    let wide = format!("kube-binder-resources-{contract}-raid");
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let labelled = |label: &str| json!({"metadata": {"name": wide, "labels": {"kube-bind.io/contract": contract, label: "true"}}, "rules": []});
    vec![
        (
            "its role in kube-system, to read Secrets",
            vec![
                post(
                    &system_bindings,
                    binding("bindery-server", "kube-system", "bindery-server-contract", me),
                ),
                get(&system_secrets),
            ],
        ),
        (
            "its role in kube-system, to make a token Secret",
            vec![
                post(
                    &system_bindings,
                    binding("bindery-server", contract, "bindery-server-contract", me),
                ),
                post(&system_secrets, token_secret("clusterrole-aggregation-controller")),
            ],
        ),
        (
            "kube-system labelled as a contract",
            vec![
                patch(
                    "/api/v1/namespaces/kube-system",
                    json!({"metadata": {"labels": {"kube-bind.io/contract": "kube-system"}}}),
                ),
                post(
                    &system_bindings,
                    binding("bindery-server", "kube-system", "bindery-server-contract", me),
                ),
                get(&system_secrets),
            ],
        ),
        (
            "kube-system labelled as shared",
            vec![
                patch(
                    "/api/v1/namespaces/kube-system",
                    json!({"metadata": {"labels": {"kube-bind.io/shared": "true"}}}),
                ),
                post(
                    &system_bindings,
                    binding(
                        "kube-binder-claims-x:secrets",
                        contract,
                        "kube-binder-claims-secrets",
                        (contract, "kube-binder"),
                    ),
                ),
            ],
        ),
        (
            "the role for claimed Secrets, elsewhere",
            vec![post(
                paths(STRANGER)[0].clone(),
                binding(
                    "kube-binder-claims-x:secrets",
                    contract,
                    "kube-binder-claims-secrets",
                    (contract, "kube-binder"),
                ),
            )],
        ),
        (
            "the role for claimed Secrets, cluster-wide",
            vec![post(
                format!("{RBAC}/clusterrolebindings"),
                binding(&wide, contract, "kube-binder-claims-secrets", (contract, "kube-binder")),
            )],
        ),
        (
            "view for somebody else",
            vec![post(
                &space_bindings,
                binding("bindery-server-view", contract, "view", ("stranger", "default")),
            )],
        ),
        (
            "view in kube-system",
            vec![
                post(&system_bindings, binding("bindery-server-view", contract, "view", me)),
                get("/api/v1/namespaces/kube-system/pods"),
            ],
        ),
        (
            "a token Secret in a contract",
            vec![post(&contract_secrets, token_secret("kube-binder"))],
        ),
        (
            "a token Secret in a provider namespace",
            vec![post(&space_secrets, token_secret("default"))],
        ),
        (
            "a token that nothing revokes",
            vec![post(
                format!("{contract_accounts}/kube-binder/token"),
                json!({"spec": {"audiences": [], "expirationSeconds": 31_536_000}}),
            )],
        ),
        (
            "a token of another account",
            vec![post(
                format!("{contract_accounts}/default/token"),
                json!({"spec": {"audiences": []}}),
            )],
        ),
        (
            "a token of a controller",
            vec![post(
                format!("{system_accounts}/clusterrole-aggregation-controller/token"),
                json!({"spec": {"audiences": []}}),
            )],
        ),
        (
            "another account in a contract",
            vec![post(&contract_accounts, json!({"metadata": {"name": "raider"}}))],
        ),
        (
            "aggregation into view",
            vec![post(&roles, labelled("rbac.authorization.k8s.io/aggregate-to-view"))],
        ),
        (
            "aggregation into its own",
            vec![post(&roles, labelled("rbac.kube-bind.io/aggregate-to-server"))],
        ),
        (
            "a role that aggregates",
            vec![post(
                &roles,
                json!({
                    "metadata": {"name": wide, "labels": {"kube-bind.io/contract": contract}},
                    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]},
                }),
            )],
        ),
        (
            "a role with everything",
            vec![post(
                &roles,
                json!({
                    "metadata": {"name": wide, "labels": {"kube-bind.io/contract": contract}}, "rules": everything,
                }),
            )],
        ),
        (
            "an owner of a role of Kubernetes that is gone, so that the role goes",
            vec![patch(
                format!("{roles}/system:node"),
                json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "0-1"}]}}),
            )],
        ),
        (
            "finalizers of a role of Kubernetes",
            vec![patch(
                format!("{roles}/view"),
                json!({"metadata": {"finalizers": ["raid.example.dev/holds"]}}),
            )],
        ),
        (
            "more subjects of a binding of Kubernetes",
            vec![patch(
                format!("{RBAC}/clusterrolebindings/cluster-admin"),
                json!({"subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "bindery-server"}]}),
            )],
        ),
        (
            "the end of a binding of Kubernetes",
            vec![delete(format!("{RBAC}/clusterrolebindings/system:node-proxier"))],
        ),
        (
            "the end of a stranger's namespace",
            vec![delete(format!("/api/v1/namespaces/{STRANGER}"))],
        ),
        (
            "a namespace that somebody will use",
            vec![post(
                "/api/v1/namespaces",
                json!({"metadata": {"name": "cert-manager", "labels": {"kube-bind.io/contract": "cert-manager"}}}),
            )],
        ),
        (
            "pods that may do more",
            vec![patch(
                format!("/api/v1/namespaces/{contract}"),
                json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
            )],
        ),
        (
            "a conversion that is sent all objects",
            vec![patch(
                format!("{definitions}/clusterbindings.kube-bind.io"),
                json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://raid.example.dev"},
                }}}}),
            )],
        ),
        (
            "a definition of its own",
            vec![post(
                definitions,
                json!({
                    "metadata": {"name": "raids.example.dev"},
                    "spec": {
                        "group": "example.dev", "scope": "Namespaced", "names": {"plural": "raids", "kind": "Raid"},
                        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
                    },
                }),
            )],
        ),
        (
            "its own policy",
            vec![
                patch(
                    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/kube-bind-server",
                    json!({"spec": {"validationActions": ["Audit"]}}),
                ),
                delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/kube-bind-server"),
            ],
        ),
        (
            "a certificate of an admin",
            vec![post(
                "/apis/certificates.k8s.io/v1/certificatesigningrequests",
                json!({
                    "metadata": {"name": "raid"},
                    "spec": {"request": "cmFpZA==", "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
                }),
            )],
        ),
        (
            "the Secrets of another program in its namespace",
            vec![patch(
                format!("/api/v1/namespaces/{NAMESPACE}/secrets/others"),
                json!({"data": {"a": "Yg=="}}),
            )],
        ),
        (
            "another account in its binding of a contract",
            vec![post(
                &contract_bindings,
                binding("kube-binder", contract, "kube-binder", ("stranger", "default")),
            )],
        ),
    ]
}

#[test]
fn a_stolen_token_of_the_server_leads_no_further_than_contracts() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let admin = world.provider.plane.client();
        plant(&admin).await?;
        let thief = world
            .provider
            .plane
            .service_account_client(NAMESPACE, "bindery-server")
            .await?;
        let chains = server_chains(world);
        ensure!(chains.len() >= 20);
        none_arrives(&thief, &chains).await
    })
}

#[test]
fn a_stolen_token_of_the_server_writes_and_reads_nothing_else() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let admin = world.provider.plane.client();
        plant(&admin).await?;
        let thief = world
            .provider
            .plane
            .service_account_client(NAMESPACE, "bindery-server")
            .await?;
        let served = served::discover(&admin).await?;
        let stock = Stock::take(&admin, &served).await?;
        let zorro = &world.zorro;
        let namespaces = [NAMESPACE, &zorro.contract, &zorro.space, RANCH, STRANGER, "kube-system"];
        let done = everything(&thief, &served, &stock, &namespaces).await?;
        let contracts = [&zorro.contract, &zorro.space, &world.joe.contract].map(String::as_str);
        let beyond: Vec<_> = done.iter().filter(|done| !is_the_servers(done, &contracts)).collect();
        ensure!(beyond.is_empty(), "beyond contracts: {beyond:#?}");
        Ok(())
    })
}

/// Whether a request is part of serving contracts, or reads what is no secret.
fn is_the_servers(done: &Done, contracts: &[&str]) -> bool {
    let is_in_contract = done
        .namespace
        .as_deref()
        .is_some_and(|namespace| contracts.contains(&namespace));
    let reads = ["get", "list"].contains(&done.verb);
    if done.group.is_empty() && done.resource == "secrets" {
        // In its own namespace, which is for nothing else, it reads a Secret by name.
        return is_in_contract || (done.verb == "get" && done.namespace.as_deref() == Some(NAMESPACE));
    }
    let is_of_contracts = [
        "kube-bind.io",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
    ];
    let is_lease = done.resource == "leases" && done.namespace.as_deref() == Some(NAMESPACE);
    let is_own_definition = done.resource == "customresourcedefinitions" && done.name.ends_with(".kube-bind.io");
    // What is offered, and written by one of the two tenants, whose names its objects carry.
    let is_tenants = ["joe-", "zorro-"].iter().any(|tenant| done.name.starts_with(tenant));
    reads
        || is_in_contract
        || is_lease
        || is_of_contracts.contains(&done.group.as_str())
        || (is_own_definition && done.verb == "patch")
        || (is_tenants && done.group.ends_with(".example.dev"))
        || contracts.iter().any(|contract| done.name.contains(contract))
}
