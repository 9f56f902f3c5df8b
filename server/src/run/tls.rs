//! Starts what TLS of the gRPC port needs: files that are followed, or the certificates that the server makes itself.

use std::sync::Arc;

use anyhow::Context as _;
use bindery_runtime::{client::Clients, telemetry::Registry};
use bindery_server::{
    args::Args,
    files::FollowedFiles,
    settings::Settings,
    tls::{
        CaBundle, ClientAuthorities, ExpiryMetrics, PortTls, ServingCertificate, TlsSource,
        managed::{Policy, reconciler::Reconciler},
    },
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// TLS of the gRPC port as it runs.
pub(crate) struct RunningTls {
    /// TLS of new connections; `None` if the port is plaintext.
    pub(crate) port: Option<PortTls>,
    /// The CAs to hand out.
    pub(crate) ca: CaBundle,
    serving: Arc<ServingCertificate>,
    files: FollowedFiles,
    reconciler: Option<Reconciler>,
}

/// Reads all files, and makes certificates if there is none.
pub(crate) async fn start(args: &Args, settings: &Settings, clients: &Clients) -> anyhow::Result<RunningTls> {
    let serving = Arc::new(ServingCertificate::default());
    let ca = CaBundle::default();
    let mut files = FollowedFiles::default();
    let mut reconciler = None;
    let source = args.tls()?;
    let is_plaintext = matches!(source, TlsSource::Plaintext);
    match source {
        TlsSource::Plaintext => {}
        TlsSource::Files(found) => {
            let paths = vec![found.certificate.clone(), found.key.clone()];
            let cell = Arc::clone(&serving);
            files
                .add("certificate", paths, move || cell.load(&found))
                .context("--tls-cert-file and --tls-key-file")?;
        }
        TlsSource::Managed(managed) => {
            warn_of_short_lifetime(&managed.policy, settings);
            // With a CA file, clients meet a proxy that has another certificate.
            let own_ca = if args.external_grpc_ca_file.is_some() {
                CaBundle::default()
            } else {
                ca.clone()
            };
            let started = Reconciler::start(managed, clients.clone(), Arc::clone(&serving), own_ca);
            reconciler = Some(started.await?);
        }
    }
    if let Some(path) = args.external_grpc_ca_file.clone() {
        let cell = ca.clone();
        files
            .add("CA", vec![path.clone()], move || cell.load(&path))
            .context("--external-grpc-ca-file")?;
    }
    let port = (!is_plaintext).then(|| port(args, &serving, &mut files)).transpose()?;
    Ok(RunningTls {
        port,
        ca,
        serving,
        files,
        reconciler,
    })
}

fn port(args: &Args, serving: &Arc<ServingCertificate>, files: &mut FollowedFiles) -> anyhow::Result<PortTls> {
    let port = PortTls::new(serving)?;
    if let Some(path) = args.tls.client_ca_file.clone() {
        let (port, serving, paths) = (port.clone(), Arc::clone(serving), vec![path.clone()]);
        let load = move || port.set_client_authorities(&serving, &ClientAuthorities::load(&path)?);
        files
            .add("CA of client certificates", paths, load)
            .context("--client-ca-file")?;
    }
    Ok(port)
}

/// A konnector that is away for longer than the next CA is published would not trust the server when it comes back.
fn warn_of_short_lifetime(policy: &Policy, settings: &Settings) {
    let absence = policy.absence_max();
    if absence < settings.renewal_lifetime {
        tracing::warn!(
            ?absence,
            renewal_lifetime = ?settings.renewal_lifetime,
            "a konnector that is away for longer than a sixth of --tls-ca-lifetime may have to bind again; give a longer one"
        );
    }
}

impl RunningTls {
    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        ExpiryMetrics::register(registry, Arc::clone(&self.serving), self.ca.clone());
    }

    /// Follows files, Secret and time in a task of its own, until `stop` is cancelled.
    pub(crate) fn follow(self, stop: &CancellationToken) -> JoinHandle<()> {
        let files = self.files.follow(stop.clone());
        let stop = stop.clone();
        tokio::spawn(async move {
            let certificates = async {
                if let Some(reconciler) = self.reconciler {
                    reconciler.run(stop).await;
                }
            };
            tokio::join!(files, certificates);
        })
    }
}
