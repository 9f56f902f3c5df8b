//! Plays scheduler, kubelet and load balancer: runs Pods as they are, from the images that were built. Only root may.
//!
//! What is unlike a node:
//!
//! - Each Pod has a network of its own, so that every Pod may listen on every port, and all Pods have one IP. Probes and
//!   connections to Services come to this IP, so that a program which listens on 127.0.0.1 does not get them.
//! - There are no routes between these networks, no cluster IPs and no DNS. A Pod connects to addresses of loopback that were
//!   named beforehand ([`Kubelet::reaching`]); each connection is forwarded to the same address of this machine.
//! - A Service is reached at an address of this machine that was named for it ([`Kubelet::exposing`]), as behind a load balancer.
//!   Each connection goes to a Pod that is ready.
//! - Root file systems are read-only, and no program gains privileges, also where a Pod does not ask for it. Containers of one
//!   image share its root, with the mount points of all. Resources and system calls are not limited.
//! - Back-offs are shorter, so that restarts are a failure unless the caller allows them. Tokens in volumes are replaced, and Secrets
//!   looked at, every few seconds. A Pod that is deleted with a grace period of zero is killed at once; a kubelet waits for a second.
//!
//! What a Pod asks for and is not known here (`exec` probes, `subPath`, `nodeSelector`) is an error of its containers, and no silence;
//! `known.rs` lists what is known, and what of it is without effect.

mod container;
mod creation;
mod environment;
mod known;
mod pod;
mod probe;
mod pull;
mod sandbox;
mod service;
mod status;
mod status_manager;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, future::LocalBoxFuture, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, PostParams},
    runtime::watcher::{self, Event},
};
use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};

use self::{pod::PodRunner, sandbox::Sandboxes, service::LoadBalancer};
use crate::{ControlPlane, forward::Forward};

/// The name of the one node.
const NODE: &str = "node";
/// The pause before a watch that has failed is begun anew.
const RETRY: Duration = Duration::from_millis(200);

/// A node of a control plane.
#[derive(Debug)]
pub struct Kubelet<'a> {
    plane: &'a ControlPlane,
    reachable: Vec<SocketAddr>,
    load_balancers: Vec<LoadBalancer>,
    sandboxes: Sandboxes,
    /// The addresses that Pods have connected to.
    connected: Arc<Mutex<BTreeSet<SocketAddr>>>,
    /// Whether nothing is shown of the logs of processes that are cut off.
    is_quiet: AtomicBool,
    /// Why containers were started again.
    restarts: Mutex<Vec<String>>,
    allows_restarts: bool,
}

/// The Pods that run.
#[derive(Default)]
struct Running<'a> {
    /// Tell Pods to end, by their UIDs.
    stops: BTreeMap<String, watch::Sender<Stop>>,
    /// UIDs of the Pods in the list with which a watch begins.
    listed: BTreeSet<String>,
    runs: FuturesUnordered<LocalBoxFuture<'a, Result<()>>>,
}

/// If a Pod is to end: how long its processes may take after SIGTERM. Zero means SIGKILL.
type Stop = Option<Duration>;

impl<'a> Kubelet<'a> {
    /// A kubelet that runs nothing yet. Its Pods reach the API server of the control plane.
    pub fn new(plane: &'a ControlPlane) -> Self {
        Self {
            plane,
            reachable: vec![plane.server_address()],
            load_balancers: Vec::new(),
            sandboxes: Sandboxes::default(),
            connected: Arc::default(),
            is_quiet: AtomicBool::new(false),
            restarts: Mutex::default(),
            allows_restarts: false,
        }
    }

    /// Lets containers end and be started again. Without this it is a failure of [`Kubelet::during`]: a few ends at the start take
    /// seconds here and minutes on a node, so that an installation which works here would fail there.
    #[must_use]
    pub fn allowing_restarts(mut self) -> Self {
        self.allows_restarts = true;
        self
    }

    /// Makes more addresses of loopback reachable for Pods, such as those of a provider.
    #[must_use]
    pub fn reaching(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.reachable.extend(addresses);
        self.reachable.sort_unstable();
        self.reachable.dedup();
        self
    }

    /// Makes a Service, which need not exist yet, reachable at an address of this machine. Connections wait until the Pods run.
    #[must_use]
    pub fn exposing(mut self, namespace: &str, service: &str, at: TcpListener) -> Self {
        let balancer = LoadBalancer::new(self.plane.client(), namespace, service, at, self.sandboxes.clone());
        self.load_balancers.push(balancer);
        self
    }

    /// Runs Pods until `work` has ended, and fails if they cannot be run any more, or if a container was started again. Then their
    /// processes end; if something has failed, the ends of their logs are printed.
    ///
    /// Deployments, Jobs and PodDisruptionBudgets are served by controllers of the control plane, which are started before `work`
    /// begins.
    pub fn during<T>(&self, work: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
        let work = Box::pin(work);
        async {
            Box::pin(self.prepare()).await?;
            let mut running = Running::default();
            let outcome = tokio::select! {
                outcome = work => outcome,
                failed = Box::pin(self.run(&mut running)) => failed.and_then(|()| bail!("the watch of Pods has ended")),
            };
            let outcome = outcome.and_then(|value| self.has_no_restarts().map(|()| value));
            if outcome.is_ok() {
                self.is_quiet.store(true, Ordering::Relaxed);
            }
            outcome
        }
    }

    fn has_no_restarts(&self) -> Result<()> {
        let restarts = self.restarts.lock();
        ensure!(
            self.allows_restarts || restarts.is_empty(),
            "containers ended and were started again, which takes minutes on a node:\n{}",
            restarts.join("\n")
        );
        Ok(())
    }

    /// The addresses outside of its network that any Pod has connected to until now.
    pub fn connected(&self) -> BTreeSet<SocketAddr> {
        self.connected.lock().clone()
    }

    /// The process id of a container that runs.
    pub fn process(&self, pod: &Pod, container: &str) -> Option<u32> {
        self.sandboxes.process(pod.metadata.uid.as_deref()?, container)
    }

    /// Makes the node, and waits until Pods can start.
    async fn prepare(&self) -> Result<()> {
        crate::container::are_possible()?;
        // Blocks for milliseconds: few small files are read.
        pull::are_current()?;
        self.plane.run_workloads().await?;
        let client = self.plane.client();
        register(&client).await.context("cannot register the node")
    }

    async fn run<'b>(&'b self, running: &mut Running<'b>) -> Result<()> {
        let _forwards: Vec<Forward> = self
            .load_balancers
            .iter()
            .map(LoadBalancer::start)
            .collect::<Result<_>>()?;
        let pods = Api::<Pod>::all(self.plane.client());
        let mut events = std::pin::pin!(watcher::watcher(pods, watcher::Config::default()));
        loop {
            tokio::select! {
                event = events.try_next() => match event {
                    Ok(Some(event)) => running.handle(self, event),
                    Ok(None) => return Ok(()),
                    // The watch is begun anew: API servers are stopped by tests.
                    Err(_) => sleep(RETRY).await,
                },
                Some(ended) = running.runs.next() => ended?,
            }
        }
    }
}

impl<'a> Running<'a> {
    fn handle(&mut self, kubelet: &'a Kubelet<'a>, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.extend(pod.uid());
                self.apply(kubelet, pod);
            }
            Event::InitDone => {
                let listed = &self.listed;
                self.stops.retain(|uid, stop| {
                    let exists = listed.contains(uid);
                    if !exists {
                        stop.send_replace(Some(Duration::ZERO));
                    }
                    exists
                });
            }
            Event::Apply(pod) => self.apply(kubelet, pod),
            // Usually the Pod has ended before; one that is deleted without a grace period ends now.
            Event::Delete(pod) => {
                if let Some(stop) = pod.uid().and_then(|uid| self.stops.remove(&uid)) {
                    stop.send_replace(Some(Duration::ZERO));
                }
            }
        }
    }

    fn apply(&mut self, kubelet: &'a Kubelet<'a>, pod: Pod) {
        let Some(uid) = pod.uid() else {
            return;
        };
        let metadata = &pod.metadata;
        let seconds = metadata.deletion_grace_period_seconds.unwrap_or_default();
        let stop = metadata.deletion_timestamp.is_some().then(|| seconds_of(seconds));
        let runs = &self.runs;
        let sender = self.stops.entry(uid).or_insert_with(|| {
            let (sender, stopped) = watch::channel(None);
            runs.push(Box::pin(PodRunner::new(kubelet, pod, stopped).run()));
            sender
        });
        if stop.is_some() {
            sender.send_replace(stop);
        }
    }
}

/// Waits until a Pod is to end.
async fn stopped(stop: &watch::Receiver<Stop>) {
    // An error says that nobody runs the Pod any more.
    let _ = stop.clone().wait_for(Option::is_some).await;
}

/// A time of the Kubernetes API, in which negative numbers mean nothing.
fn seconds_of(seconds: i64) -> Duration {
    Duration::from_secs(seconds.try_into().unwrap_or_default())
}

async fn register(client: &Client) -> Result<()> {
    let node = Node {
        metadata: ObjectMeta {
            name: Some(NODE.to_owned()),
            labels: Some([("kubernetes.io/hostname".to_owned(), NODE.to_owned())].into()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    match Api::all(client.clone()).create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(error)) if error.code == 409 => Ok(()),
        outcome => outcome.map(drop).map_err(Into::into),
    }
}
