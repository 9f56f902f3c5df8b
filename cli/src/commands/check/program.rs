//! Konnector and server: the rights of their accounts, their policies and Leases.

use bindery_api::{crds, names};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::SignedDuration;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::Value;

use super::{
    cluster::{CONCURRENCY, Cluster, username},
    lease,
    policies::{self, Attempt},
    read,
};
use crate::{
    args::KonnectorArgs,
    check::{
        Right,
        facts::{ApiFacts, DeploymentFacts, Fact, KonnectorFacts, ProgramFacts},
        rights,
    },
    errors::Failure,
    konnector,
};

/// A program as its shipped manifests describe it, and the account that it runs as here.
pub(super) struct Program<'a> {
    pub(super) manifests: &'a [Value],
    /// Name of ServiceAccount and Deployment in the manifests, whose namespace is `kube-bind`.
    pub(super) shipped_account: &'static str,
    /// Namespace and name of the ServiceAccount here.
    pub(super) account: (&'a str, &'a str),
    pub(super) lease: &'static str,
    pub(super) attempts: Vec<Attempt>,
}

pub(super) async fn konnector(
    cluster: &Cluster,
    api: &Fact<ApiFacts>,
    args: &KonnectorArgs,
) -> Result<KonnectorFacts, Failure> {
    let manifests = konnector::shipped()?;
    let account = (
        args.konnector_namespace.as_str(),
        args.konnector_service_account.as_str(),
    );
    let program = Program {
        manifests: &manifests,
        shipped_account: names::KONNECTOR,
        account,
        lease: names::KONNECTOR_LEASE,
        attempts: policies::of_konnector(account),
    };
    let (program, missing_definitions) = tokio::join!(facts(cluster, api, program), missing_definitions(cluster));
    Ok(KonnectorFacts {
        missing_definitions,
        program: program?,
    })
}

pub(super) async fn facts(
    cluster: &Cluster,
    api: &Fact<ApiFacts>,
    program: Program<'_>,
) -> Result<ProgramFacts, Failure> {
    let (home, name) = program.account;
    let rights = rights(program.manifests, program.shipped_account, home);
    let shipped = policies::shipped(program.manifests, |text| named(text, &program));
    let ahead = api.as_ref().map_or(SignedDuration::ZERO, |api| api.ahead);
    let (deployment, missing_rights, policies, lease) = tokio::join!(
        deployment(cluster, home, program.shipped_account),
        missing(cluster, rights, program.account),
        policies::facts(cluster, shipped, &program.attempts),
        lease::facts(&cluster.clients, (home, program.lease), ahead, cluster.limit),
    );
    Ok(ProgramFacts {
        account: (home.to_owned(), name.to_owned()),
        deployment_name: program.shipped_account,
        deployment,
        missing_rights,
        policies: policies?,
        lease,
        lease_name: program.lease,
    })
}

/// Puts the account of a program into the text of a shipped manifest.
fn named(text: &str, program: &Program<'_>) -> String {
    let (home, name) = program.account;
    let shipped = username((names::KUBE_BIND_NAMESPACE, program.shipped_account));
    text.replace(&shipped, &username((home, name)))
        .replace(&format!("'{}'", names::KUBE_BIND_NAMESPACE), &format!("'{home}'"))
}

/// The rights that an account lacks, several reviews at a time.
async fn missing(cluster: &Cluster, rights: Vec<Right>, account: (&str, &str)) -> Fact<Vec<Right>> {
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client());
    let reviewed = stream::iter(rights)
        .map(async |right| {
            let review = review(&right, account);
            let params = PostParams::default();
            let answer = read::fact(cluster.limit, reviews.create(&params, &review)).await?;
            let is_held = answer.status.is_some_and(|status| status.allowed);
            Ok((!is_held).then_some(right))
        })
        .buffered(CONCURRENCY);
    let missing: Vec<Option<Right>> = reviewed.try_collect().await?;
    Ok(missing.into_iter().flatten().collect())
}

fn review(right: &Right, account: (&str, &str)) -> SubjectAccessReview {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource.as_str(), None),
    };
    let (namespace, _) = account;
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(username(account)),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                namespace: right.namespace.clone(),
                group: Some(right.group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                name: right.name.clone(),
                verb: Some(right.verb.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

async fn missing_definitions(cluster: &Cluster) -> Fact<Vec<String>> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let mut missing = Vec::new();
    for definition in crds::for_consumer() {
        let name = definition.name_any();
        let found = read::fact(cluster.limit, api.get_opt(&name)).await?;
        if !found.is_some_and(|found| is_served(&found)) {
            missing.push(name);
        }
    }
    Ok(missing)
}

fn is_served(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "Established")
        .any(|condition| condition.status == "True")
}

async fn deployment(cluster: &Cluster, namespace: &str, name: &str) -> Fact<Option<DeploymentFacts>> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace);
    let found = read::fact(cluster.limit, deployments.get_opt(name)).await?;
    Ok(found.map(|deployment| {
        let helm = konnector::release_of_helm(&deployment);
        let status = deployment.status.unwrap_or_default();
        let spec = deployment.spec.unwrap_or_default();
        let pod = spec.template.spec.unwrap_or_default();
        let wanted = spec.replicas.unwrap_or(1);
        let [all, updated, available] =
            [status.replicas, status.updated_replicas, status.available_replicas].map(Option::unwrap_or_default);
        DeploymentFacts {
            image: pod.containers.into_iter().next().and_then(|container| container.image),
            wanted,
            available,
            // As `kubectl rollout status` says it.
            is_rolled_out: status.observed_generation >= deployment.metadata.generation
                && updated >= wanted
                && all <= updated
                && available >= updated,
            helm,
        }
    }))
}
