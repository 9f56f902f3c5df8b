//! Assembles the konnector and runs it until it is stopped or loses leadership.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use bindery_api::{crds, names::KONNECTOR_LEASE};
use bindery_runtime::{
    admin::{self, Readiness},
    client::{self, ClientError},
    crds::install,
    descriptors,
    events::{Recorder, Reporter},
    lease::{Candidate, Leadership},
    shutdown,
    telemetry::{self, Registry},
    traces,
};
use kube::Config;
use tokio_util::sync::CancellationToken;

use crate::{
    args::Args,
    binding::BindingController,
    bundle::BundleController,
    consumer::Consumer,
    controller::{
        context::{ControllerContext, ControllerOptions},
        inventory::Inventory,
    },
    engine,
    holder::Holders,
    metrics::Metrics,
    policies,
    session::{client_certificate::ClientCertificateFiles, network::Network},
};

/// Idle connections to the consumer's API server, kept per kind of traffic.
const IDLE_MAX: usize = 128;

/// The parts of a konnector that reach its cluster, before it works.
#[derive(Clone, Debug)]
pub struct Konnector {
    /// Clients and caches of the consumer cluster.
    pub consumer: Consumer,
    /// The network on which providers and backends are reached.
    pub network: Network,
    /// The client certificate for backends.
    pub client_certificate: ClientCertificateFiles,
    /// The konnector's metrics.
    pub metrics: Arc<Metrics>,
    /// Metrics of the sync engines.
    pub sync_metrics: Arc<engine::Metrics>,
    /// Metrics of bindings, bundles and sessions.
    pub inventory: Inventory,
}

/// Runs the konnector until it is stopped. After an error the process exits with a failure, for its supervisor to restart.
pub async fn run(args: Args) -> anyhow::Result<()> {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        bail!("another cryptography provider is installed already");
    }
    let traces = traces::init(&args.log, &args.traces, "bindery-konnector")?;
    let outcome = Box::pin(start(args)).await;
    traces.flush().await;
    outcome
}

async fn start(args: Args) -> anyhow::Result<()> {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = args.namespace,
        "konnector starts"
    );
    // Without HTTP/2 each watch needs a connection of its own.
    if let Err(error) = descriptors::raise() {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let client_certificate = ClientCertificateFiles::new(args.client_certificate.clone(), args.client_key.clone());
    // Used later, but a wrong path should be known at once.
    client_certificate.read()?;
    let stop = shutdown::on_signal().context("cannot listen for signals")?;
    let mut registry = telemetry::registry();
    let config = client::config(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let konnector = Konnector::start(&args, &config, Network::default(), client_certificate, &mut registry)?;
    let readiness = Readiness::default().with("consumer", {
        let consumer = konnector.consumer.clone();
        move || consumer.check()
    });
    // The admin port stays open until the process exits, so that probes see how it stops.
    let admin = tokio::spawn(admin::serve(
        args.server_address,
        readiness,
        registry,
        CancellationToken::new(),
    ));
    tokio::select! {
        outcome = konnector.work(&args, &stop) => outcome,
        ended = admin => match ended {
            Ok(Err(error)) => Err(error).with_context(|| format!("cannot serve on --server-address {}", args.server_address)),
            Ok(Ok(())) => Ok(()),
            Err(error) => Err(error).context("the admin port failed"),
        },
    }
}

// === impl Konnector ===

impl Konnector {
    /// Makes the clients of the consumer cluster, and starts to watch it.
    pub fn start(
        args: &Args,
        config: &Config,
        network: Network,
        client_certificate: ClientCertificateFiles,
        registry: &mut Registry,
    ) -> Result<Self, ClientError> {
        let metrics = Metrics::register(registry);
        let sync_metrics = engine::Metrics::register(registry);
        let inventory = Inventory::register(registry);
        let clients = network
            .kubernetes
            .clients(config, None, IDLE_MAX, &metrics.consumer_traffic())?;
        Ok(Self {
            consumer: Consumer::watch(clients, args.namespace.as_str()),
            network,
            client_certificate,
            metrics,
            sync_metrics,
            inventory,
        })
    }

    /// Installs CRDs if the flags say so, waits until this replica leads, and runs the controllers until it is stopped or loses
    /// leadership, which is an error.
    pub async fn work(self, args: &Args, stop: &CancellationToken) -> anyhow::Result<()> {
        let clients = &self.consumer.clients;
        if args.install_crds {
            install(&clients.write, crds::for_consumer()).await?;
        }
        let candidate = Candidate::new(clients.lease.clone(), &args.lease, KONNECTOR_LEASE, &args.namespace)?;
        let Some(leadership) = candidate.elected(stop).await else {
            return Ok(());
        };
        self.metrics.leads();
        self.lead(leadership, args, stop).await
    }

    /// Runs the controllers while this replica leads.
    async fn lead(self, mut leadership: Leadership, args: &Args, stop: &CancellationToken) -> anyhow::Result<()> {
        // After a pause of the process, tasks that it had begun may run before it learns that another replica leads.
        self.network.kubernetes.require_lease(leadership.renewals());
        let options = ControllerOptions {
            heartbeat_interval: args.heartbeat_interval,
            polling_interval: args.provider_polling_interval,
            adoption: args.adoption,
            only_own_bindings: args.only_own_bindings,
            bundles_role: args.bundles_role.clone(),
            client_certificate: self.client_certificate,
            network: self.network,
            limits: args.provider_limits.limits(),
        };
        let consumer = self.consumer;
        let instance = args.lease.lease_identity.clone();
        let reporter = Reporter {
            controller: "kube-bind.io/konnector",
            action: "Sync",
            instance: instance.unwrap_or_else(|| "konnector".to_owned()),
        };
        let recorder = Recorder::start(consumer.clients.write.clone(), reporter);
        let holders = Holders::new(leadership.notes());
        let work = async {
            consumer.synced().await;
            tracing::info!("all bindings and bundles are known; the controllers start");
            let (clients, namespace) = (consumer.clients.clone(), Arc::clone(&consumer.namespace));
            let metrics = Arc::clone(&self.metrics);
            let context = ControllerContext::new(consumer, recorder, self.metrics, self.sync_metrics, holders, options);
            let _inventory = self.inventory.follow(context.clone());
            let _bindings = BindingController::start(context.clone());
            let _bundles = BundleController::start(context);
            if let Some(base) = &args.account_policies {
                Box::pin(policies::follow(base, &namespace, &clients, metrics.policies())).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // Checked first, since only the leader may write.
            biased;
            () = leadership.lost() => bail!("leadership lost"),
            () = stop.cancelled() => {}
            () = work => {}
        }
        leadership.release().await;
        tracing::info!("konnector ends");
        Ok(())
    }
}
