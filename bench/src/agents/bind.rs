//! Creates one contract for each simulated cluster, by binding the template with the tokens of a few owners.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bindery_api::backend::Backend;
use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestSpec, ClusterIdentity, CreateBindableResourcesRequestRequest,
    NameRef, ObjectMeta,
};
use bindery_runtime::kubeconfig::ProviderAccess;
use bindery_sdk::Client;
use futures::{StreamExt as _, stream};

use super::{Answer, Args};
use crate::percentiles::Percentiles;

/// How long a bind may take in all.
const PATIENCE: Duration = Duration::from_mins(3);

/// The users who bind, with a client for each token.
pub(super) struct Owners {
    clients: Vec<Client>,
    template: Arc<str>,
}

/// What an agent needs to know of its contract.
#[derive(Debug)]
pub(super) struct Contract {
    /// The namespace on the provider.
    pub(super) namespace: Arc<str>,
    /// Name of the export.
    pub(super) export: Arc<str>,
    /// The server, and the token for it.
    pub(super) backend: Backend,
}

// === impl Owners ===

impl Owners {
    pub(super) fn new(args: &Args) -> Result<Self> {
        let ca = fs::read(&args.ca).context("--ca")?;
        let client = |file| {
            Client::builder(&args.server)
                .ca_pem(ca.clone())
                .token_file(file)
                .build()
        };
        let clients: Result<_, _> = args.tokens.iter().map(client).collect();
        Ok(Self {
            clients: clients?,
            template: args.template.as_str().into(),
        })
    }

    pub(super) fn clients(&self) -> Vec<Client> {
        self.clients.clone()
    }

    /// Binds `count` clusters, numbered from `from`, with `concurrency` requests at once.
    pub(super) async fn bind(&self, from: usize, count: usize, concurrency: usize) -> (Answer, Vec<Contract>) {
        let start = Instant::now();
        let one = async |number: usize| {
            let began = Instant::now();
            let client = &self.clients[number % self.clients.len()];
            let contract = bind(client, &self.template, number).await;
            contract.map(|contract| (contract, began.elapsed()))
        };
        let all: Vec<_> = stream::iter(from..from + count)
            .map(one)
            .buffer_unordered(concurrency)
            .collect()
            .await;
        let mut answer = Answer {
            seconds: start.elapsed().as_secs_f64(),
            ..Answer::default()
        };
        let (mut contracts, mut times) = (Vec::new(), Vec::new());
        for outcome in all {
            match outcome {
                Ok((contract, time)) => {
                    contracts.push(contract);
                    times.push(time);
                }
                Err(error) => answer.failed(&error),
            }
        }
        answer.count = contracts.len();
        answer.percentiles = Percentiles::of(times);
        (answer, contracts)
    }
}

async fn bind(client: &Client, template: &str, number: usize) -> Result<Contract> {
    let bound = client.bind_by_request(wish(template, number), PATIENCE, |_| {}).await?;
    let kubeconfig = bound.kubeconfig.context("a bind without a kubeconfig")?;
    let access = ProviderAccess::parse(kubeconfig.expose())?;
    Ok(Contract {
        namespace: access.namespace,
        export: bound.response.binding_name.into(),
        backend: access.backend.context("a kubeconfig without a backend")?,
    })
}

fn wish(template: &str, number: usize) -> CreateBindableResourcesRequestRequest {
    let request = BindableResourcesRequest {
        metadata: Some(ObjectMeta {
            name: template.to_owned(),
            ..ObjectMeta::default()
        }),
        spec: Some(BindableResourcesRequestSpec {
            template_ref: Some(NameRef {
                name: template.to_owned(),
            }),
            cluster_identity: Some(ClusterIdentity {
                identity: format!("bench-{number:06}"),
                ..ClusterIdentity::default()
            }),
            ..BindableResourcesRequestSpec::default()
        }),
        status: None,
    };
    CreateBindableResourcesRequestRequest {
        bindable_resources_request: Some(request),
        ..CreateBindableResourcesRequestRequest::default()
    }
}

// === impl Answer ===

impl Answer {
    /// Counts something that failed, and keeps the first for people.
    pub(super) fn failed(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.error.get_or_insert_with(|| format!("{error:#}"));
    }
}
