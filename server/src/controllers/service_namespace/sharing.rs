//! The end of a shared namespace that the server made: after the last contract has left, and when nothing is in it.

use std::{sync::Arc, time::Duration};

use bindery_runtime::{backoff::Backoff, queue::Queue};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{RoleBinding, Subject},
};
use kube::{Api, ResourceExt as _};

use super::{
    claimed, create_binding,
    rights::{self, Rebind},
    shared::{is_made, users},
};
use crate::{
    contract,
    controllers::{Context, Next, Reconcile, Running},
    writes::{self, WriteError},
};

/// What is in the way is in no cache of ours.
const IN_USE: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(10));

struct SharedNamespaces {
    context: Context,
}

struct Observed<'a> {
    /// The namespace, labelled to be shared.
    namespace: &'a Namespace,
    /// The server's own binding in it.
    sight: Option<&'a RoleBinding>,
    /// Whether objects of claimed resources are in it, once that was looked for.
    is_used: Option<bool>,
    server: &'a Subject,
}

#[derive(Debug, PartialEq)]
enum Step {
    /// Not the server's to end, or not yet.
    Stay,
    /// The server must be let in first.
    Bind(Vec<Rebind>),
    /// The objects in it must be looked for.
    Look,
    /// To be looked at again.
    Wait,
    Delete,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    let made = &context.made;
    running.watch(&made.shared, &queue, |change| {
        change.new.map(|_| Arc::clone(&change.key.name))
    });
    let shared = made.shared.clone();
    running.watch(&made.sight, &queue, move |change| {
        let namespace = &change.key.namespace;
        shared.get("", namespace).map(|_| Arc::clone(namespace))
    });
    let namespaces = SharedNamespaces {
        context: context.clone(),
    };
    running.work(namespaces, &queue);
}

fn plan(seen: &Observed<'_>) -> Step {
    let namespace = seen.namespace;
    if !is_made(namespace) || contract::is_terminating(namespace) || users(namespace).next().is_some() {
        return Step::Stay;
    }
    match seen.is_used {
        Some(true) => Step::Wait,
        Some(false) => Step::Delete,
        None => {
            let sight = rights::sight(seen.sight, &namespace.name_any(), seen.server);
            if sight.is_empty() {
                Step::Look
            } else {
                Step::Bind(sight)
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
        let sight = made.sight.get(name, crate::rbac::claims::SERVER_ROLE);
        let mut seen = Observed {
            namespace: &namespace,
            sight: sight.as_deref(),
            is_used: None,
            server: &state.identity.subject(),
        };
        let mut step = plan(&seen);
        if step == Step::Look {
            let objects = claimed::list(state, name, &claimed::recorded(&namespace)).await?;
            seen.is_used = Some(!objects.is_empty());
            step = plan(&seen);
        }
        let client = || state.clients.write.clone();
        match step {
            Step::Stay | Step::Look => {}
            Step::Bind(ops) => {
                for op in ops {
                    match op {
                        Rebind::Create(binding) => create_binding(client(), &binding).await?,
                        Rebind::Delete { namespace, name, uid } => {
                            let api: Api<RoleBinding> = Api::namespaced(client(), &namespace);
                            writes::delete(&api, &name, uid.as_deref()).await?;
                        }
                    }
                }
            }
            Step::Wait => return Ok(Next::Seldom(IN_USE)),
            // As it was seen: a contract that joins puts itself on record first, and then it stays.
            Step::Delete => writes::delete_seen(&Api::<Namespace>::all(client()), &*namespace).await?,
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
        sight: Option<&RoleBinding>,
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
            sight,
            is_used,
            server: &server,
        });
        let said = match step {
            Step::Stay => "stay",
            Step::Bind(_) => "bind",
            Step::Look => "look",
            Step::Wait => "wait",
            Step::Delete => "delete",
        };
        assert_eq!(said, expect);
    }
}
