//! `cargo xtask demo`: binds an API with `kubectl bind`, syncs objects, and unbinds.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Consumer, Prometheus, Provider, Workdir,
    charts::Helm,
    remains,
    wildwest::{self, Cowboys},
};
use kube::{ResourceExt as _, api::DeleteParams};

use super::{COWBOY, NAMESPACE, Steps, observed::Metrics, show};

/// What the demo works with.
struct Demo<'a> {
    provider: &'a Provider,
    consumer: &'a Consumer,
    token: PathBuf,
    steps: Steps,
}

pub(super) async fn run(keep: bool, observe: bool) -> Result<()> {
    let mut steps = Steps::default();
    let start = Instant::now();
    let (provider, consumer) = tokio::try_join!(Provider::start_empty("provider"), Consumer::start_empty("consumer"))?;
    steps.record("two clusters run", start)?;
    let metrics = observe.then(Metrics::new).transpose()?;
    let mut kubelets = (provider.kubelet()?, consumer.kubelet(&provider));
    if let Some(metrics) = &metrics {
        kubelets = metrics.expose(kubelets)?;
    }
    let demo = play(&provider, &consumer, steps, keep, metrics.as_ref());
    kubelets.0.during(kubelets.1.during(demo)).await
}

async fn play(
    provider: &Provider,
    consumer: &Consumer,
    mut steps: Steps,
    keep: bool,
    metrics: Option<&Metrics>,
) -> Result<()> {
    let helm = Helm::get().await?;
    let start = Instant::now();
    tokio::try_join!(provider.install_release(&helm), consumer.install_release(&helm))?;
    steps.record("server and konnector installed by Helm", start)?;
    let folder = Workdir::new("prometheus")?;
    let mut prometheus = None;
    if let Some(metrics) = metrics {
        let start = Instant::now();
        let scraping = Box::pin(metrics.scrape(&folder, &provider.plane, &consumer.plane)).await?;
        steps.record("Prometheus scrapes both", start)?;
        prometheus = Some(scraping);
    }
    let token = provider.principal("wild-west-team", &["cowboys"]).await?;
    let mut demo = Demo {
        provider,
        consumer,
        token,
        steps,
    };
    demo.bind().await?;
    demo.sync().await?;
    if keep {
        demo.steps.table()?;
        return demo.keep(prometheus.as_ref()).await;
    }
    demo.unbind().await?;
    demo.steps.table()
}

impl Demo<'_> {
    async fn bind(&mut self) -> Result<()> {
        let start = Instant::now();
        let templates = self.consumer.bind(self.provider, &self.token, &["templates"]).await?;
        ensure!(templates.contains("cowboys"), "cowboys is not offered:\n{templates}");
        self.steps.record("templates listed", start)?;
        show(&templates)?;
        let start = Instant::now();
        self.consumer.bind(self.provider, &self.token, &["cowboys"]).await?;
        self.steps.record("cowboys bound", start)
    }

    async fn sync(&mut self) -> Result<()> {
        wildwest::namespace(self.consumer.plane.client(), NAMESPACE).await?;
        let cowboys = Cowboys::of(self.provider, self.consumer, NAMESPACE).await?;
        let start = Instant::now();
        cowboys.create(COWBOY, "rob a train").await?;
        // An API server holds the first create of a new CRD back for two seconds.
        self.steps
            .record("first Cowboy taken by the consumer's API server", start)?;
        let start = Instant::now();
        let copy = cowboys.copied(COWBOY, "rob a train").await?;
        self.steps.record("Cowboy on the provider, its namespace made", start)?;
        show(&format!(
            "  {}/{COWBOY} {}\n",
            copy.namespace().unwrap_or_default(),
            copy.data["spec"]
        ))?;

        let start = Instant::now();
        // The stand-in for the provider's operator.
        cowboys.report(COWBOY, "the train is late").await?;
        let seen = cowboys.reported(COWBOY, "the train is late").await?;
        self.steps.record("status on the consumer", start)?;
        show(&format!("  {NAMESPACE}/{COWBOY} {}\n", seen.data["status"]))?;

        let start = Instant::now();
        cowboys.intend(COWBOY, "go straight").await?;
        cowboys.copied(COWBOY, "go straight").await?;
        self.steps.record("edit on the provider", start)?;

        let start = Instant::now();
        cowboys.ours.delete(COWBOY, &DeleteParams::default()).await?;
        cowboys.gone(COWBOY).await?;
        self.steps.record("deleted on both sides", start)?;
        // One more, for whoever looks around, and for unbinding to drain.
        cowboys.create(COWBOY, "rob a bank").await?;
        cowboys.copied(COWBOY, "rob a bank").await.map(drop)
    }

    async fn unbind(&mut self) -> Result<()> {
        let start = Instant::now();
        self.consumer
            .bind(self.provider, &self.token, &["unbind", "cowboys", "--delete-objects"])
            .await?;
        self.steps.record("unbound", start)?;
        self.nothing_is_left().await
    }

    async fn nothing_is_left(&mut self) -> Result<()> {
        let start = Instant::now();
        remains::none(self.provider, self.consumer, "cowboys", "wildwest.dev").await?;
        self.steps.record("nothing left but the empty contract", start)
    }

    async fn keep(&self, prometheus: Option<&Prometheus>) -> Result<()> {
        let path = |path: &Path| path.display().to_string();
        let kubectl = path(self.consumer.plane.kubectl_path());
        let (consumer, provider) = (
            path(self.consumer.plane.kubeconfig_path()),
            path(self.provider.plane.kubeconfig_path()),
        );
        let bind = self.consumer.bind_command_for(self.provider, &self.token)?;
        let bind: Vec<_> = [bind.get_program()]
            .into_iter()
            .chain(bind.get_args())
            .map(|it| it.to_string_lossy())
            .collect();
        show(&format!(
            "\nEverything runs on until Ctrl-C. Try:\n\n  \
             alias consumer='{kubectl} --kubeconfig {consumer}'\n  \
             alias provider='{kubectl} --kubeconfig {provider}'\n  \
             alias bind='KUBECONFIG={consumer} {}'\n\n  \
             consumer get cowboys -A\n  provider get cowboys -A\n  consumer edit cowboy -n {NAMESPACE} {COWBOY}\n  \
             bind status\n  bind unbind cowboys\n",
            bind.join(" "),
        ))?;
        if let Some(prometheus) = prometheus {
            let url = prometheus.url();
            show(&format!("\nPrometheus: {url}/graph and {url}/alerts\n"))?;
        }
        tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
    }
}
