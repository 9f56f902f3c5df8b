//! Plays scheduler and kubelet: runs Pods as they are, from the images that were built.
//!
//! Each Pod has a network of its own, in which only loopback exists. What it may connect to outside is said beforehand, and is
//! forwarded to the same address of this machine. Roots are read-only, also where a Pod does not ask for it.

mod board;
mod container;
mod environment;
mod pod;
mod probe;
mod pull;
mod status;
mod volumes;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, PostParams},
    runtime::watcher::{self, Event},
};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use self::pod::PodRunner;
use crate::ControlPlane;

/// The name of the one node.
const NODE: &str = "node";

/// The pause before a watch that has failed is begun anew.
const RETRY: Duration = Duration::from_millis(200);

/// A node that runs the Pods of a control plane, as long as [`Kubelet::work`] is polled.
#[derive(Debug)]
pub struct Kubelet<'a> {
    plane: &'a ControlPlane,
    reachable: Vec<SocketAddr>,
    running: Running,
    is_quiet: Arc<AtomicBool>,
}

/// What all Pods share.
struct Node {
    /// The name of the control plane, for logs.
    name: String,
    client: Client,
    server: SocketAddr,
    /// The addresses that Pods may connect to.
    reachable: Vec<SocketAddr>,
    /// Whether nothing is shown of the logs of processes that are cut off.
    is_quiet: Arc<AtomicBool>,
}

/// The Pods that run, by their UIDs.
#[derive(Debug, Default)]
struct Running {
    stops: BTreeMap<String, watch::Sender<bool>>,
    tasks: JoinSet<Result<()>>,
}

impl<'a> Kubelet<'a> {
    /// A kubelet that runs nothing yet. Its Pods reach the API server of the control plane.
    pub fn new(plane: &'a ControlPlane) -> Self {
        Self {
            plane,
            reachable: vec![plane.server_address()],
            running: Running::default(),
            is_quiet: Arc::default(),
        }
    }

    /// Makes more addresses of loopback reachable for Pods, such as those of a provider.
    #[must_use]
    pub fn reaching(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.reachable.extend(addresses);
        self.reachable.sort_unstable();
        self.reachable.dedup();
        self
    }

    /// Prints nothing of the logs of programs that run still when the kubelet is dropped.
    pub fn hush(&mut self) {
        self.is_quiet.store(true, Ordering::Relaxed);
    }

    /// Runs Pods until this future is dropped or an error occurs. Their processes end when the kubelet is dropped.
    /// Deployments and Jobs get Pods from the controllers of the control plane, which are started here.
    pub async fn work(&mut self) -> Result<()> {
        let client = self.plane.client();
        self.plane.run_workloads()?;
        register(&client).await.context("cannot register the node")?;
        let node = Arc::new(Node {
            name: self.plane.name().to_owned(),
            client: client.clone(),
            server: self.plane.server_address(),
            reachable: self.reachable.clone(),
            is_quiet: Arc::clone(&self.is_quiet),
        });
        let running = &mut self.running;
        let pods = Api::<Pod>::all(client);
        let mut events = std::pin::pin!(watcher::watcher(pods, watcher::Config::default()));
        loop {
            tokio::select! {
                event = events.try_next() => match event {
                    Ok(Some(event)) => running.handle(&node, event),
                    Ok(None) => anyhow::bail!("the watch of Pods has ended"),
                    // The watch is begun anew: API servers are stopped by tests.
                    Err(_) => sleep(RETRY).await,
                },
                Some(ended) = running.tasks.join_next() => ended.context("a Pod was cancelled")??,
            }
        }
    }
}

impl Running {
    fn handle(&mut self, node: &Arc<Node>, event: Event<Pod>) {
        match event {
            Event::Apply(pod) | Event::InitApply(pod) => {
                let Some(uid) = pod.uid() else {
                    return;
                };
                let is_ending = pod.metadata.deletion_timestamp.is_some();
                let tasks = &mut self.tasks;
                let stop = self.stops.entry(uid).or_insert_with(|| {
                    let (stop, stopped) = watch::channel(false);
                    tasks.spawn(Box::pin(PodRunner::new(Arc::clone(node), pod, stopped).run()));
                    stop
                });
                if is_ending {
                    stop.send_replace(true);
                }
            }
            // Its end was said before; a Pod that was deleted at once ends now.
            Event::Delete(pod) => {
                let stop = pod.uid().and_then(|uid| self.stops.remove(&uid));
                stop.into_iter().for_each(|stop| drop(stop.send_replace(true)));
            }
            Event::Init | Event::InitDone => {}
        }
    }
}

/// Waits until a Pod is to end.
async fn stopped(stop: &watch::Receiver<bool>) {
    // An error says that nobody runs the Pod any more.
    let _ = stop.clone().wait_for(|it| *it).await;
}

async fn register(client: &Client) -> Result<()> {
    let node = NodeObject {
        metadata: ObjectMeta {
            name: Some(NODE.to_owned()),
            ..ObjectMeta::default()
        },
        ..NodeObject::default()
    };
    match Api::all(client.clone()).create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(error)) if error.code == 409 => Ok(()),
        outcome => Ok(drop(outcome?)),
    }
}
