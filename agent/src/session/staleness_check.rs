//! Checks with the API server whether the credential is still accepted, after a watch or a request failed.

use std::{sync::Arc, time::Duration};

use bindery_runtime::errors;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::time::{Instant, sleep, sleep_until};

use super::session_core::SessionCore;

/// Pause before a refused credential is tried again. It is longer than an API server caches an accepted token.
const REFUSED_PAUSE: Duration = Duration::from_secs(20);

/// Checks the credential while a watch fails, so that a refused one is renewed at once.
pub(super) async fn on_failure(core: Arc<SessionCore>) {
    let mut health = core.cluster_binding.health();
    while health.wait_for(|health| health.failure.is_some()).await.is_ok() {
        core.check().await;
        sleep(core.settings.polling_interval).await;
    }
}

/// Checks the credential after any request was refused for its token, and then until it is accepted. A single refusal is no
/// proof, since an API server that has just started refuses valid tokens too. Open watches outlive their token, so they do
/// not show an expired one.
pub(super) async fn on_refusal(core: Arc<SessionCore>) {
    loop {
        core.credential.refusal().await;
        core.check().await;
        let mut changes = core.credential.changes();
        let mut next_check = Instant::now() + REFUSED_PAUSE;
        while changes.borrow_and_update().refused {
            tokio::select! {
                // The core owns the sender, so this never fails.
                _ = changes.changed() => {}
                () = sleep_until(next_check) => {
                    core.check_again().await;
                    next_check = Instant::now() + REFUSED_PAUSE;
                }
            }
        }
    }
}

impl SessionCore {
    /// Marks the credential as refused if the API server refuses it.
    async fn check(&self) {
        let access = self.credential.held().access;
        let namespaces: Api<Namespace> = Api::all(self.sides.provider.lease.clone());
        if let Err(error) = namespaces.get(&access.namespace).await
            && errors::code(&error) == Some(401)
        {
            self.credential.refuse(&access);
        }
    }

    /// Marks a refused credential as accepted if the API server accepts it now, with the right to read the namespace or without.
    async fn check_again(&self) {
        let access = self.credential.held().access;
        let namespaces: Api<Namespace> = Api::all(self.sides.provider.lease.clone());
        match namespaces.get(&access.namespace).await {
            Err(error) if !errors::is_forbidden(&error) => {}
            _ => self.credential.restore(&access),
        }
    }
}
