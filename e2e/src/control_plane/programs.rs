//! The three programs: their files, addresses and flags.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use serde_json::json;

use super::{ports, tokens::SigningKey};
use crate::{
    Audit, Process, Workdir,
    binaries::{Binaries, Program},
    pki::Authority,
};

/// The controllers that run: those whose work users of Kubernetes see, except the ones for pods.
const CONTROLLERS: [&str; 8] = [
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "validatingadmissionpolicy-status-controller",
];

/// The controllers for Pods, which run only where a kubelet does: they cost processor time.
const WORKLOADS: [&str; 6] = [
    "deployment-controller",
    "disruption-controller",
    "job-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "ttl-after-finished-controller",
];

/// The environment in which the Go programs seldom collect garbage. An API server starts in two thirds of the processor time,
/// and grows to five times what it needs. A limit on its memory would not do: an API server that needs more than the limit
/// does nothing but collect garbage.
pub(super) const SELDOM_COLLECTED: [(&str, &str); 1] = [("GOGC", "400")];

/// The file with the tokens of people, if there are any.
const PEOPLE: &str = "people.csv";
/// The file with the audience that their tokens are good for beside the API server.
const AUDIENCE: &str = "people.audience";

/// The file with the flags about an issuer of ID tokens, if there is one.
const ISSUER: &str = "issuer.flags";

/// Addresses and files of one control plane.
#[derive(Debug)]
pub(super) struct Layout {
    dir: PathBuf,
    server: SocketAddr,
    audit: Option<Audit>,
    /// The file with the configuration of admission, if it is not that of Kubernetes.
    admission: Option<PathBuf>,
}

impl Layout {
    /// Chooses addresses and writes keys and certificates.
    pub(super) fn prepare(workdir: &Workdir, authority: &Authority, signing_key: &SigningKey) -> Result<Self> {
        let serving = authority.server(&["127.0.0.1", "localhost", "kubernetes.default.svc"])?;
        workdir.write("ca.crt", authority.pem())?;
        workdir.write("serving.crt", &serving.certificate)?;
        workdir.write("serving.key", &serving.key)?;
        workdir.write("service-account.pub", signing_key.public_pem())?;
        workdir.write("service-account.key", signing_key.private_pem())?;
        Ok(Self {
            dir: workdir.path().to_owned(),
            server: ports::free()?,
            audit: None,
            admission: None,
        })
    }

    /// Has API servers that are started from now on refuse Pods that do not keep the standard `restricted`, except in namespaces
    /// that say otherwise.
    pub(super) fn restricted(mut self, workdir: &Workdir) -> Result<Self> {
        let plugin = json!({
            "name": "PodSecurity",
            "configuration": {
                "apiVersion": "pod-security.admission.config.k8s.io/v1",
                "kind": "PodSecurityConfiguration",
                "defaults": {"enforce": "restricted", "enforce-version": "latest"},
            },
        });
        let admission = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [plugin],
        });
        self.admission = Some(workdir.write("admission.json", admission.to_string())?);
        Ok(self)
    }

    /// Has API servers that are started from now on write an audit log.
    pub(super) fn audited(mut self, workdir: &Workdir) -> Result<Self> {
        self.audit = Some(Audit::prepare(workdir)?);
        Ok(self)
    }

    pub(super) fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    /// A socket in the folder rather than a port: nobody else can take it, nor read what the API server protects.
    pub(super) fn etcd_socket(&self) -> PathBuf {
        self.dir.join("etcd.sock")
    }

    /// Where the store keeps what it has.
    pub(super) fn etcd_data(&self) -> PathBuf {
        self.dir.join("etcd")
    }

    pub(super) fn server_address(&self) -> SocketAddr {
        self.server
    }

    pub(super) fn server_url(&self) -> String {
        format!("https://{}", self.server)
    }

    pub(super) fn ca_path(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    pub(super) fn spawn_etcd(&self, binaries: &Binaries) -> Result<Process> {
        let flags = [
            format!("--data-dir={}", self.file("etcd")),
            format!("--listen-client-urls=unix://{}", self.file("etcd.sock")),
            // The two others are demanded and used by nobody: it is the only member.
            "--advertise-client-urls=http://localhost:2379".to_owned(),
            "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        self.spawn(binaries, Program::Etcd, &flags)
    }

    pub(super) fn spawn_api_server(&self, binaries: &Binaries) -> Result<Process> {
        let url = self.server_url();
        let mut flags = vec![
            format!("--etcd-servers=unix://{}", self.file("etcd.sock")),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.server.port()),
            format!("--tls-cert-file={}", self.file("serving.crt")),
            format!("--tls-private-key-file={}", self.file("serving.key")),
            format!("--client-ca-file={}", self.file("ca.crt")),
            "--authorization-mode=RBAC".to_owned(),
            format!("--service-account-issuer={url}"),
            format!("--service-account-jwks-uri={url}/openid/v1/jwks"),
            format!("--service-account-key-file={}", self.file("service-account.pub")),
            format!(
                "--service-account-signing-key-file={}",
                self.file("service-account.key")
            ),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--profiling=false".to_owned(),
        ];
        flags.extend(self.audit.iter().flat_map(Audit::flags));
        flags.extend(self.people_flags());
        flags.extend(self.issuer_flags());
        let admission = self.admission.iter();
        flags.extend(admission.map(|file| format!("--admission-control-config-file={}", file.display())));
        self.spawn(binaries, Program::KubeApiserver, &flags)
    }

    /// Has API servers that are started from now on know people by tokens, which are good for this audience too.
    pub(super) fn know_people(&self, table: &str, audience: &str) -> Result<()> {
        std::fs::write(self.dir.join(PEOPLE), table)?;
        std::fs::write(self.dir.join(AUDIENCE), audience)?;
        Ok(())
    }

    fn people_flags(&self) -> Vec<String> {
        let Ok(audience) = std::fs::read_to_string(self.dir.join(AUDIENCE)) else {
            return Vec::new();
        };
        vec![
            format!("--token-auth-file={}", self.file(PEOPLE)),
            format!("--api-audiences={},{audience}", self.server_url()),
        ]
    }

    /// Has API servers that are started from now on accept ID tokens by these flags; none for no issuer.
    pub(super) fn trust_issuer(&self, flags: &[String]) -> Result<()> {
        Ok(std::fs::write(self.dir.join(ISSUER), flags.join("\n"))?)
    }

    fn issuer_flags(&self) -> Vec<String> {
        let flags = std::fs::read_to_string(self.dir.join(ISSUER)).unwrap_or_default();
        flags.lines().map(str::to_owned).collect()
    }

    pub(super) fn spawn_controller_manager(
        &self,
        binaries: &Binaries,
        kubeconfig: &Path,
        has_workloads: bool,
    ) -> Result<Process> {
        let workloads = if has_workloads { &WORKLOADS[..] } else { &[] };
        let flags = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--controllers={}", [&CONTROLLERS[..], workloads].concat().join(",")),
            format!("--root-ca-file={}", self.file("ca.crt")),
            format!(
                "--service-account-private-key-file={}",
                self.file("service-account.key")
            ),
            "--leader-elect=false".to_owned(),
            // No port to collide on: nobody asks it for its health.
            "--secure-port=0".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
            "--profiling=false".to_owned(),
        ];
        self.spawn(binaries, Program::KubeControllerManager, &flags)
    }

    fn spawn(&self, binaries: &Binaries, program: Program, flags: &[String]) -> Result<Process> {
        let mut command = Command::new(binaries.path(program));
        command.args(flags).envs(SELDOM_COLLECTED);
        Process::spawn_in(&self.dir, program.name(), &command)
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

/// Whether a program ended because somebody else listens on its port. Errors carry the last lines of its log.
pub(super) fn is_port_collision(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}
