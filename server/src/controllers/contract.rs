//! What every contract namespace holds: the server's rights in it, the consumer's ServiceAccount and rights, and the
//! ClusterBinding. Whatever of it is lost is made again.

use std::sync::Arc;

use bindery_api::{names, v1alpha2::ClusterBinding};
use bindery_runtime::queue::Queue;
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::Api;

use super::{Context, Next, Reconcile, Running, subject};
use crate::{
    contract, rbac,
    writes::{self, WriteError},
};

mod plan;

use plan::{Observed, Op};

/// The parts of a contract as the caches have them.
#[derive(Clone, Debug)]
pub(super) struct Parts {
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
    // What is not a contract's namespace is passed over when its turn comes.
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

impl Parts {
    /// The parts of a contract that exists and stays.
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

    /// Whether everything is there, so that credentials can be made and used.
    pub(super) fn are_complete(&self) -> bool {
        self.server.is_some() && self.account.is_some() && self.binder.is_some() && self.cluster_binding.is_some()
    }
}

impl Reconcile for Contracts {
    type Key = Arc<str>;
    const NAME: &'static str = "contract";

    async fn reconcile(&self, contract: &Arc<str>) -> Result<Next, WriteError> {
        let Some(parts) = Parts::observe(&self.context, contract) else {
            return Ok(Next::Change);
        };
        let state = &self.context.state;
        let ops = plan::plan(&Observed {
            namespace: &parts.namespace,
            server: parts.server.as_deref(),
            account: parts.account.as_deref(),
            binder: parts.binder.as_deref(),
            cluster_binding: parts.cluster_binding.as_deref(),
            subject: state.identity.subject(),
            pretty_name: &state.settings.pretty_name,
        });
        for op in ops {
            self.apply(contract, op).await?;
        }
        Ok(Next::Change)
    }
}

impl Contracts {
    async fn apply(&self, contract: &str, op: Op) -> Result<(), WriteError> {
        let client = || self.context.state.clients.write.clone();
        match op {
            Op::CreateRoleBinding(binding) => {
                let api = Api::namespaced(client(), contract);
                let is_ours = |existing: &RoleBinding| contract::of(existing) == Some(contract);
                writes::create(&api, &*binding, is_ours).await?;
            }
            Op::DeleteRoleBinding { name, uid } => {
                let api: Api<RoleBinding> = Api::namespaced(client(), contract);
                writes::delete(&api, &name, uid.as_deref()).await?;
            }
            Op::CreateAccount(account) => {
                let api = Api::namespaced(client(), contract);
                let is_ours = |existing: &ServiceAccount| contract::of(existing) == Some(contract);
                writes::create(&api, &*account, is_ours).await?;
            }
            Op::CreateClusterBinding(binding) => {
                // Only the server can write ClusterBindings, so that one that is there is ours.
                writes::create(&Api::namespaced(client(), contract), &*binding, |_| true).await?;
            }
            Op::SetPrettyName { patch } => {
                let api: Api<ClusterBinding> = Api::namespaced(client(), contract);
                writes::merge(&api, names::CLUSTER_BINDING, &patch).await?;
            }
            Op::Sweep => {
                self.context.issuer.sweep(contract).await?;
            }
        }
        Ok(())
    }
}
