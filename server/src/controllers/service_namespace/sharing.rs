//! Deletes a shared namespace that a server of an earlier version created, after the last contract has left it and when neither
//! claimed nor valuable objects are in it.

use std::{sync::Arc, time::Duration};

use bindery_runtime::{backoff::Backoff, queue::Queue};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{RoleBinding, Subject},
};
use kube::ResourceExt as _;

use super::{
    apply::is_fresh,
    claimed, rights,
    shared::{is_made, users},
    valuable,
};
use crate::{
    contract,
    controllers::{Context, Next, Reconcile, Running},
    leftovers::{GrantRecord, recorded},
    rbac::{claims, view},
    state::State,
    writes::{self, Write, WriteError},
};

/// How often to look again at a namespace with objects in it. No cache holds them.
const IN_USE: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(10));

/// How soon to look again where a new binding may not be in effect yet.
const SETTLING: Duration = Duration::from_secs(2);

struct SharedNamespaces {
    context: Context,
}

/// A shared namespace, and what its end depends on.
struct Observed<'a> {
    /// The namespace, which is labelled as shared.
    namespace: &'a Namespace,
    /// The binding by which the server lists claimed objects in the namespace.
    server_binding: Option<&'a RoleBinding>,
    /// The binding by which the server lists all that ClusterRole `view` shows in the namespace.
    view_binding: Option<&'a RoleBinding>,
    /// Whether objects of claimed resources or valuable ones are in the namespace; `None` if nobody has looked yet.
    is_used: Option<bool>,
    server: &'a Subject,
}

/// What to do with a shared namespace.
#[derive(Debug, PartialEq)]
enum SharingStep {
    /// Leave it: a contract has not left it yet, or an admin labelled it.
    Stay,
    /// Give the server the right to list objects in it first.
    Bind(Vec<Write>),
    /// List the objects in it, and plan again.
    Look,
    /// Look again later, since objects are in it.
    Wait,
    Delete(Box<Write>),
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    let made = &context.made;
    running.watch(&made.shared, &queue, |change| {
        change.new.map(|_| Arc::clone(&change.key.name))
    });
    let shared = made.shared.clone();
    running.watch(&made.server_bindings, &queue, move |change| {
        let namespace = &change.key.namespace;
        shared.get("", namespace).map(|_| Arc::clone(namespace))
    });
    let namespaces = SharedNamespaces {
        context: context.clone(),
    };
    running.work(namespaces, &queue);
}

fn plan(seen: &Observed<'_>) -> SharingStep {
    let namespace = seen.namespace;
    if !is_made(namespace) || contract::is_terminating(namespace) || users(namespace).next().is_some() {
        return SharingStep::Stay;
    }
    match seen.is_used {
        Some(true) => SharingStep::Wait,
        // As it was seen: an admin may take it over meanwhile, by its label.
        Some(false) => SharingStep::Delete(Box::new(Write::delete_seen(
            "no admin labelled it, and nothing is in it",
            namespace,
        ))),
        None => {
            let existing = (seen.server_binding, seen.view_binding);
            let bindings = rights::server_bindings(existing, &namespace.name_any(), seen.server);
            if bindings.is_empty() {
                SharingStep::Look
            } else {
                SharingStep::Bind(bindings)
            }
        }
    }
}

impl Reconcile for SharedNamespaces {
    type Key = Arc<str>;
    const NAME: &'static str = "shared-namespace";
    const WORKERS: usize = 1;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Next, WriteError> {
        let (state, made) = (&self.context.state, &self.context.made);
        let Some(namespace) = made.shared.get("", name) else {
            return Ok(Next::Change);
        };
        let server_binding = made.server_bindings.get(name, claims::SERVER_ROLE);
        let view_binding = made.server_bindings.get(name, view::VIEW_BINDING);
        let mut seen = Observed {
            namespace: &namespace,
            server_binding: server_binding.as_deref(),
            view_binding: view_binding.as_deref(),
            is_used: None,
            server: &state.identity.subject(),
        };
        let mut step = plan(&seen);
        if step == SharingStep::Look {
            let Some(is_used) = is_used(state, name, &namespace).await? else {
                let mut bindings = [seen.server_binding, seen.view_binding].into_iter().flatten();
                let is_settling = bindings.any(|binding| is_fresh(binding, Timestamp::now()));
                return Ok(if is_settling {
                    Next::After(SETTLING)
                } else {
                    Next::Seldom(IN_USE)
                });
            };
            seen.is_used = Some(is_used);
            step = plan(&seen);
        }
        match step {
            SharingStep::Stay | SharingStep::Look => {}
            SharingStep::Bind(writes) => writes::apply_all(&state.clients.write, writes).await?,
            SharingStep::Wait => return Ok(Next::Seldom(IN_USE)),
            SharingStep::Delete(write) => drop(write.apply(&state.clients.write).await?),
        }
        Ok(Next::Change)
    }
}

/// Whether claimed or valuable objects are in a shared namespace; `None` if the server may not see all that is in it.
async fn is_used(state: &State, name: &str, namespace: &Namespace) -> Result<Option<bool>, WriteError> {
    let claimed = claimed::list(state, name, &recorded(namespace, GrantRecord::Claims)).await?;
    if !claimed.is_empty() {
        return Ok(Some(true));
    }
    let seen = valuable::look(state, name, None).await?;
    if !seen.objects.is_empty() {
        return Ok(Some(true));
    }
    let unseen = seen.explain_unseen(name);
    if let Some(message) = &unseen {
        tracing::warn!(namespace = name, message, "a shared namespace is kept");
    }
    Ok(unseen.is_none().then_some(false))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[track_caller]
    pub(in super::super) fn check(
        namespace: &Namespace,
        (server_binding, view_binding): (Option<&RoleBinding>, Option<&RoleBinding>),
        is_used: Option<bool>,
        expect: &str,
    ) {
        let server = Subject {
            kind: "User".to_owned(),
            name: "server".to_owned(),
            ..Subject::default()
        };
        let step = plan(&Observed {
            namespace,
            server_binding,
            view_binding,
            is_used,
            server: &server,
        });
        let said = match step {
            SharingStep::Stay => "stay",
            SharingStep::Bind(_) => "bind",
            SharingStep::Look => "look",
            SharingStep::Wait => "wait",
            SharingStep::Delete(_) => "delete",
        };
        assert_eq!(said, expect);
    }
}
