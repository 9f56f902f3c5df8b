//! Two control planes for all cases, and for each case a namespace, a set and an account of its own.
//!
//! On the steady one kinds neither come nor go and the API server runs through. On the rough one they do: its garbage
//! collector needs longer, and a case may have it to itself and stop its API server.

use anyhow::{Context as _, Result, anyhow};
use bindery_e2e::{ControlPlane, run, synk::Synk};
use tokio::sync::{OnceCell, RwLock};

use crate::case::Case;

/// Where the accounts of all cases live, so that a case may delete its namespace. They may do everything.
pub(crate) const ACCOUNTS: &str = "accounts";

/// Why one could not be started is told by every case: it is not tried again.
type Slot = OnceCell<Result<ControlPlane, String>>;

static STEADY: Slot = OnceCell::const_new();
static ROUGH: Slot = OnceCell::const_new();
/// Held by those who stop the API server of the rough one; shared by all others on it.
static RELIED_ON: RwLock<()> = RwLock::const_new(());

/// Runs a case that brings no kinds. Its name is that of its set, its namespace and its account.
pub(crate) fn case(name: &'static str, body: impl AsyncFnOnce(&Case) -> Result<()>) -> Result<()> {
    run(async {
        let plane = started(&STEADY, "synk").await?;
        run_on(plane, name, body).await
    })
}

/// Runs a case that brings kinds, or that takes them away.
pub(crate) fn rough(name: &'static str, body: impl AsyncFnOnce(&Case) -> Result<()>) -> Result<()> {
    run(async {
        let plane = started(&ROUGH, "synk-rough").await?;
        let _shared = RELIED_ON.read().await;
        run_on(plane, name, body).await
    })
}

/// Runs a case that stops, restarts or pauses the API server. It is up again when the case is over.
pub(crate) fn alone(name: &'static str, body: impl AsyncFnOnce(&Case) -> Result<()>) -> Result<()> {
    run(async {
        let plane = started(&ROUGH, "synk-rough").await?;
        let _alone = RELIED_ON.write().await;
        let outcome = run_on(plane, name, body).await;
        // It may be paused, or may not have been: both are fine.
        let _ = plane.resume_api_server();
        plane.start_api_server().await?;
        outcome
    })
}

async fn started(slot: &'static Slot, name: &str) -> Result<&'static ControlPlane> {
    let started = slot.get_or_init(async || start(name).await.map_err(|error| format!("{error:#}")));
    started.await.as_ref().map_err(anyhow::Error::msg)
}

async fn start(name: &str) -> Result<ControlPlane> {
    let plane = ControlPlane::start_audited(name).await?;
    let accounts = format!(
        r#"
apiVersion: v1
kind: Namespace
metadata: {{name: {ACCOUNTS}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {ACCOUNTS}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:{ACCOUNTS}"}}]
"#
    );
    plane.apply(&accounts).await?;
    Synk::new(plane.kubeconfig_path()).run(&["init"], "").await?.done()?;
    // So that the garbage collector knows ResourceSets from its start on.
    plane.restart_controller_manager()?;
    Ok(plane)
}

async fn run_on(
    plane: &'static ControlPlane,
    name: &'static str,
    body: impl AsyncFnOnce(&Case) -> Result<()>,
) -> Result<()> {
    let outcome = async {
        let case = Case::begin(plane, name).await.context("it could not begin")?;
        body(&case).await
    };
    outcome.await.map_err(|error| anyhow!("case {name}: {error:#}"))
}
