//! One provider and one consumer for all cases.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bindery_api::{
    names,
    v1alpha2::{BindableResourcesRequest, BindableResourcesRequestSpec},
};
use bindery_e2e::{
    Consumer, Kubeconfig, NAMESPACE, Provider, User, Workdir, eventually_ok, lease, process, run, wildwest::SOON,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::{Mutex, OnceCell};

use crate::teams;

/// How long something that must not happen is waited for.
pub(crate) const A_WHILE: Duration = Duration::from_secs(2);
/// Name of the policy that says who may ask for what.
pub(crate) const POLICY: &str = "kube-bind-requests";

/// Why it could not be started is told by every case: it is not tried again.
static WORLD: OnceCell<Result<World, String>> = OnceCell::const_new();

/// What the cases share. It lives as long as the process, whose end ends it.
pub(crate) struct World {
    pub(crate) provider: Provider,
    pub(crate) consumer: Consumer,
    /// Folder with the audit log of the server.
    audit: Workdir,
    /// Held while the konnector is installed: what one adds to its rights another does not see in time.
    installing: Mutex<()>,
}

/// Runs a test; if it fails, with what server and konnector said last.
pub(crate) fn with_world(body: impl AsyncFnOnce(&'static World) -> Result<()>) -> Result<()> {
    run(async {
        let started = WORLD.get_or_init(async || World::start().await.map_err(|error| format!("{error:#}")));
        let world = started.await.as_ref().map_err(anyhow::Error::msg)?;
        body(world).await.map_err(|error| {
            let logs = world.provider.servers.iter().chain(&world.consumer.konnectors);
            let tails: Vec<_> = logs
                .map(|process| format!("{}:\n{}", process.name(), process.tail()))
                .collect();
            anyhow!("{error:#}\n\n{}", tails.join("\n"))
        })
    })
}

// === impl World ===

impl World {
    async fn start() -> Result<Self> {
        let audit = Workdir::new("requests-audit")?;
        let audited = format!("--audit-log-path={}", audit.path().join("audit.log").display());
        let flags = [&lease::PATIENT[..], &[audited.as_str()]].concat();
        let (provider, consumer) = tokio::try_join!(
            Provider::start_with("requests-p", &flags),
            Consumer::start_with("requests-c", &lease::PATIENT)
        )?;
        provider.plane.know_people(&teams::PEOPLE, &provider.address()).await?;
        in_force(&provider).await?;
        Ok(Self {
            provider,
            consumer,
            audit,
            installing: Mutex::default(),
        })
    }

    /// `kubectl bind deploy ARGS` on the consumer, whose konnector the suite runs.
    pub(crate) async fn deploy(&self, args: &[&str], input: String) -> Result<String> {
        let _installing = self.installing.lock().await;
        let mut command = self.consumer.bind_command()?;
        command.arg("deploy").args(args);
        let output = process::run_with_input(command, input.into_bytes(), SOON).await?;
        process::stdout(&output).with_context(|| format!("kubectl bind deploy {}", args.join(" ")))
    }

    /// The lines of the server's audit log so far.
    pub(crate) fn audit_log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.audit.path().join("audit.log"))?)
    }

    /// A client of a person, who has a certificate and is in one group.
    pub(crate) async fn person(&self, name: &str, group: &str) -> Result<Client> {
        let plane = &self.provider.plane;
        let kubeconfig = Kubeconfig {
            user: User::Certificate(plane.authority().client(name, group)?),
            ..plane.kubeconfig().clone()
        };
        kubeconfig.client().await
    }
}

/// Waits until the policy is in force, which takes a while after it was applied.
pub(crate) async fn in_force(provider: &Provider) -> Result<()> {
    let mut probe = BindableResourcesRequest::new(names::POLICY_PROBE, BindableResourcesRequestSpec::default());
    probe.metadata = ObjectMeta {
        namespace: Some("default".to_owned()),
        ..probe.metadata
    };
    let api: Api<BindableResourcesRequest> = Api::namespaced(provider.plane.client(), "default");
    eventually_ok("the policy to be in force", SOON, async || {
        refused(api.create(&dry_run(), &probe).await, &[names::POLICY_PROBE]).map(drop)
    })
    .await
}

pub(crate) fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

/// That the policy, and nothing else, refused; its words.
pub(crate) fn refused<T>(outcome: kube::Result<T>, says: &[&str]) -> Result<String> {
    let Err(kube::Error::Api(status)) = outcome else {
        bail!("not refused by an answer: {:?}", outcome.err());
    };
    let by = format!("ValidatingAdmissionPolicy '{POLICY}'");
    for words in [&[by.as_str()], says].concat() {
        ensure!(status.message.contains(words), "no {words:?} in {:?}", status.message);
    }
    Ok(status.message.clone())
}

/// Username of the server.
pub(crate) fn server() -> String {
    format!("system:serviceaccount:{NAMESPACE}:bindery-server")
}
