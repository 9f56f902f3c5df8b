//! The admin port, with `/healthz` (the process runs), `/readyz` (its checks succeed) and `/metrics`.

use std::{fmt, net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use prometheus_client::encoding::text::encode;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Registry;

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Named checks that must all succeed for the process to be ready. A failing check returns what is wrong.
#[derive(Clone, Default)]
pub struct Readiness {
    checks: Vec<(&'static str, Check)>,
}

struct Admin {
    readiness: Readiness,
    registry: Registry,
}

/// Serves the admin port until `stop` is cancelled. Fails if the address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    readiness: Readiness,
    registry: Registry,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "admin port open");
    let admin = Arc::new(Admin { readiness, registry });
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(admin);
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

async fn readyz(State(admin): State<Arc<Admin>>) -> (StatusCode, String) {
    let mut ready = true;
    let mut text = String::new();
    for (name, check) in &admin.readiness.checks {
        match check() {
            Ok(()) => text.extend(["[+] ", name, ": ok\n"]),
            Err(problem) => {
                ready = false;
                text.extend(["[-] ", name, ": ", &problem, "\n"]);
            }
        }
    }
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, text)
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Result<([(&'static str, &'static str); 1], String), StatusCode> {
    let mut text = String::new();
    encode(&mut text, &admin.registry).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([("content-type", kind)], text))
}

// === impl Readiness ===

impl Readiness {
    /// Adds a check.
    #[must_use]
    pub fn with(mut self, name: &'static str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.checks.push((name, Arc::new(check)));
        self
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.checks.iter().map(|(name, _)| name))
            .finish()
    }
}
