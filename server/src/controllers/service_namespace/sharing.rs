//! Deletes a shared namespace that the server created, after the last contract has left it and when no claimed object is in
//! it.

use std::{sync::Arc, time::Duration};

use bindery_runtime::{backoff::Backoff, queue::Queue};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{RoleBinding, Subject},
};
use kube::ResourceExt as _;

use super::{
    claimed, rights,
    shared::{is_made, users},
};
use crate::{
    contract,
    controllers::{Context, Next, Reconcile, Running},
    leftovers::{GrantRecord, recorded},
    writes::{self, Write, WriteError},
};

/// How often to look again at a namespace with objects in it. No cache holds them.
const IN_USE: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(10));

struct SharedNamespaces {
    context: Context,
}

/// A shared namespace, and what its end depends on.
struct Observed<'a> {
    /// The namespace, which is labelled as shared.
    namespace: &'a Namespace,
    /// The binding by which the server lists claimed objects in the namespace.
    server_binding: Option<&'a RoleBinding>,
    /// Whether objects of claimed resources are in the namespace; `None` if nobody has looked yet.
    is_used: Option<bool>,
    server: &'a Subject,
}

/// What to do with a shared namespace.
#[derive(Debug, PartialEq)]
enum SharingStep {
    /// Leave it: a contract uses it, or the server did not create it.
    Stay,
    /// Give the server the right to list objects in it first.
    Bind(Vec<Write>),
    /// List the objects of claimed resources in it, and plan again.
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
        // As it was seen: a contract that joins writes its annotation first, and then the namespace stays.
        Some(false) => SharingStep::Delete(Box::new(Write::delete_seen("no contract uses it", namespace))),
        None => {
            let server_binding = rights::server_binding(seen.server_binding, &namespace.name_any(), seen.server);
            if server_binding.is_empty() {
                SharingStep::Look
            } else {
                SharingStep::Bind(server_binding)
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
        let server_binding = made.server_bindings.get(name, crate::rbac::claims::SERVER_ROLE);
        let mut seen = Observed {
            namespace: &namespace,
            server_binding: server_binding.as_deref(),
            is_used: None,
            server: &state.identity.subject(),
        };
        let mut step = plan(&seen);
        if step == SharingStep::Look {
            let objects = claimed::list(state, name, &recorded(&namespace, GrantRecord::Claims)).await?;
            seen.is_used = Some(!objects.is_empty());
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[track_caller]
    pub(in super::super) fn check(
        namespace: &Namespace,
        server_binding: Option<&RoleBinding>,
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
