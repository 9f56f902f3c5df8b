//! Every alert is made to fire by the fault that it is for, on a real Prometheus in which time runs faster, and falls silent after the mend.

use std::{io::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{backend::Backend, holder::RecordedHolder, names::CLUSTER_BINDING, v1alpha2::ClusterBinding};
use bindery_e2e::{
    ControlPlane, Gate, Prometheus, Workdir,
    bound::Bound,
    clock, eventually, eventually_ok,
    observe::{Program, Scale, Target},
    run,
    wildwest::SOON,
};
use bindery_proto::v1alpha2::ErrorReason;
use bindery_sdk::{BindRequest, Client};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, sleep_until},
};

use super::board::Board;

/// A leader that hangs is followed after 40 seconds, and one that is cut off for a moment leads on.
const FLAGS: [&str; 6] = [
    "--lease-duration",
    "40",
    "--lease-renew-deadline",
    "30",
    "--lease-retry-period",
    "1",
];
/// How much older a credential is than it seems: it has five minutes of its hour left.
const AGED: &str = "3300";
/// The beginning of the names of the policies on the konnector's account.
const KONNECTOR_POLICIES: &str = "kube-bind-konnector";
/// Calls of each kind while the provider is cut off; an objective looks at no fewer than ten.
const CALLS: usize = 15;
const OBJECTS: usize = 200;
const TEMPLATES: usize = 100;
/// Label of the templates of APIs that do not exist.
const MISSING: &str = "missing";
/// Longer than changes may take by their objective.
const LATE: Duration = Duration::from_secs(6);

/// Five minutes are a second.
fn scale() -> Scale {
    Scale {
        divisor: 300,
        shortest: 4,
        chosen: [
            ("alerts.syncQueueGrowing.threshold", "50"),
            ("alerts.serverQueueGrowing.threshold", "20"),
            // A renewal is tried again after one, two and four seconds, which do not run faster.
            ("alerts.renewalsFailing.window", "30s"),
            // Nor does the pause of fifteen seconds before a provider that does not answer is asked again.
            ("alerts.providerUnreachable.window", "60s"),
        ]
        .map(|(path, value)| (path, value.to_owned()))
        .into(),
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask soak --only alerts"]
fn every_alert_fires_by_its_fault_and_falls_silent_after_the_mend() -> Result<()> {
    run(async {
        let mut bound = Bound::prepare("alerts", &FLAGS).await?;
        bound.provider.servers[0].kill9()?;
        bound.provider.set_flag("--limit-calls-per-second", "50");
        bound.provider.set_flag("--max-connections-per-peer", "100");
        let gate = Gate::start(&bound.provider.plane).await?;
        bound.provider.reach_through(gate.url())?;
        bound.provider.restart_server().await?;
        bound.consumer.stop_konnectors().await?;
        bound.consumer.set_flag("--heartbeat-interval", "2s");
        bound.consumer.set_flag("--account-policies", KONNECTOR_POLICIES);
        bound.consumer.start_konnector().await?;
        bound.bind(&["cowboys"]).await?;
        bound.cowboys.create("billy", "ride").await?;
        bound.cowboys.copied("billy", "ride").await?;

        let folder = Workdir::new("prometheus")?;
        let prometheus = Prometheus::start(folder.path(), &Target::Scaled(scale())).await?;
        let mut world = World {
            bound,
            gate,
            prometheus: &prometheus,
        };
        world.scrape()?;
        let mut board = Board::new(&prometheus);
        board.quiet().await?;
        world.killed_and_expired(&mut board).await?;
        world.cut_off(&mut board).await?;
        world.slowed(&mut board).await?;
        world.overloaded(&mut board).await?;
        world.flooded(&mut board).await?;
        world.revoked(&mut board).await?;
        world.locked(&mut board).await?;
        world.orphaned(&mut board).await?;
        world.misconfigured(&mut board).await?;
        world.hung(&mut board).await?;
        let table = board.finish()?;
        Ok(std::io::stdout().write_all(table.as_bytes())?)
    })
}

struct World<'a> {
    bound: Bound,
    /// Between the server and its API server.
    gate: Gate,
    prometheus: &'a Prometheus,
}

impl World<'_> {
    /// Has the processes scraped that run now.
    fn scrape(&self) -> Result<()> {
        let (provider, consumer) = (&self.bound.provider, &self.bound.consumer);
        self.prometheus.scrape(Program::Server, &[provider.admin_port()])?;
        self.prometheus.scrape(Program::Konnector, &[consumer.admin_port()])
    }

    /// A client with the owner's token.
    fn owner(&self) -> Result<Client> {
        self.client(&std::fs::read_to_string(&self.bound.token)?)
    }

    fn client(&self, token: &str) -> Result<Client> {
        let provider = &self.bound.provider;
        let builder = Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        Ok(builder.token(token.to_owned()).build()?)
    }

    /// Both programs are killed. The konnector comes back when its credential has almost expired, and nobody renews it.
    async fn killed_and_expired(&mut self, board: &mut Board<'_>) -> Result<()> {
        let killed = [
            "BinderyServerAbsent",
            "BinderyKonnectorAbsent",
            "BinderyKonnectorAvailabilityBudgetBurn",
        ];
        let fault = Instant::now();
        self.bound.provider.servers[0].kill9()?;
        for konnector in &mut self.bound.consumer.konnectors {
            konnector.kill9()?;
        }
        board.fire(&killed, fault).await?;

        let expired = ["BinderyCredentialExpiresSoon", "BinderyRenewalsFailing"];
        let shim = clock::shim(self.bound.consumer.plane.workdir()).await?;
        self.bound.consumer.with_env("LD_PRELOAD", &shim.to_string_lossy());
        self.bound.consumer.with_env(clock::SHIFT, AGED);
        let fault = Instant::now();
        self.bound.consumer.start_konnector().await?;
        self.scrape()?;
        board.fire(&expired, fault).await?;

        let mend = Instant::now();
        self.bound.provider.restart_server().await?;
        board.fall_silent(&killed, mend).await?;
        board.fall_silent(&expired, mend).await?;
        // From now on its clock is right.
        self.bound.consumer.with_env(clock::SHIFT, "0");
        self.bound.consumer.stop_konnectors().await?;
        self.bound.consumer.start_konnector().await?;
        self.scrape()?;
        board.quiet().await
    }

    /// The provider's API server is away: its server answers no call, and the konnector does not reach it.
    async fn cut_off(&mut self, board: &mut Board<'_>) -> Result<()> {
        let cut = [
            "BinderyBindBudgetBurn",
            "BinderyRenewalBudgetBurn",
            "BinderyServerAvailabilityBudgetBurn",
            "BinderyProviderUnreachable",
        ];
        let owner = self.owner()?;
        let identity = self.bound.consumer.identity().await?;
        let fault = Instant::now();
        self.bound.provider.plane.stop_api_server()?;
        let calls = async {
            loop {
                let binds = (0..CALLS).map(|_| owner.bind(BindRequest::new("cowboys", &*identity), |_| ()));
                let renewals = (0..CALLS).map(|_| owner.renew_kubeconfig(&self.bound.contract));
                tokio::join!(join_all(binds), join_all(renewals));
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            () = calls => {}
            fired = board.fire(&cut, fault) => fired?,
        }
        let mend = Instant::now();
        self.bound.provider.plane.start_api_server().await?;
        self.bound.provider.keep_server_up().await?;
        board.fall_silent(&cut, mend).await?;
        board.quiet().await
    }

    /// The provider's API server answers late.
    async fn slowed(&mut self, board: &mut Board<'_>) -> Result<()> {
        let late = ["BinderySyncLatencyBudgetBurn"];
        let fault = Instant::now();
        self.bound.provider.plane.pause_api_server()?;
        let riders = || (0..CALLS).map(|at| format!("late-{at}"));
        self.bound.create(riders()).await?;
        sleep_until(fault + LATE).await;
        let mend = Instant::now();
        self.bound.provider.plane.resume_api_server()?;
        for rider in riders() {
            self.bound.cowboys.copied(&rider, "ride").await?;
        }
        board.fire(&late, fault).await?;
        board.fall_silent(&late, mend).await?;
        board.quiet().await
    }

    /// More objects and templates come in than an API server that hardly answers takes.
    async fn overloaded(&mut self, board: &mut Board<'_>) -> Result<()> {
        let objects = ["BinderySyncQueueGrowing"];
        let fault = Instant::now();
        self.bound.provider.plane.pause_api_server()?;
        self.bound.create((0..OBJECTS).map(|at| format!("rider-{at}"))).await?;
        board.fire(&objects, fault).await?;
        let mend = Instant::now();
        self.bound.provider.plane.resume_api_server()?;
        board.fall_silent(&objects, mend).await?;
        let ours = &self.bound.cowboys.ours;
        ours.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        self.bound.cowboys.gone("billy").await?;
        self.bound.cowboys.create("billy", "ride on").await?;

        let templates = ["BinderyServerQueueGrowing", "BinderyOffersNotReady"];
        let documents: Vec<_> = (0..TEMPLATES)
            .map(|at| {
                json!({
                    "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate",
                    "metadata": {"name": format!("missing-{at}"), "labels": {MISSING: "true"}},
                    "spec": {"scope": "Namespaced", "resources": [
                        {"group": "missing.example.com", "resource": format!("things{at}"), "versions": ["v1"]},
                    ]},
                })
                .to_string()
            })
            .collect();
        let fault = Instant::now();
        self.gate.pause_after(0, |_| true);
        self.bound.provider.plane.apply(&documents.join("\n---\n")).await?;
        board.fire(&templates, fault).await?;
        let mend = Instant::now();
        self.gate.open();
        let delete = ["delete", "apiserviceexporttemplates", "-l", MISSING, "--wait=false"];
        self.bound.provider.plane.kubectl(&delete).await?;
        board.fall_silent(&templates, mend).await?;
        board.quiet().await
    }

    /// Strangers and tenants ask for more than they may, and the audit log cannot be written.
    async fn flooded(&mut self, board: &mut Board<'_>) -> Result<()> {
        let flooded = ["BinderyConnectionFlood", "BinderyLimitsMet"];
        let owner = self.owner()?;
        let address = self.bound.provider.address();
        let address = address.trim_start_matches("https://");
        let fault = Instant::now();
        let flood = async {
            loop {
                let strangers = join_all((0..200).map(|_| TcpStream::connect(address)));
                let calls = join_all((0..200).map(|_| owner.get_caller()));
                tokio::join!(strangers, calls);
            }
        };
        tokio::select! {
            () = flood => {}
            fired = board.fire(&flooded, fault) => fired?,
        }
        board.fall_silent(&flooded, Instant::now()).await?;

        let lost = ["BinderyAuditLinesLost"];
        self.bound.provider.servers[0].kill9()?;
        self.bound.provider.set_flag("--audit-log-path", "/dev/full");
        self.bound.provider.restart_server().await?;
        board.quiet().await?;
        // A server without an audit log has no count of its lines, and an alert sees a rise only from a count that was scraped before.
        eventually("the count of lost lines to be scraped", SOON, async || {
            let counts = self
                .prometheus
                .samples("bindery_audit_lines_total{outcome='failed'}")
                .await?;
            Ok((counts > 0).then_some(()))
        })
        .await?;
        let fault = Instant::now();
        self.bound.bind(&["cowboys"]).await?;
        board.fire(&lost, fault).await?;
        let mend = Instant::now();
        self.bound.provider.servers[0].kill9()?;
        let log = self.bound.provider.plane.workdir().path().join("audit.log");
        self.bound.provider.set_flag("--audit-log-path", &log.to_string_lossy());
        self.bound.provider.restart_server().await?;
        board.fall_silent(&lost, mend).await?;
        board.quiet().await
    }

    /// The konnector's right to the bound objects is taken.
    async fn revoked(&mut self, board: &mut Board<'_>) -> Result<()> {
        let revoked = ["BinderyBindingsNotReady", "BinderyObjectsFailing"];
        let plane = &self.bound.consumer.plane;
        let binding = ["clusterrolebinding", "kube-bind-konnector-cowboys"];
        let kept = document(plane, &binding).await?;
        let fault = Instant::now();
        plane.kubectl(&[&["delete"], &binding[..]].concat()).await?;
        self.bound.cowboys.create("jesse", "ride").await?;
        board.fire(&revoked, fault).await?;
        let mend = Instant::now();
        plane.apply(&kept).await?;
        self.bound.cowboys.copied("jesse", "ride").await?;
        board.fall_silent(&revoked, mend).await?;
        board.quiet().await
    }

    /// Somebody renews with a copy of the kubeconfig, and the konnector's token is used again after that.
    async fn locked(&mut self, board: &mut Board<'_>) -> Result<()> {
        let locked = ["BinderyRenewalsLocked"];
        let contract = self.bound.contract.clone();
        let first = self.client(&self.installed().await?)?;
        let fault = Instant::now();
        let stolen = token_of(
            &first
                .renew_kubeconfig(&contract)
                .await?
                .kubeconfig
                .into_message()
                .kubeconfig,
        )?;
        let thief = self.client(&stolen)?;
        thief.renew_kubeconfig(&contract).await?;
        let records: Api<ClusterBinding> = Api::namespaced(self.bound.provider.plane.client(), &contract);
        eventually("the lock", SOON, async || {
            let record = RecordedHolder::of(&records.get(CLUSTER_BINDING).await?).record;
            let record = record.context("no record of a holder")?.to_string();
            let outcome = first.renew_kubeconfig_as_holder(&contract, &record).await;
            let error = outcome.err().context("a token that ended was renewed")?;
            Ok((error.reason() == Some(ErrorReason::RenewalLocked)).then_some(()))
        })
        .await?;
        board.fire(&locked, fault).await?;
        let mend = Instant::now();
        self.bound.bind(&["renew", "cowboys"]).await?;
        board.fall_silent(&locked, mend).await?;
        board.quiet().await
    }

    /// The token for the server in the kubeconfig that the consumer has.
    async fn installed(&self) -> Result<String> {
        let secrets: Api<Secret> = Api::namespaced(self.bound.consumer.plane.client(), "kube-bind");
        let mut data = secrets
            .get("kubeconfig-cowboys")
            .await?
            .data
            .context("an empty Secret")?;
        token_of(&data.remove("kubeconfig").context("a kubeconfig")?.0)
    }

    /// An object vanishes while no konnector runs.
    async fn orphaned(&mut self, board: &mut Board<'_>) -> Result<()> {
        let orphaned = ["BinderyOrphans"];
        self.bound.consumer.stop_konnectors().await?;
        let fault = Instant::now();
        let ours = &self.bound.cowboys.ours;
        let unheld = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        ours.patch("jesse", &PatchParams::default(), &unheld).await?;
        ours.delete("jesse", &DeleteParams::default()).await?;
        self.bound.consumer.start_konnector().await?;
        self.scrape()?;
        board.fire(&orphaned, fault).await?;
        let mend = Instant::now();
        self.bound.bind(&["orphans", "cowboys", "--delete", "--yes"]).await?;
        self.bound.cowboys.gone("jesse").await?;
        board.fall_silent(&orphaned, mend).await?;
        board.quiet().await
    }

    /// Policies are taken away, and a certificate is about to end.
    async fn misconfigured(&mut self, board: &mut Board<'_>) -> Result<()> {
        let (provider, consumer) = (&self.bound.provider.plane, &self.bound.consumer.plane);
        without_policy(board, provider, "kube-bind-server", "BinderyPolicyNotInForce").await?;
        without_policy(board, consumer, KONNECTOR_POLICIES, "BinderyKonnectorPolicyNotInForce").await?;

        let ends = ["BinderyCertificateEnds"];
        let names = ["127.0.0.1", "localhost"];
        let plane = &self.bound.provider.plane;
        let soon = jiff::Zoned::now().date().checked_add(jiff::Span::new().days(3))?;
        let fault = Instant::now();
        self.bound
            .provider
            .serve_certificate(&plane.authority().server_until(&names, soon)?)?;
        board.fire(&ends, fault).await?;
        let mend = Instant::now();
        self.bound
            .provider
            .serve_certificate(&plane.authority().server(&names)?)?;
        board.fall_silent(&ends, mend).await?;
        board.quiet().await
    }

    /// The leaders hang, and nobody leads until their Leases have run out.
    async fn hung(&mut self, board: &mut Board<'_>) -> Result<()> {
        let hung = ["BinderyServerNoLeader", "BinderyKonnectorNoLeader"];
        let leader = self.bound.consumer.admin_port();
        self.bound.provider.start_server().await?;
        self.bound.consumer.start_konnector().await?;
        let (provider, consumer) = (&self.bound.provider, &self.bound.consumer);
        let servers = [
            provider.admin_port(),
            provider.replica_admin_port(provider.replica_count() - 1),
        ];
        self.prometheus.scrape(Program::Server, &servers)?;
        self.prometheus
            .scrape(Program::Konnector, &[leader, consumer.admin_port()])?;
        board.look().await?;
        let fault = Instant::now();
        self.bound.provider.servers[0].pause()?;
        self.bound.consumer.konnectors[0].pause()?;
        board.fire(&hung, fault).await?;
        // The Lease runs out: the mend is made by the programs.
        board.fall_silent(&hung, fault).await?;
        for process in [
            &mut self.bound.provider.servers[0],
            &mut self.bound.consumer.konnectors[0],
        ] {
            process.signal(Signal::SIGCONT)?;
            ensure!(!process.wait(SOON).await?.success(), "a leader that hung goes on");
        }
        eventually_ok("the followers to sync", SOON, async || {
            self.bound.cowboys.intend("billy", "follow").await?;
            self.bound.cowboys.copied("billy", "follow").await
        })
        .await
        .map(drop)
    }
}

/// The binding of a policy is deleted, and applied again.
async fn without_policy(board: &mut Board<'_>, plane: &ControlPlane, policy: &str, alert: &'static str) -> Result<()> {
    let alerts = [alert];
    let binding = ["validatingadmissionpolicybinding", policy];
    let kept = document(plane, &binding).await?;
    let fault = Instant::now();
    plane.kubectl(&[&["delete"], &binding[..]].concat()).await?;
    board.fire(&alerts, fault).await?;
    let mend = Instant::now();
    plane.apply(&kept).await?;
    board.fall_silent(&alerts, mend).await
}

/// An object, given by kind and name, as a document that makes it anew.
async fn document(plane: &ControlPlane, object: &[&str]) -> Result<String> {
    let found = plane.kubectl(&[&["get"], object, &["-o", "json"]].concat()).await?;
    let mut found: Value = serde_json::from_str(&found)?;
    let metadata = found["metadata"].take();
    let kept = ["name", "labels", "annotations", "ownerReferences"];
    let kept = kept.iter().filter(|field| !metadata[**field].is_null());
    found["metadata"] = kept
        .map(|field| ((*field).to_owned(), metadata[*field].clone()))
        .collect();
    Ok(found.to_string())
}

/// The token for the server in a kubeconfig.
fn token_of(document: &[u8]) -> Result<String> {
    let kubeconfig: kube::config::Kubeconfig = serde_saphyr::from_slice(document)?;
    let cluster = kubeconfig.clusters.into_iter().next().and_then(|named| named.cluster);
    let extensions = cluster.and_then(|cluster| cluster.extensions).unwrap_or_default();
    let backend = Backend::find(&extensions)?.context("the kubeconfig names no server")?;
    Ok(backend.token)
}
