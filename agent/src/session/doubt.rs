//! Asks whether a credential is still taken, when there is reason to doubt it.

use std::{sync::Arc, time::Duration};

use bindery_runtime::errors;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::time::{Instant, sleep, sleep_until};

use super::Core;

/// How often a credential that was refused is tried again: longer than an API server remembers one that it took.
const REFUSED_PAUSE: Duration = Duration::from_secs(20);

/// When a watch fails, asks whether that is because of the credential, so that it is renewed at once.
pub(super) async fn on_failure(core: Arc<Core>) {
    let mut health = core.cluster_binding.health();
    while health.wait_for(|health| health.failure.is_some()).await.is_ok() {
        core.probe().await;
        sleep(core.settings.polling_interval).await;
    }
}

/// When any request is refused for its token, asks whether the token is of no use any more: an API server that has just
/// started refuses good ones as well. Watches that are open outlive their token, so that nothing else may tell.
pub(super) async fn on_refusal(core: Arc<Core>) {
    loop {
        core.credential.refusal().await;
        core.probe().await;
        let mut changes = core.credential.changes();
        let mut again = Instant::now() + REFUSED_PAUSE;
        while changes.borrow_and_update().refused {
            tokio::select! {
                // The sender lives in the credential that the core holds.
                _ = changes.changed() => {}
                () = sleep_until(again) => {
                    core.ask_again().await;
                    again = Instant::now() + REFUSED_PAUSE;
                }
            }
        }
    }
}

// === impl Core ===

impl Core {
    /// Asks the API server whether it still takes the credential.
    async fn probe(&self) {
        let access = self.credential.held().access;
        let namespaces: Api<Namespace> = Api::all(self.clients.lease.clone());
        if let Err(error) = namespaces.get(&access.namespace).await
            && errors::code(&error) == Some(401)
        {
            self.credential.refuse(&access);
        }
    }

    /// Asks the API server whether it takes a credential that it refused some time ago.
    async fn ask_again(&self) {
        let access = self.credential.held().access;
        let namespaces: Api<Namespace> = Api::all(self.clients.lease.clone());
        if namespaces.get(&access.namespace).await.is_ok() {
            self.credential.restore(&access);
        }
    }
}
