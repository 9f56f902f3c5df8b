//! The life of one Pod: it is bound to the node, its volumes are made, its containers run, and it is deleted in the end.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Binding, Container, ObjectReference, Pod, PodSpec, PodStatus, Service, ServicePort, ServiceSpec,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;
use tokio::{net::TcpStream, sync::watch, time::sleep};

use super::{
    Kubelet, NODE, Stop,
    container::{ContainerRunner, Restart},
    creation::Surroundings,
    seconds_of,
    status::{self, ContainerView},
    status_manager::StatusManager,
    stopped,
    volumes::Volumes,
};
use crate::{NetworkNamespace, Workdir, container::Mount, eventually_ok, forward::Forward, network};

/// The pause before volumes that could not be made are tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long an API server may be away.
const PATIENCE: Duration = Duration::from_mins(2);
/// How often the files of volumes are written anew, and tokens with them.
const REFRESH: Duration = Duration::from_secs(10);
/// The grace period of a Pod that states none, in seconds.
const GRACE_SECONDS: i64 = 30;

/// Runs one Pod until it is gone.
pub(super) struct PodRunner<'a> {
    kubelet: &'a Kubelet<'a>,
    pods: Api<Pod>,
    pod: Pod,
    manager: StatusManager,
    stop: watch::Receiver<Stop>,
}

impl<'a> PodRunner<'a> {
    pub(super) fn new(kubelet: &'a Kubelet<'a>, pod: Pod, stop: watch::Receiver<Stop>) -> Self {
        let view = |it: &Container| ContainerView::new(&it.name, it.image.as_deref().unwrap_or_default());
        let views = match &pod.spec {
            Some(spec) => init(spec).iter().chain(&spec.containers).map(view).collect(),
            None => Vec::new(),
        };
        Self {
            pods: Api::namespaced(kubelet.plane.client(), &pod.namespace().unwrap_or_default()),
            manager: StatusManager::new(views),
            kubelet,
            pod,
            stop,
        }
    }

    /// Runs the Pod to its end. Fails if this machine cannot run Pods, or if the API server cannot be reached for long.
    pub(super) async fn run(mut self) -> Result<()> {
        let name = self.pod.name_any();
        let phase = self.pod.status.as_ref().and_then(|it| it.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        if !has_ended {
            let what = format!("Pod {name} to be bound");
            let Some(pod) = eventually_ok(what, PATIENCE, async || self.bind().await).await? else {
                return Ok(());
            };
            self.pod = pod;
            tokio::select! {
                outcome = self.work() => outcome.with_context(|| format!("cannot run Pod {name}"))?,
                outcome = self.report() => outcome?,
            }
            self.reported().await?;
        }
        // A Pod that has ended stays until somebody deletes it.
        stopped(&self.stop).await;
        let what = format!("Pod {name} to be deleted");
        eventually_ok(what, PATIENCE, async || self.delete().await).await
    }

    /// Binds the Pod to the node, and returns it with its addresses. Returns None if it is gone.
    async fn bind(&self) -> Result<Option<Pod>> {
        let name = self.pod.name_any();
        let Some(live) = self.live().await? else {
            return Ok(None);
        };
        if live.spec.as_ref().is_none_or(|it| it.node_name.is_none()) {
            let binding = Binding {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    ..ObjectMeta::default()
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
        let mut bound = self.live().await?;
        if let Some(pod) = &mut bound {
            let status = pod.status.get_or_insert_default();
            status.pod_ip = Some(network::ADDRESS.to_string());
            status.host_ip = Some(Ipv4Addr::LOCALHOST.to_string());
        }
        Ok(bound)
    }

    /// The Pod as it is now, unless it is gone.
    async fn live(&self) -> Result<Option<Pod>> {
        let found = self.pods.get_opt(&self.pod.name_any()).await?;
        Ok(found.filter(|it| it.metadata.uid == self.pod.metadata.uid))
    }

    /// Runs the containers until all of them have ended for good, or the Pod is to end.
    async fn work(&self) -> Result<()> {
        let kubelet = self.kubelet;
        let (uid, name) = (self.pod.uid().unwrap_or_default(), self.pod.name_any());
        let folder = Workdir::new(&name)?;
        let network = Arc::new(NetworkNamespace::new()?);
        let _forwards = kubelet.forward(&network)?;
        kubelet.sandboxes.insert(&uid, Arc::clone(&network));
        let outcome = self.work_in(&folder, &network).await;
        kubelet.sandboxes.remove(&uid);
        outcome
    }

    async fn work_in(&self, folder: &Workdir, network: &Arc<NetworkNamespace>) -> Result<()> {
        let kubelet = self.kubelet;
        let spec = self.pod.spec.as_ref().context("a Pod without a spec")?;
        let client = kubelet.plane.client();
        let volumes = Volumes::new(&client, &self.pod, folder.path());
        tokio::select! {
            () = self.prepare(&volumes) => {}
            () = stopped(&self.stop) => return Ok(()),
        }
        let names = spec.volumes.iter().flatten().map(|it| it.name.clone());
        let surroundings = Surroundings {
            pod: &self.pod,
            client: client.clone(),
            api_server: kubelet.api_server(),
            etc: etc(&self.pod, folder)?,
            volumes: names.map(|name| (name.clone(), volumes.path(&name))).collect(),
        };
        let log = format!("{}-{}", kubelet.plane.name(), self.pod.name_any());
        let runner = |container| ContainerRunner {
            spec: container,
            surroundings: &surroundings,
            network,
            sandboxes: &kubelet.sandboxes,
            manager: &self.manager,
            is_quiet: &kubelet.is_quiet,
            restarts: &kubelet.restarts,
            stop: self.stop.clone(),
            grace: seconds_of(spec.termination_grace_period_seconds.unwrap_or(GRACE_SECONDS)),
            log: &log,
        };
        let restart = Restart::of(spec.restart_policy.as_deref());
        let run = async {
            for container in init(spec) {
                if !Box::pin(runner(container).run(restart.of_init())).await {
                    return;
                }
            }
            let runners: Vec<_> = spec.containers.iter().map(runner).collect();
            join_all(runners.iter().map(|it| Box::pin(it.run(restart)))).await;
        };
        tokio::select! {
            () = run => {}
            () = refresh(&volumes) => {}
        }
        Ok(())
    }

    /// Makes the volumes. Tries again until everything is there.
    async fn prepare(&self, volumes: &Volumes<'_>) {
        while let Err(error) = volumes.write().await {
            for view in self.manager.views() {
                self.manager
                    .set_waiting(&view.name, "ContainerCreating", format!("{error:#}"));
            }
            sleep(RETRY).await;
        }
    }

    /// Writes the status whenever something changes.
    async fn report(&self) -> Result<()> {
        loop {
            self.reported().await?;
            self.manager.changed().await;
        }
    }

    async fn reported(&self) -> Result<()> {
        let what = format!("the status of Pod {} to be written", self.pod.name_any());
        eventually_ok(what, PATIENCE, async || self.write_status().await).await
    }

    async fn write_status(&self) -> Result<()> {
        let Some(live) = self.live().await? else {
            return Ok(());
        };
        let old = live.status.unwrap_or_default();
        let views = self.manager.views();
        let init_count = self.pod.spec.as_ref().map_or(0, |spec| init(spec).len());
        let (of_init, main) = views.split_at(init_count);
        let mut status = status::status(&old, of_init, main, Timestamp::now());
        let addresses = self.pod.status.as_ref();
        status.pod_ip = addresses.and_then(|it| it.pod_ip.clone());
        status.host_ip = addresses.and_then(|it| it.host_ip.clone());
        if differs(&old, &status)? {
            let patch = Patch::Merge(json!({"metadata": {"uid": self.pod.metadata.uid}, "status": status}));
            let name = self.pod.name_any();
            unless_gone(self.pods.patch_status(&name, &PatchParams::default(), &patch).await)?;
        }
        Ok(())
    }

    async fn delete(&self) -> Result<()> {
        let at_once = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: self.pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        unless_gone(self.pods.delete(&self.pod.name_any(), &at_once).await)
    }
}

/// A Pod that is gone, or has made way for another one of its name, needs no write.
fn unless_gone<T>(outcome: Result<T, kube::Error>) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => Ok(()),
        outcome => outcome.map(drop).map_err(Into::into),
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

/// Writes the files that each container finds in `/etc`.
fn etc(pod: &Pod, folder: &Workdir) -> Result<Vec<Mount>> {
    let name = pod.name_any();
    let hosts = format!("127.0.0.1 localhost\n{} {name}\n", network::ADDRESS);
    let hosts = folder.write_shared(".hosts", hosts)?;
    let resolv = folder.write_shared(".resolv.conf", "nameserver 127.0.0.1\noptions attempts:1 timeout:1\n")?;
    let hostname = folder.write_shared(".hostname", format!("{name}\n"))?;
    let mount = |source: &Path, target| Mount::read_only(source, target);
    Ok(vec![
        mount(&hosts, "/etc/hosts"),
        mount(&resolv, "/etc/resolv.conf"),
        mount(&hostname, "/etc/hostname"),
    ])
}

impl Kubelet<'_> {
    /// Makes the addresses that Pods may connect to reachable from the network of one of them.
    fn forward(&self, network: &NetworkNamespace) -> Result<Vec<Forward>> {
        let forward = |address: &SocketAddr| {
            let (address, connected) = (*address, Arc::clone(&self.connected));
            Forward::start(network.listen(address)?, move || {
                connected.lock().insert(address);
                async move { Ok(TcpStream::connect(address).await?) }
            })
        };
        self.reachable.iter().map(forward).collect()
    }

    /// Service `kubernetes`, as Pods reach it: its own IP leads nowhere.
    fn api_server(&self) -> Service {
        let server = self.plane.server_address();
        Service {
            metadata: ObjectMeta {
                name: Some("kubernetes".to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                cluster_ip: Some(server.ip().to_string()),
                ports: Some(vec![ServicePort {
                    name: Some("https".to_owned()),
                    port: server.port().into(),
                    ..ServicePort::default()
                }]),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        }
    }
}
