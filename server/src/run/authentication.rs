//! Starts what the verification of ID tokens needs: the issuers of the configuration, and the files that it is read from.

use anyhow::Context as _;
use bindery_runtime::{client::Clients, errors, telemetry::Registry};
use bindery_server::{
    args::Args,
    files::FollowedFiles,
    oidc::{
        HttpsFetch, Issuers, OidcMetrics,
        source::{ConfigSource, SourceError},
    },
    own_issuer,
};

use super::events::ConfigEvents;

/// The issuers as they run, and the files that their configuration is read from.
pub(crate) struct RunningIssuers {
    pub(crate) issuers: Issuers,
    pub(crate) files: FollowedFiles,
    metrics: OidcMetrics,
}

/// Reads the configuration, which must be good now. Later a bad one is reported, and the former one stays in use.
pub(crate) async fn start(args: &Args, clients: &Clients) -> anyhow::Result<RunningIssuers> {
    let source = args.authentication.source();
    let metrics = OidcMetrics::default();
    let own_issuer = if source.is_empty() {
        None
    } else {
        ask_for_own_issuer(clients).await
    };
    let make_fetch = HttpsFetch::maker().context("TLS to issuers cannot be set up")?;
    let issuers = Issuers::new(make_fetch, metrics.clone(), own_issuer);
    let mut files = FollowedFiles::default();
    let source_files = source.files();
    if !source.is_empty() {
        let events = ConfigEvents::new(
            clients.write.clone(),
            &args.namespace,
            args.lease.lease_identity.as_deref(),
        );
        let (cell, metrics) = (issuers.clone(), metrics.clone());
        let load = move || {
            let loaded = load(&source, &cell);
            metrics.loaded(loaded.is_ok());
            match &loaded {
                Ok(()) => events.accepted(),
                // At the start this ends the server, which says so itself.
                Err(_) if cell.generation() == 0 => {}
                Err(error) => events.refused(&error.to_string()),
            }
            loaded
        };
        files
            .add("configuration of issuers", source_files, load)
            .context("the issuers of ID tokens cannot be configured")?;
    }
    Ok(RunningIssuers {
        issuers,
        files,
        metrics,
    })
}

impl RunningIssuers {
    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }
}

fn load(source: &ConfigSource, issuers: &Issuers) -> Result<(), SourceError> {
    let configuration = source.load(issuers.own_issuer())?;
    let urls: Vec<_> = configuration.urls().collect();
    tracing::info!(issuers = ?urls, "ID tokens of these issuers are accepted");
    issuers.replace(configuration);
    Ok(())
}

/// Without the answer, only the messages to refused callers are less exact, and the configuration is not held against it.
async fn ask_for_own_issuer(clients: &Clients) -> Option<String> {
    match own_issuer::find(&clients.write).await {
        Ok(issuer) => Some(issuer),
        Err(error) => {
            let error = errors::explain(&error);
            tracing::warn!(%error, "the API server does not tell the issuer of its ServiceAccounts");
            None
        }
    }
}
