//! The main functions of simulated processes: the shipped programs, assembled as their own `run` does it, on the simulated network.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use bindery_agent::{
    args::Args as KonnectorArgs,
    run::Konnector,
    session::{
        client_certificate::ClientCertificateFiles,
        network::{BackendDialer, Network},
    },
};
use bindery_runtime::{
    client::{ClusterTraffic, Network as KubernetesNetwork},
    lease::Candidate,
    telemetry,
};
use bindery_sdk::Channel;
use bindery_server::{
    args::Args as ServerArgs,
    audit::AuditLog,
    front::{self, Connection, Metrics},
    leader,
    oidc::{Fetch, Issuers, OidcMetrics},
    state::State,
    tls::CaBundle,
};
use clap::Parser as _;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use http::Uri;
use hyper_util::rt::TokioIo;
use kube::Config;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tower::service_fn;

use super::{
    World,
    arrive::grpc_host,
    cluster::cluster_host,
    link::{Outbox, ProcessTransport, SimStream},
    process::{ProcessId, ProcessSlot},
};
use crate::{faults::ProcessName, topology::Cluster};

/// Static token of the konnector's ServiceAccount.
pub(super) const KONNECTOR_TOKEN: &str = "konnector";
/// Static token of the server's ServiceAccount.
pub(super) const SERVER_TOKEN: &str = "server";

/// Leaders renew less often than by default, for nothing else happens most of the time. Leases last as long as by default.
const RETRY_PERIOD: &str = "--lease-retry-period=4";
/// Konnectors send heartbeats more often than by default, so that a history has backups from before one and from after one.
const HEARTBEATS: &str = "--heartbeat-interval=1m";
/// How long the calls of a person may take.
const CALL_TIME_MAX: Duration = Duration::from_mins(2);

/// A main function, and where the connections to the port of its process go.
type Main = (
    BoxFuture<'static, anyhow::Result<()>>,
    Option<mpsc::UnboundedSender<SimStream>>,
);

/// Dials the gRPC ports of servers.
#[derive(Debug)]
struct SimDialer(Arc<Outbox>);

impl BackendDialer for SimDialer {
    fn channel(&self, address: &str) -> Channel {
        let host = address
            .parse::<Uri>()
            .ok()
            .and_then(|uri| uri.host().map(str::to_owned));
        let (host, outbox) = (host.unwrap_or_default(), Arc::clone(&self.0));
        let connector = service_fn(move |_: Uri| {
            let (host, outbox) = (host.clone(), Arc::clone(&outbox));
            async move { outbox.dial(host).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://backend.sim").connect_with_connector_lazy(connector)
    }
}

impl World {
    /// Lets a person call the gRPC port of a provider's server with a token, and runs the world until the calls are done, for two
    /// minutes at most. The observer sees each step: see [`Self::observe`].
    pub fn call<T, F>(
        &mut self,
        provider: u8,
        token: &str,
        calls: impl FnOnce(bindery_sdk::Client) -> F + Send + 'static,
    ) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let before = self.exports(provider);
        let outbox = Arc::new(Outbox::default());
        let dialer = SimDialer(Arc::clone(&outbox));
        let address = format!("https://{}", grpc_host(provider));
        let token = secrecy::SecretString::from(token.to_owned());
        let outcome = Arc::new(parking_lot::Mutex::new(None));
        let cell = Arc::clone(&outcome);
        let main = async move {
            let builder = bindery_sdk::Client::builder(&address).token(token);
            let client = builder.build_with_channel(dialer.channel(&address))?;
            let done = calls(client).await;
            *cell.lock() = Some(done);
            Ok(())
        };
        let id = ProcessId(self.processes.len());
        self.processes
            .push(ProcessSlot::new(None, format!("a caller of provider {provider}")));
        self.start_main(id, main.boxed(), outbox, None);
        let until = self.now + CALL_TIME_MAX;
        while outcome.lock().is_none() {
            if self.step_until(until).is_none() || !self.is_call_to_go_on() {
                break;
            }
        }
        self.stop(id);
        if self.exports(provider) != before {
            self.changed_by_people += 1;
        }
        outcome.lock().take()
    }

    /// The exports of a provider, which binds and unbinds change.
    fn exports(&self, provider: u8) -> Vec<Arc<Value>> {
        let api = self.api(Cluster::Provider(provider)).into_iter();
        let objects = api.flat_map(|api| api.objects_of("kube-bind.io", "apiserviceexports", None));
        objects.map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The main function of a process.
    pub(super) fn main_of(&self, name: ProcessName, outbox: &Arc<Outbox>) -> Main {
        let install = format!("--install-crds={}", self.processes_install);
        match name {
            ProcessName::Konnector { of, replica } => {
                let main = konnector(of, format!("konnector-{replica}"), install, Arc::clone(outbox));
                (main.boxed(), None)
            }
            ProcessName::Server { provider, replica } => {
                let (incoming, connections) = mpsc::unbounded_channel();
                let replica = format!("server-{replica}");
                let main = server(provider, replica, install, Arc::clone(outbox), connections);
                (main.boxed(), Some(incoming))
            }
        }
    }
}

fn network(outbox: &Arc<Outbox>) -> KubernetesNetwork {
    KubernetesNetwork::of(ProcessTransport(Arc::clone(outbox)))
}

/// How a process reaches the cluster that it runs in.
fn own_cluster(cluster: Cluster, token: &str) -> anyhow::Result<Config> {
    let url: Uri = format!("https://{}", cluster_host(cluster)).parse()?;
    let mut config = Config::new(url);
    config.auth_info.token = Some(token.to_owned().into());
    Ok(config)
}

async fn konnector(cluster: Cluster, replica: String, install: String, outbox: Arc<Outbox>) -> anyhow::Result<()> {
    let identity = format!("--lease-identity={replica}");
    let args = KonnectorArgs::try_parse_from([
        "bindery-konnector",
        "--namespace=kube-bind",
        RETRY_PERIOD,
        HEARTBEATS,
        &install,
        &identity,
    ])?;
    let config = own_cluster(cluster, KONNECTOR_TOKEN)?;
    let network = Network {
        kubernetes: network(&outbox),
        backends: Some(Arc::new(SimDialer(outbox))),
    };
    let certificate = ClientCertificateFiles::default();
    let konnector = Konnector::start(&args, &config, network, certificate, &mut telemetry::registry())?;
    konnector.work(&args, &CancellationToken::new()).await
}

async fn server(
    provider: u8,
    replica: String,
    install: String,
    outbox: Arc<Outbox>,
    connections: mpsc::UnboundedReceiver<SimStream>,
) -> anyhow::Result<()> {
    let cluster = Cluster::Provider(provider);
    let args = ServerArgs::try_parse_from([
        "bindery-server",
        "--namespace=kube-bind",
        "--grpc-reflection=false",
        RETRY_PERIOD,
        &install,
        &format!("--lease-identity={replica}"),
        &format!("--external-grpc-address=https://{}", grpc_host(provider)),
        &format!("--external-address=https://{}", cluster_host(cluster)),
    ])?;
    let config = own_cluster(cluster, SERVER_TOKEN)?;
    let network = network(&outbox);
    let clients = network.clients(&config, None, 1, &ClusterTraffic::default())?;
    let settings = args.settings(&config, None)?;
    let candidate = Candidate::new(
        clients.lease.clone(),
        &args.lease,
        "bindery-server",
        &settings.namespace,
    )?;
    let audit = AuditLog::off();
    let state = State::start(clients, &config, network, settings, CaBundle::default(), audit).await?;
    let mut registry = telemetry::registry();
    let metrics = Metrics::new(&mut registry);
    let no_fetch = Arc::new(|_: &[_]| Arc::new(NoIssuer) as Arc<dyn Fetch>);
    let issuers = Issuers::new(no_fetch, OidcMetrics::default(), None);
    let stop = CancellationToken::new();
    let connections = UnboundedReceiverStream::new(connections);
    let connections = connections.map(|stream| {
        let peer = stream.peer();
        Connection::new(stream, peer)
    });
    let front = tokio::spawn(front::serve_connections(
        state.clone(),
        issuers,
        connections,
        metrics,
        stop.clone(),
    ));
    let leader = tokio::spawn(leader::lead(state, candidate, stop));
    tokio::select! {
        ended = front => ended?.context("the gRPC port closed")?,
        ended = leader => ended??,
    }
    anyhow::bail!("a part of the server stopped unexpectedly")
}

/// There are no issuers of ID tokens.
#[derive(Debug)]
struct NoIssuer;

impl Fetch for NoIssuer {
    fn get(&self, url: Uri) -> BoxFuture<'_, Result<bytes::Bytes, bindery_server::oidc::FetchError>> {
        futures::future::ready(Err(bindery_server::oidc::FetchError::NotHttps(url))).boxed()
    }
}
