//! Keeps in every contract namespace what a contract consists of: the server's rights in it, the consumer's ServiceAccount
//! and rights, and the ClusterBinding. A part that is lost is created again.

use std::sync::Arc;

use bindery_api::{names, v1alpha2::ClusterBinding};
use bindery_runtime::queue::Queue;
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::RoleBinding,
};

use super::{Context, Next, Reconcile, Running, subject};
use crate::{
    contract, rbac,
    writes::{self, WriteError},
};

mod plan;

use plan::Observed;

/// The parts of one contract, as the caches show them.
#[derive(Clone, Debug)]
pub(super) struct ContractParts {
    pub(super) namespace: Arc<Namespace>,
    server: Option<Arc<RoleBinding>>,
    account: Option<Arc<ServiceAccount>>,
    binder: Option<Arc<RoleBinding>>,
    pub(super) cluster_binding: Option<Arc<ClusterBinding>>,
}

struct Contracts {
    context: Context,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    let caches = &context.state.caches;
    running.watch(&caches.namespaces, &queue, |change| {
        change
            .new
            .filter(|namespace| contract::is_contract(namespace))
            .map(|_| Arc::clone(&change.key.name))
    });
    // A namespace that is no contract's is skipped when its key is worked on.
    running.watch(&caches.cluster_bindings, &queue, |change| {
        Some(Arc::clone(&change.key.namespace))
    });
    running.watch(&context.made.accounts, &queue, |change| {
        Some(Arc::clone(&change.key.namespace))
    });
    running.watch(&context.made.role_bindings, &queue, |change| {
        let contract = contract::of(subject(change)?.as_ref())?;
        (contract == &*change.key.namespace).then(|| Arc::clone(&change.key.namespace))
    });
    let contracts = Contracts {
        context: context.clone(),
    };
    running.work(contracts, &queue);
}

impl ContractParts {
    /// The parts of a contract; `None` if it does not exist or is being deleted.
    pub(super) fn observe(context: &Context, contract: &str) -> Option<Self> {
        let namespace = context.state.contract(contract)?;
        if contract::is_terminating(&namespace) {
            return None;
        }
        let made = &context.made;
        Some(Self {
            namespace,
            server: made.role_bindings.get(contract, rbac::SERVER_BINDING),
            account: made.accounts.get(contract, names::KUBE_BINDER),
            binder: made.role_bindings.get(contract, names::KUBE_BINDER),
            cluster_binding: context
                .state
                .caches
                .cluster_bindings
                .get(contract, names::CLUSTER_BINDING),
        })
    }

    /// Whether every part exists, so that credentials can be issued and used.
    pub(super) fn are_complete(&self) -> bool {
        self.server.is_some() && self.account.is_some() && self.binder.is_some() && self.cluster_binding.is_some()
    }
}

impl Reconcile for Contracts {
    type Key = Arc<str>;
    const NAME: &'static str = "contract";

    async fn reconcile(&self, contract: &Arc<str>) -> Result<Next, WriteError> {
        let Some(parts) = ContractParts::observe(&self.context, contract) else {
            return Ok(Next::Change);
        };
        let state = &self.context.state;
        let plan = plan::plan(&Observed {
            namespace: &parts.namespace,
            server: parts.server.as_deref(),
            account: parts.account.as_deref(),
            binder: parts.binder.as_deref(),
            cluster_binding: parts.cluster_binding.as_deref(),
            subject: state.identity.subject(),
            pretty_name: &state.settings.pretty_name,
        });
        writes::apply_all(&state.clients.write, plan.writes).await?;
        if plan.finish_revocation {
            self.context.issuer.sweep(contract).await?;
        }
        Ok(Next::Change)
    }
}
