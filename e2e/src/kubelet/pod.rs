//! The life of one Pod: it is bound to the node, its volumes are made, its containers run, and it is deleted in the end.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Binding, ConfigMap, Container, ObjectReference, Pod, PodSpec, PodStatus, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    NODE, Node,
    board::Board,
    container::{Restart, Runner},
    environment::{self, References, SECRET},
    status::{self, ContainerView, Phase},
    stopped,
    volumes::Volumes,
};
use crate::{NetworkNamespace, Workdir, container::Mount, forward::Forward};

/// The pause before volumes that could not be made are tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long an API server may be away.
const PATIENCE: Duration = Duration::from_mins(2);
/// How often the files of volumes are written anew: tokens expire, and Secrets change.
const REFRESH: Duration = Duration::from_secs(10);
/// The grace period of a Pod that states none, in seconds.
const GRACE_SECONDS: i64 = 30;

/// Runs one Pod until it is gone.
pub(super) struct PodRunner {
    node: Arc<Node>,
    pods: Api<Pod>,
    pod: Pod,
    board: Board,
    /// Turns true when the Pod is to end.
    stop: watch::Receiver<bool>,
}

impl PodRunner {
    pub(super) fn new(node: Arc<Node>, pod: Pod, stop: watch::Receiver<bool>) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let view = |it: &Container| ContainerView::new(&it.name, it.image.as_deref().unwrap_or_default());
        Self {
            pods: Api::namespaced(node.client.clone(), &pod.namespace().unwrap_or_default()),
            board: Board::new(init(&spec).iter().chain(&spec.containers).map(view).collect()),
            node,
            pod,
            stop,
        }
    }

    /// Runs the Pod to its end. Fails if the API server cannot be reached for long.
    pub(super) async fn run(mut self) -> Result<()> {
        let name = self.pod.name_any();
        let bound = insist(&format!("Pod {name} to be bound"), || self.bind()).await?;
        let Some(pod) = bound else {
            return Ok(());
        };
        self.pod = pod;
        tokio::select! {
            outcome = self.work() => outcome.with_context(|| format!("cannot run Pod {name}"))?,
            outcome = self.report() => outcome?,
        }
        self.reported().await?;
        // A Pod that has ended stays until somebody deletes it.
        stopped(&self.stop).await;
        insist(&format!("Pod {name} to be deleted"), || self.delete()).await
    }

    /// Binds the Pod to the node, and returns it with its addresses. Returns None if it is gone.
    async fn bind(&self) -> Result<Option<Pod>> {
        let name = self.pod.name_any();
        let live = self.pods.get_opt(&name).await?;
        let Some(live) = live.filter(|it| it.metadata.uid == self.pod.metadata.uid) else {
            return Ok(None);
        };
        if live.spec.as_ref().is_none_or(|it| it.node_name.is_none()) {
            let binding = Binding {
                metadata: kube::api::ObjectMeta {
                    name: Some(name.clone()),
                    ..kube::api::ObjectMeta::default()
                },
                target: ObjectReference {
                    kind: Some("Node".to_owned()),
                    name: Some(NODE.to_owned()),
                    ..ObjectReference::default()
                },
            };
            let _: serde_json::Value = self
                .pods
                .create_subresource("binding", &name, &PostParams::default(), &binding)
                .await?;
        }
        let mut pod = self.pods.get(&name).await?;
        let status = pod.status.get_or_insert_default();
        status.pod_ip = Some(Ipv4Addr::LOCALHOST.to_string());
        status.host_ip = Some(Ipv4Addr::LOCALHOST.to_string());
        Ok(Some(pod))
    }

    /// Runs the containers until all of them have ended for good, or the Pod is to end.
    async fn work(&self) -> Result<()> {
        let spec = self.pod.spec.as_ref().context("a Pod without a spec")?;
        let folder = Workdir::new(&self.pod.name_any())?;
        let volumes = Volumes {
            client: &self.node.client,
            pod: &self.pod,
            folder: folder.path(),
        };
        let references = tokio::select! {
            references = self.prepare(&volumes) => references,
            () = stopped(&self.stop) => return Ok(()),
        };
        let network = Arc::new(NetworkNamespace::new()?);
        let forwards = self.node.forward(&network)?;
        let etc = etc(&self.pod, &folder)?;
        let paths = spec.volumes.iter().flatten();
        let paths = paths.map(|it| (it.name.clone(), volumes.path(&it.name))).collect();
        let seconds = spec.termination_grace_period_seconds.unwrap_or(GRACE_SECONDS);
        let log = format!("{}-{}", self.node.name, self.pod.name_any());
        let runner = |container| Runner {
            pod: &self.pod,
            container,
            network: &network,
            board: &self.board,
            etc: &etc,
            volumes: &paths,
            references: &references,
            node: &self.node,
            stop: self.stop.clone(),
            grace: Duration::from_secs(seconds.try_into().unwrap_or_default()),
            log: &log,
        };
        let restart = Restart::of(spec.restart_policy.as_deref());
        // An init container that has succeeded is not started again.
        let restart_init = if restart == Restart::Never {
            restart
        } else {
            Restart::OnFailure
        };
        let run = async {
            for container in init(spec) {
                if !Box::pin(runner(container).run(restart_init)).await {
                    return;
                }
            }
            let runners: Vec<_> = spec.containers.iter().map(runner).collect();
            futures::future::join_all(runners.iter().map(|it| Box::pin(it.run(restart)))).await;
        };
        tokio::select! {
            () = run => {}
            () = refresh(&volumes) => {}
        }
        drop::<Vec<Forward>>(forwards);
        Ok(())
    }

    /// Makes the volumes, and reads what variables refer to. Tries again until everything is there.
    async fn prepare(&self, volumes: &Volumes<'_>) -> References {
        loop {
            let tried = async {
                volumes.write().await?;
                self.references().await
            };
            match tried.await {
                Ok(references) => return references,
                Err(error) => {
                    for view in self.board.views() {
                        let waiting = Phase::Waiting {
                            reason: "ContainerCreating".to_owned(),
                            message: format!("{error:#}"),
                        };
                        self.board.set(&view.name, waiting);
                    }
                    sleep(RETRY).await;
                }
            }
        }
    }

    async fn references(&self) -> Result<References> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let spec = self.pod.spec.as_ref().context("a Pod without a spec")?;
        let mut found = References::new();
        for container in init(spec).iter().chain(&spec.containers) {
            for (kind, name, key) in environment::needed(container) {
                let client = self.node.client.clone();
                let value = if kind == SECRET {
                    let secret = Api::<Secret>::namespaced(client, &namespace).get_opt(&name).await?;
                    let data = secret.and_then(|it| it.data).unwrap_or_default();
                    data.get(&key).map(|it| String::from_utf8(it.0.clone())).transpose()?
                } else {
                    let map = Api::<ConfigMap>::namespaced(client, &namespace).get_opt(&name).await?;
                    map.and_then(|it| it.data).unwrap_or_default().get(&key).cloned()
                };
                found.extend(value.map(|value| ((kind, name, key), value)));
            }
        }
        Ok(found)
    }

    /// Writes the status whenever something changes.
    async fn report(&self) -> Result<()> {
        loop {
            self.reported().await?;
            self.board.changed().await;
        }
    }

    async fn reported(&self) -> Result<()> {
        let what = format!("the status of Pod {} to be written", self.pod.name_any());
        insist(&what, || self.write_status()).await
    }

    async fn write_status(&self) -> Result<()> {
        let name = self.pod.name_any();
        let Some(live) = self.pods.get_opt(&name).await? else {
            return Ok(());
        };
        if live.metadata.uid != self.pod.metadata.uid {
            return Ok(());
        }
        let old = live.status.unwrap_or_default();
        let views = self.board.views();
        let of_init = self.pod.spec.as_ref().map_or(0, |spec| init(spec).len());
        let (of_init, main) = views.split_at(of_init);
        let mut status = status::status(&old, of_init, main, Timestamp::now());
        let addresses = self.pod.status.as_ref();
        status.pod_ip = addresses.and_then(|it| it.pod_ip.clone());
        status.host_ip = addresses.and_then(|it| it.host_ip.clone());
        if differs(&old, &status)? {
            let patch = Patch::Merge(json!({"metadata": {"uid": self.pod.metadata.uid}, "status": status}));
            match self.pods.patch_status(&name, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => {}
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }

    async fn delete(&self) -> Result<()> {
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: self.pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.pods.delete(&self.pod.name_any(), &now).await {
            Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => Ok(()),
            outcome => Ok(drop(outcome?)),
        }
    }
}

/// Tries until it succeeds or [`PATIENCE`] has passed. Unlike the probes of [`crate::eventually_ok`], attempts may borrow in a task.
async fn insist<T, F: Future<Output = Result<T>>>(what: &str, mut attempt: impl FnMut() -> F) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt().await {
            Err(error) if Instant::now() >= end => return Err(error).with_context(|| format!("waited for {what}")),
            Err(_) => sleep(RETRY).await,
            Ok(value) => return Ok(value),
        }
    }
}

async fn refresh(volumes: &Volumes<'_>) {
    loop {
        sleep(REFRESH).await;
        // What is away now stays as it was.
        let _ = volumes.write().await;
    }
}

fn init(spec: &PodSpec) -> &[Container] {
    spec.init_containers.as_deref().unwrap_or_default()
}

/// Whether a status has something that the old one has not.
fn differs(old: &PodStatus, new: &PodStatus) -> Result<bool> {
    let (old, new) = (serde_json::to_value(old)?, serde_json::to_value(new)?);
    let fields = new.as_object().context("a status is an object")?;
    Ok(fields.iter().any(|(name, value)| old[name] != *value))
}

/// Writes the files that each container finds in `/etc`. There is no DNS: names that are known are in `/etc/hosts`.
fn etc(pod: &Pod, folder: &Workdir) -> Result<Vec<Mount>> {
    let name = pod.name_any();
    let hosts = folder.write(".hosts", format!("127.0.0.1 localhost {name}\n"))?;
    let resolv = folder.write(".resolv.conf", "nameserver 127.0.0.1\noptions attempts:1 timeout:1\n")?;
    let hostname = folder.write(".hostname", format!("{name}\n"))?;
    let mount = |source: &Path, target| Mount::read_only(source, target);
    Ok(vec![
        mount(&hosts, "/etc/hosts"),
        mount(&resolv, "/etc/resolv.conf"),
        mount(&hostname, "/etc/hostname"),
    ])
}

impl Node {
    /// Makes the addresses that Pods may connect to reachable from the network of one of them.
    fn forward(&self, network: &NetworkNamespace) -> Result<Vec<Forward>> {
        let addresses = self.reachable.iter();
        addresses
            .map(|it: &SocketAddr| Forward::start(network, *it, None, *it))
            .collect()
    }

    /// The variables by which programs in a Pod find the API server.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        let server = self.server;
        BTreeMap::from([
            ("KUBERNETES_SERVICE_HOST".to_owned(), server.ip().to_string()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), server.port().to_string()),
        ])
    }
}
