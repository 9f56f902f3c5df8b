//! The provider's cluster, as its admin sees it.

use std::{collections::BTreeMap, time::Duration};

use bindery_api::{
    Condition, Conditions as _,
    conditions::READY,
    meta, names,
    revocation::revocation,
    v1alpha2::{APIServiceExportTemplate, ClusterBinding},
};
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{
    cluster::Cluster,
    policies,
    program::{self, Program},
    read,
};
use crate::{
    args::{KubeContext, ServerArgs},
    check::facts::{Fact, LoginFacts, ProviderFacts},
    consumer::Consumer,
    errors::Failure,
    install::owner::CredentialOwner,
    server,
};

pub(super) async fn facts(
    cluster: KubeContext<'_>,
    args: &ServerArgs,
    owners: &[CredentialOwner],
    consumer: &Consumer,
    limit: Duration,
) -> Result<ProviderFacts, Failure> {
    let cluster = Cluster::open(cluster, limit).await?;
    let (api, bindings, unready_templates, identity) = tokio::join!(
        cluster.api(),
        cluster_bindings(&cluster),
        unready_templates(&cluster),
        read::fact(limit, consumer.identity())
    );
    let contracts: Vec<&str> = owners.iter().filter_map(CredentialOwner::contract).collect();
    let is_of_consumer = |binding: &&ClusterBinding| {
        let is_named = binding
            .metadata
            .namespace
            .as_deref()
            .is_some_and(|name| contracts.contains(&name));
        is_named
            || identity
                .as_deref()
                .is_ok_and(|own| meta::identity(&binding.metadata) == Some(own))
    };
    let revoked = bindings.map(|bindings| {
        let own = bindings.iter().filter(is_of_consumer);
        own.map(|binding| (binding.namespace().unwrap_or_default(), revocation(binding)))
            .collect::<BTreeMap<_, _>>()
    });
    // A contract whose credentials are revoked has no rights, so that its request would not reach the policy.
    let alive = revoked.iter().flatten().find(|(_, revocation)| revocation.is_none());
    let manifests = server::shipped()?;
    let program = Program {
        manifests: &manifests,
        shipped_account: names::SERVER,
        account: (&args.server_namespace, &args.server_service_account),
        lease: names::SERVER,
        attempts: policies::of_server(
            (&args.server_namespace, &args.server_service_account),
            alive.map(|(contract, _)| contract.as_str()),
        ),
    };
    let server = program::facts(&cluster, &api, program).await?;
    Ok(ProviderFacts {
        cluster: cluster.facts(api),
        server,
        revoked,
        unready_templates,
        // Which login is meant is known once the contracts are.
        login: LoginFacts::NotTried(String::new()),
    })
}

async fn cluster_bindings(cluster: &Cluster) -> Fact<Vec<ClusterBinding>> {
    let bindings: Api<ClusterBinding> = Api::all(cluster.client());
    let listed = read::fact(cluster.limit, bindings.list(&ListParams::default())).await?;
    Ok(listed.items)
}

async fn unready_templates(cluster: &Cluster) -> Fact<Vec<(String, Condition)>> {
    let templates: Api<APIServiceExportTemplate> = Api::all(cluster.client());
    let listed = read::fact(cluster.limit, templates.list(&ListParams::default())).await?;
    let unready = listed.items.into_iter().filter_map(|template| {
        let ready = template.condition(READY).filter(|ready| !ready.is_true())?;
        Some((template.name_any(), ready.clone()))
    });
    Ok(unready.collect())
}
