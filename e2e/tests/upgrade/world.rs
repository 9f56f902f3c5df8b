//! A provider and a consumer, first of the former version and then of the present one.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use bindery_api::{
    Conditions as _,
    v1alpha2::{APIServiceBinding, APIServiceExportTemplate, BindableResourcesRequest},
};
use bindery_e2e::{
    Consumer, ControlPlane, Process, Provider,
    bundle::Bundle,
    eventually_ok, former, lease,
    process::{self, Programs},
    wildwest::{self, SOON},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::cells::CELLS;

/// The consumer's namespace of all namespaced objects.
pub(crate) const NAMESPACE: &str = "west";
const COMMAND_LIMIT: Duration = Duration::from_mins(2);
/// How both versions of `kubectl bind` install the konnector.
const DEPLOY: [&str; 5] = [
    "deploy",
    "--konnector-image",
    "registry.example.com/bindery-konnector:1",
    "--bundle-resource",
    "cowboys.wildwest.dev",
];

pub(crate) struct World {
    pub(crate) provider: Provider,
    pub(crate) consumer: Consumer,
    pub(crate) bundle: Bundle,
    token: PathBuf,
}

// === impl World ===

impl World {
    /// Both clusters with the former version installed by its own command, and everything offered.
    pub(crate) async fn start() -> Result<Self> {
        let former = tokio::task::spawn_blocking(former::locate).await??;
        let provider = async {
            let plane = ControlPlane::start("upgrade-p").await?;
            Provider::start_from(former.clone(), plane, &lease::PATIENT).await
        };
        let consumer = async {
            let plane = ControlPlane::start("upgrade-c").await?;
            deploy(&former, &plane).await?;
            Consumer::start_installed(former.clone(), plane, &lease::PATIENT).await
        };
        let (provider, consumer) = tokio::try_join!(Box::pin(provider), Box::pin(consumer))?;
        let example = |name: &str| former.manifest(&format!("examples/bundle/provider/{name}.yaml"));
        provider.plane.apply(&example("requester")?).await?;
        // The author's right to bind is known to the API server a moment after it is given.
        let request = example("request")?;
        eventually_ok("the request to be accepted", SOON, async || {
            provider.plane.apply(&request).await
        })
        .await?;
        for cell in &CELLS {
            provider.plane.apply(&cell.offer().to_string()).await?;
        }
        let templates: Api<APIServiceExportTemplate> = Api::all(provider.plane.client());
        eventually_ok("the templates to be ready", SOON, async || {
            for template in templates.list(&ListParams::default()).await?.items {
                ensure!(template.is_condition_true("Ready"), "{:?}", template.conditions());
            }
            Ok(())
        })
        .await?;
        let token = provider
            .principal("team", &CELLS.each_ref().map(|cell| cell.name))
            .await?;
        wildwest::namespace(consumer.plane.client(), NAMESPACE).await?;
        Ok(Self {
            bundle: Bundle::new(consumer.plane.client(), "west"),
            provider,
            consumer,
            token,
        })
    }

    /// Ends all programs.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.consumer.stop_konnectors().await?;
        for server in &mut self.provider.servers {
            server.terminate(SOON).await?;
            server.hush();
        }
        Ok(())
    }

    /// Installs and starts other programs on both sides.
    pub(crate) async fn upgrade(&mut self, programs: Programs) -> Result<()> {
        self.provider.upgrade(programs.clone()).await?;
        deploy(&programs, &self.consumer.plane).await?;
        self.consumer.set_programs(programs);
        self.consumer.start_konnector().await
    }

    /// `kubectl bind` as the consumer's admin, without a provider.
    pub(crate) async fn kubectl_bind(&self, args: &[&str]) -> Result<String> {
        let mut command = self.consumer.bind_command()?;
        command.args(args);
        output(command).await
    }

    /// `kubectl bind COMMAND ARGS` with the token of whoever owns the contract.
    pub(crate) async fn bind(&self, command: &str, args: &[&str]) -> Result<String> {
        self.consumer
            .bind(&self.provider, &self.token, &[&[command], args].concat())
            .await
    }

    /// Waits until a binding is ready.
    pub(crate) async fn ready(&self, name: &str) -> Result<()> {
        ready(&self.consumer, name).await
    }

    /// Carries the response of the example's request to the consumer and binds it by a bundle.
    pub(crate) async fn bundle(&self) -> Result<()> {
        let requests: Api<BindableResourcesRequest> = Api::namespaced(self.provider.plane.client(), "orders");
        let secrets: Api<Secret> = Api::namespaced(self.provider.plane.client(), "orders");
        let response = eventually_ok("the response of the request", SOON, async || {
            let request = requests.get("cowboys").await?;
            let status = format!("{:?}", request.status);
            secrets.get_opt("west").await?.context(status)
        })
        .await?;
        let kubeconfig = response.data.and_then(|mut data| data.remove("kubeconfig"));
        let kubeconfig = String::from_utf8(kubeconfig.context("no kubeconfig")?.0)?;
        self.bundle.give(&kubeconfig).await?;
        // The former CRD has no such field.
        self.bundle.apply(json!({"deletionPolicy": null})).await?;
        self.bundle.binds(&["cowboys"]).await
    }

    /// Creates a Cowboy, which the bundle's binding brings to the provider.
    pub(crate) async fn bundled(&self, name: &str) -> Result<()> {
        let contract = Provider::contract("west");
        let place = bindery_api::names::provider_namespace(&contract, NAMESPACE);
        let client = self.provider.plane.client();
        let cowboys = wildwest::Cowboys {
            ours: Api::namespaced_with(self.consumer.plane.client(), NAMESPACE, &wildwest::resource()),
            copies: Api::namespaced_with(client, &place, &wildwest::resource()),
        };
        cowboys.create(name, "ride").await?;
        cowboys.copied(name, "ride").await?;
        cowboys.report(name, "done").await?;
        cowboys.reported(name, "done").await.map(drop)
    }

    /// An error with what the programs said last.
    pub(crate) fn tails(&self, error: &anyhow::Error) -> anyhow::Error {
        tails(error, self.provider.servers.iter().chain(&self.consumer.konnectors))
    }
}

/// Waits until a binding of a consumer is ready.
pub(crate) async fn ready(consumer: &Consumer, name: &str) -> Result<()> {
    let bindings: Api<APIServiceBinding> = Api::all(consumer.plane.client());
    eventually_ok(format!("binding {name} to be ready"), SOON, async || {
        let binding = bindings.get(name).await?;
        ensure!(binding.is_condition_true("Ready"), "{:?}", binding.conditions());
        Ok(())
    })
    .await
}

/// An error with what programs said last.
pub(crate) fn tails<'a>(error: &anyhow::Error, programs: impl Iterator<Item = &'a Process>) -> anyhow::Error {
    let tails: Vec<_> = programs
        .map(|process| format!("{}:\n{}", process.name(), process.tail()))
        .collect();
    anyhow!("{error:#}\n{}", tails.join("\n"))
}

/// Installs the konnector by the command of a version.
async fn deploy(programs: &Programs, plane: &ControlPlane) -> Result<()> {
    let mut command = programs.command("kubectl-bind")?;
    command.env("KUBECONFIG", plane.kubeconfig_path()).args(DEPLOY);
    output(command).await.map(drop)
}

/// Standard output of a command that must succeed.
pub(crate) async fn output(command: Command) -> Result<String> {
    let said = format!("{command:?}");
    process::stdout(&process::run(command, COMMAND_LIMIT).await?).context(said)
}
