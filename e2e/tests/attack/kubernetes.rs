//! The attacker and the provider's API server: every verb, on every resource, everywhere.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::NAMESPACE;
use http::Method;
use k8s_openapi::api::authorization::v1::{
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectRulesReviewStatus,
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    attempt::{self, Attempt, Expect, send},
    generate::{self, Raid},
    rights::{self, OPEN_PATHS, Right, Where},
    served::{self, Stock},
    tenant::{RANCH, Tenant},
    world::{Scope, World, attack},
};

/// Namespaces that belong to somebody else: the other tenant, the server, the cluster.
fn foreign(world: &World) -> Vec<&str> {
    let zorro = &world.zorro;
    vec![
        &zorro.contract,
        &zorro.space,
        "zorro-gang",
        NAMESPACE,
        "kube-system",
        "kube-public",
        "default",
        RANCH,
    ]
}

async fn every_verb_on_every_resource(world: &World) -> Result<()> {
    let admin = world.provider.plane.client();
    let served = served::discover(&admin).await?;
    let stock = Stock::take(&admin, &served).await?;
    let mut namespaces = foreign(world);
    let before = stock.versions(&namespaces[..2], "zorro hides");
    namespaces.extend([world.joe.contract.as_str(), &world.joe.space]);
    let raid = Raid {
        attacker: &world.joe,
        scope: world.scope,
        served: &served,
        stock: &stock,
        namespaces: &namespaces,
    };
    let attempts = generate::attempts(raid);
    // Less would mean that most was not attacked.
    ensure!(attempts.len() > 3_000, "only {} attempts", attempts.len());
    ensure!(attempts.iter().any(|attempt| attempt.expect == Expect::Own));
    attempt::all(&world.joe.client, &attempts).await?;
    // None of it has written anything of the other's.
    let after = Stock::take(&admin, &served)
        .await?
        .versions(&namespaces[..2], "zorro hides");
    for (object, version) in before
        .iter()
        .filter(|(object, _)| !object.starts_with("clusterbindings."))
    {
        ensure!(
            after.get(object) == Some(version),
            "{object} was {version} and is {:?}",
            after.get(object)
        );
    }
    Ok(())
}

#[test]
fn every_verb_on_every_resource_is_refused_but_the_listed_own() -> Result<()> {
    attack(Scope::Namespaced, every_verb_on_every_resource)
}

#[test]
fn every_verb_is_refused_but_the_listed_own_where_konnectors_watch_the_cluster() -> Result<()> {
    attack(Scope::Cluster, every_verb_on_every_resource)
}

/// What the API server itself says of the attacker's rights in a namespace must be the table, no less and no more.
pub(crate) async fn rules_are_the_table(world: &World, tenant: &Tenant, namespace: &str) -> Result<()> {
    let spec = SelfSubjectRulesReviewSpec {
        namespace: Some(namespace.to_owned()),
    };
    let review = SelfSubjectRulesReview {
        spec,
        ..SelfSubjectRulesReview::default()
    };
    let reviews: Api<SelfSubjectRulesReview> = Api::all(tenant.client.clone());
    let status = reviews
        .create(&PostParams::default(), &review)
        .await?
        .status
        .context("no answer")?;
    ensure!(
        !status.incomplete,
        "the review is incomplete: {:?}",
        status.evaluation_error
    );
    let says = said(&status)?;
    let table = rights::of(tenant, world.scope, Where::Namespace(namespace));
    let more: Vec<_> = says.difference(&table).collect();
    let less: Vec<_> = table.difference(&says).collect();
    ensure!(
        more.is_empty() && less.is_empty(),
        "in {namespace}, not listed: {more:?}; listed and not given: {less:?}"
    );
    let open: BTreeSet<_> = status
        .non_resource_rules
        .iter()
        .flat_map(|rule| rule.non_resource_urls.iter().flatten())
        .map(String::as_str)
        .collect();
    ensure!(open == OPEN_PATHS.into_iter().collect(), "paths: {open:?}");
    Ok(())
}

fn said(status: &SubjectRulesReviewStatus) -> Result<BTreeSet<Right>> {
    let mut rights = BTreeSet::new();
    for rule in &status.resource_rules {
        let (groups, resources) = (rule.api_groups.iter().flatten(), rule.resources.iter().flatten());
        let verbs = rule.verbs.iter();
        ensure!(
            rule.resource_names.as_ref().is_none_or(Vec::is_empty),
            "a rule by name: {rule:?}"
        );
        for ((group, resource), verb) in groups
            .flat_map(|group| resources.clone().map(move |resource| (group, resource)))
            .flat_map(|pair| verbs.clone().map(move |verb| (pair, verb)))
        {
            ensure!(
                ![group, resource, verb].iter().any(|part| part.contains('*')),
                "a wildcard: {rule:?}"
            );
            rights.insert((verb.clone(), group.clone(), resource.clone()));
        }
    }
    Ok(rights)
}

async fn the_rules(world: &World) -> Result<()> {
    let joe = &world.joe;
    for namespace in foreign(world)
        .into_iter()
        .chain([joe.contract.as_str(), &joe.space, "no-such"])
    {
        rules_are_the_table(world, joe, namespace).await?;
    }
    Ok(())
}

#[test]
fn the_api_server_knows_of_no_right_beyond_the_table() -> Result<()> {
    attack(Scope::Namespaced, the_rules)
}

#[test]
fn the_api_server_knows_of_no_right_beyond_the_table_where_konnectors_watch_the_cluster() -> Result<()> {
    attack(Scope::Cluster, the_rules)
}

#[test]
fn nobody_is_impersonated() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let (user, group) = ("Impersonate-User", "Impersonate-Group");
        let server = format!("system:serviceaccount:{NAMESPACE}:bindery-server");
        let somebody = [
            vec![(user, world.zorro.account())],
            vec![(user, server)],
            vec![(user, "system:admin".to_owned())],
            vec![(user, "system:serviceaccount:zorro-gang:binder".to_owned())],
            vec![(user, world.joe.account()), (group, "system:masters".to_owned())],
            vec![
                (user, world.joe.account()),
                ("Impersonate-Extra-Scopes", "all".to_owned()),
            ],
            vec![(user, world.joe.account()), ("Impersonate-Uid", "0-1-2".to_owned())],
        ];
        let paths = [
            format!(
                "/apis/kube-bind.io/v1alpha2/namespaces/{}/apiserviceexports",
                world.zorro.contract
            ),
            format!(
                "/apis/kube-bind.io/v1alpha2/namespaces/{}/apiserviceexports",
                world.joe.contract
            ),
            "/api/v1/namespaces/kube-system/secrets".to_owned(),
        ];
        let mut attempts = Vec::new();
        for path in paths {
            for headers in &somebody {
                let mut attempt = Attempt::new(Method::GET, path.clone(), Expect::Forbidden);
                attempt.headers.clone_from(headers);
                attempts.push(attempt);
            }
        }
        attempt::all(&world.joe.client, &attempts).await
    })
}

#[test]
fn no_right_is_granted_or_widened() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let joe = &world.joe;
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let subject = json!([{"kind": "ServiceAccount", "name": "kube-binder", "namespace": joe.contract}]);
        let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let post = |path: String, body: Value| {
            let mut attempt = Attempt::new(Method::POST, format!("{path}?dryRun=All"), Expect::Forbidden);
            attempt.body = Some(("application/json", body));
            attempt
        };
        let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let mut attempts = Vec::new();
        for target in [
            "cluster-admin",
            "kube-binder",
            "bindery-server",
            "bindery-server-contract",
            "bindery-server-exports",
        ] {
            let binding = json!({"metadata": {"name": "raid"}, "roleRef": role(target), "subjects": subject});
            attempts.push(post(format!("{rbac}/clusterrolebindings"), binding.clone()));
            for namespace in foreign(world).into_iter().chain([joe.contract.as_str(), &joe.space]) {
                attempts.push(post(
                    format!("{rbac}/namespaces/{namespace}/rolebindings"),
                    binding.clone(),
                ));
            }
        }
        let own = json!({"metadata": {"name": "raid"}, "rules": everything});
        attempts.push(post(format!("{rbac}/namespaces/{}/roles", joe.contract), own.clone()));
        attempts.push(post(format!("{rbac}/namespaces/{}/roles", joe.space), own.clone()));
        // What carries this label becomes the server's own right.
        let mut aggregated = own;
        aggregated["metadata"]["labels"] = json!({"rbac.kube-bind.io/aggregate-to-server": "true"});
        attempts.push(post(format!("{rbac}/clusterroles"), aggregated));
        // Tokens of others, and one's own without end.
        for (namespace, name) in [
            (joe.contract.as_str(), "kube-binder"),
            (&world.zorro.contract, "kube-binder"),
            (NAMESPACE, "bindery-server"),
            ("kube-system", "default"),
            (&joe.space, "default"),
        ] {
            let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [], "expirationSeconds": 315_360_000}});
            attempts.push(post(
                format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"),
                request,
            ));
        }
        attempt::all(&joe.client, &attempts).await?;
        // Verbs that are no requests.
        for (verb, group, resource) in [
            ("bind", "rbac.authorization.k8s.io", "clusterroles"),
            ("bind", "rbac.authorization.k8s.io", "roles"),
            ("bind", "kube-bind.io", "apiserviceexporttemplates"),
            ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
            ("escalate", "rbac.authorization.k8s.io", "roles"),
            ("impersonate", "", "users"),
            ("impersonate", "", "groups"),
            ("impersonate", "", "serviceaccounts"),
            ("impersonate", "authentication.k8s.io", "userextras"),
            ("approve", "certificates.k8s.io", "signers"),
            ("sign", "certificates.k8s.io", "signers"),
            ("use", "policy", "podsecuritypolicies"),
            ("overwrite", "herds.example.dev", "herds"),
            ("overwrite", "trails.example.dev", "trails"),
            ("*", "*", "*"),
        ] {
            for namespace in ["", &joe.contract, &joe.space, &world.zorro.contract] {
                let attributes = json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace});
                let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}});
                let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
                let answer = send(
                    &joe.client,
                    &Method::POST,
                    path,
                    Some(&("application/json", review)),
                    &[],
                )
                .await?;
                let answer: Value = serde_json::from_slice(&answer.body)?;
                ensure!(
                    answer["status"]["allowed"] == false,
                    "{attributes} is allowed: {answer}"
                );
            }
        }
        Ok(())
    })
}

#[test]
fn paths_that_are_no_resources_are_those_that_everybody_sees() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let admin = world.provider.plane.client();
        let answer = send(&admin, &Method::GET, "/", None, &[]).await?;
        let root: Value = serde_json::from_slice(&answer.body)?;
        let listed = root["paths"].as_array().context("no paths")?;
        let mut paths: BTreeSet<_> = listed.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        ensure!(paths.len() > 50, "only {} paths", paths.len());
        paths.extend(
            [
                "/",
                "/metrics",
                "/configz",
                "/debug/pprof/",
                "/logs/",
                "/statusz",
                "/flagz",
                "/debug/flags/v",
            ]
            .map(str::to_owned),
        );
        let is_open = |path: &str| {
            OPEN_PATHS.iter().any(|open| match open.strip_suffix('*') {
                Some(beginning) => path.starts_with(beginning),
                None => path == *open,
            })
        };
        let mut attempts = Vec::new();
        for path in &paths {
            // Listed with and without a slash at its end; with it, there is nothing.
            let path = path.replace("/openapi/v3/", "/openapi/v3");
            let path = &path;
            let expect = if is_open(path) { Expect::Own } else { Expect::Forbidden };
            attempts.push(Attempt::new(Method::GET, path.clone(), expect));
        }
        attempt::all(&world.joe.client, &attempts).await
    })
}
