//! Starts the parts of the server in order, and stops them in order.

use anyhow::{Context as _, bail};
use bindery_api::names::SERVER;
use bindery_runtime::{
    admin::{self, Readiness},
    client::{self, Clients, Network, TrafficMetrics},
    descriptors,
    lease::Candidate,
    shutdown, telemetry, traces,
};
use bindery_server::{
    args::Args,
    audit::AuditLog,
    cluster_info,
    front::{self, Listener, Metrics},
    leader,
    metrics::Inventory,
    settings::Settings,
    state::State,
};
use kube::Config;
use tokio::{
    task::JoinHandle,
    time::{Duration, timeout},
};
use tokio_util::sync::CancellationToken;

mod authentication;
mod events;
mod tls;

/// Idle connections to the API server per kind of traffic, as many as there are concurrent writes.
const IDLE_CONNECTIONS: usize = 32;
/// How long the end of the server waits for the last lines of the audit log.
const AUDIT_GRACE: Duration = Duration::from_secs(5);
/// How long calls that are under way may take after the server was told to stop.
const GRACE: Duration = Duration::from_secs(20);

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let traces = traces::init(&args.log, &args.traces, "bindery-server")?;
    let outcome = Box::pin(start(args)).await;
    traces.flush().await;
    outcome
}

async fn start(args: &Args) -> anyhow::Result<()> {
    // Both fail only if one is installed already, which serves as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    // Each connection of a konnector needs a descriptor. The listener logs when they run out.
    if let Err(error) = descriptors::raise() {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let stop = shutdown::on_signal()?;
    let config = client::config(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let network = Network::default();
    let mut registry = telemetry::registry();
    let traffic = TrafficMetrics::register(&mut registry).of_cluster("provider");
    let clients = network.clients(&config, None, IDLE_CONNECTIONS, &traffic)?;
    let preparing = stop.run_until_cancelled(Box::pin(async {
        let settings = settings(args, &config, &clients).await?;
        let tls = tls::start(args, &settings, &clients).await?;
        let issuers = authentication::start(args, &clients).await?;
        anyhow::Ok((settings, tls, issuers))
    }));
    let Some(prepared) = preparing.await else {
        return Ok(());
    };
    let (settings, tls, issuers) = prepared?;
    let metrics = Metrics::new(&mut registry);
    let limits = settings.connections;
    let listener = Listener::bind(args.listen_address, tls.port.clone(), limits, metrics.clone()).await?;
    let candidate = Candidate::new(clients.lease.clone(), &args.lease, SERVER, &settings.namespace)?;
    let audit = match &args.audit_log_path {
        Some(path) => AuditLog::open(path, &mut registry)?,
        None => AuditLog::off(),
    };
    let starting = State::start(clients, &config, network, settings, tls.ca.clone(), audit.clone());
    let Some(state) = stop.run_until_cancelled(starting).await else {
        return Ok(());
    };
    let state = state?;

    tls.register(&mut registry);
    issuers.register(&mut registry);
    state.metrics.register(&mut registry);
    state.refusals.register(&mut registry);
    state.policies.register(&mut registry);
    Inventory::register(state.caches.clone(), &mut registry);
    let end = CancellationToken::new();
    // Until the last call has ended, also after the server was told to stop.
    let tls = tls.follow(&end);
    let issuers_followed = tokio::spawn(issuers.files.follow(end.clone()));
    let readiness = state.readiness(Readiness::default());
    let admin = tokio::spawn(admin::serve(args.admin_address, readiness, registry, end.clone()));
    let front = tokio::spawn(front::serve(
        state.clone(),
        issuers.issuers,
        listener,
        metrics,
        stop.clone(),
    ));
    let leader = tokio::spawn(leader::lead(state, candidate, stop.clone()));
    let outcome = supervise(stop, (front, leader), (admin, tls, issuers_followed)).await;
    end.cancel();
    audit.flush(AUDIT_GRACE).await;
    outcome
}

/// The settings, for which the cluster is asked where it is reached if no flag says it.
async fn settings(args: &Args, config: &Config, clients: &Clients) -> anyhow::Result<Settings> {
    let service_host = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    let found = if args.needs_cluster_info(config, service_host.as_deref()) {
        let own = config.cluster_url.to_string();
        Some(cluster_info::find(&clients.write, &own).await?)
    } else {
        None
    };
    Ok(args.settings(config, found)?)
}

/// Waits for the end of the gRPC server and the controllers, which are told to stop by `stop`, beside the parts that run until
/// both have ended. The end of any of them ends the process.
async fn supervise(
    stop: CancellationToken,
    (mut front, mut leader): (
        JoinHandle<Result<(), front::ServeError>>,
        JoinHandle<anyhow::Result<()>>,
    ),
    (mut admin, mut tls, mut issuers): (JoinHandle<std::io::Result<()>>, JoinHandle<()>, JoinHandle<()>),
) -> anyhow::Result<()> {
    tokio::select! {
        ended = &mut front => ended?.context("the gRPC port closed")?,
        ended = &mut leader => ended??,
        ended = &mut admin => ended?.context("the admin port closed")?,
        ended = &mut tls => ended.context("the renewal of certificates ended")?,
        ended = &mut issuers => ended.context("the issuers of ID tokens are no longer followed")?,
        () = stop.cancelled() => {}
    }
    if !stop.is_cancelled() {
        bail!("a part of the server stopped unexpectedly");
    }
    let (calls, work) = tokio::join!(finish(front, "calls"), finish(leader, "controllers"));
    calls.and(work)
}

/// Waits for a part that was told to stop, for a limited time.
async fn finish<E>(part: JoinHandle<Result<(), E>>, what: &str) -> anyhow::Result<()>
where
    anyhow::Error: From<E>,
{
    if part.is_finished() {
        return Ok(());
    }
    let Ok(ended) = timeout(GRACE, part).await else {
        tracing::warn!(what, "did not stop in time");
        return Ok(());
    };
    Ok(ended??)
}
