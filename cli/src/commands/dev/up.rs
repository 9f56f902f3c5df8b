//! `dev up`: installs server, konnector and the example, and waits until an object is in sync.

use std::{io::Write, time::Duration};

use bindery_api::{
    Conditions as _,
    conditions::READY,
    names::{KONNECTOR, SERVER},
    v1alpha2::APIServiceExportTemplate,
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node, discovery::v1::EndpointSlice};
use kube::{Api, api::ListParams};
use tokio::time::Instant;

use super::{
    super::Context,
    cluster::{Cluster, Clusters},
};
use crate::{
    args::dev::DevUpArgs,
    dev::{
        CONSUMER_SET, EXAMPLE, EXAMPLE_DEFINITION, PROVIDER_SET,
        addresses::{self, ServerAddress},
        images::AskedImage,
        manifests::{self, DevServer, GRPC_FLAG, KUBERNETES_FLAG},
    },
    errors::Failure,
    konnector,
    render::{applied::Report, steps::Steps},
    server,
};

/// How long the command may take, unless `--timeout` says otherwise: images may have to be pulled.
const PATIENCE: Duration = Duration::from_mins(5);

/// Time that is left of a command.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(patience: Duration) -> Self {
        Self(Instant::now() + patience)
    }

    pub(super) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// `kubectl bind dev up`
pub(super) async fn run<W: Write>(context: &mut Context<W>, args: &DevUpArgs) -> Result<(), Failure> {
    let deadline = Deadline::after(context.settings.patience(PATIENCE));
    let clusters = Clusters::connect(&context.settings, &args.clusters).await?;
    let Clusters { provider, consumer, .. } = &clusters;
    let steps = &mut context.steps;
    // Everything that can be in the way is found before anything is written.
    let server = choose_server(provider, args).await?;
    let konnector = choose_konnector(consumer, args).await?;
    let (theirs, ours) = (manifests::provider(&server)?, manifests::consumer(&konnector)?);
    provider.refuse_foreign(&theirs).await?;
    provider.refuse_foreign_definition(EXAMPLE_DEFINITION).await?;
    consumer
        .refuse_foreign(&[ours.clone(), manifests::objects()?].concat())
        .await?;
    consumer.on(konnector::refuse_other(&consumer.api.konnector_grants().await?))?;
    steps.note(&format!(
        "the konnector will reach the server at {} and the provider's Kubernetes API at {}",
        server.address.url, server.kubernetes
    ));

    let mut report = Report::new(&mut context.printer);
    for applied in provider.define(manifests::provider_definitions()?).await? {
        report.tell(applied.on(provider.role))?;
    }
    for applied in consumer.define(manifests::consumer_definitions()).await? {
        report.tell(applied.on(consumer.role))?;
    }
    steps.done("all definitions are served");
    for applied in provider.apply_set(PROVIDER_SET, theirs, steps).await? {
        report.tell(applied.on(provider.role))?;
    }
    for applied in consumer.apply_set(CONSUMER_SET, ours, steps).await? {
        report.tell(applied.on(consumer.role))?;
    }
    steps.done("server and konnector are applied");
    provider.available(SERVER, deadline.left(), steps).await?;
    steps.done("the server runs");
    offered(provider, deadline).await?;
    consumer.available(KONNECTOR, deadline.left(), steps).await?;
    steps.done("the konnector runs");
    clusters.bind(deadline, &mut report, steps).await?;
    steps.done(&format!("APIServiceBinding {EXAMPLE} is ready"));
    clusters.sync(deadline, &mut report).await?;
    steps.done("Cowboy wild-west/billy-the-kid is in sync");
    report.end()?;
    say_what_next(&clusters, steps);
    Ok(())
}

/// Chooses how the server runs.
async fn choose_server(provider: &Cluster, args: &DevUpArgs) -> Result<DevServer, Failure> {
    let installed = provider.deployment(SERVER).await?;
    let installed = installed.as_ref();
    let image = AskedImage {
        image: args.server_image.as_deref(),
        registry: args.image_registry.as_deref(),
        version: args.image_version.as_deref(),
    };
    let flag = |name: &str| installed.and_then(|deployment| konnector::flag(deployment, name));
    let (server_url, kubernetes_url) = (flag(GRPC_FLAG), flag(KUBERNETES_FLAG));
    Ok(DevServer {
        image: image.choose(&server::release()?, installed.and_then(konnector::image).as_deref()),
        address: choose_address(provider, args.external_address.as_deref().or(server_url.as_deref())).await?,
        kubernetes: choose_kubernetes(
            provider,
            args.kubernetes_address.as_deref().or(kubernetes_url.as_deref()),
        )
        .await?,
    })
}

async fn choose_address(provider: &Cluster, known: Option<&str>) -> Result<ServerAddress, Failure> {
    let nodes = if known.is_none() {
        let listed = Api::<Node>::all(provider.api.client())
            .list(&ListParams::default())
            .await;
        provider.on(listed.map_err(Failure::cluster("list Nodes")))?.items
    } else {
        Vec::new()
    };
    Ok(addresses::server(known, &nodes)?)
}

async fn choose_kubernetes(provider: &Cluster, known: Option<&str>) -> Result<String, Failure> {
    let published = if known.is_none() {
        let slices = Api::<EndpointSlice>::namespaced(provider.api.client(), "default");
        provider.on(provider.api.find(slices, "kubernetes").await)?
    } else {
        None
    };
    let own = (provider.context(), &provider.url);
    Ok(addresses::kubernetes(known, own, published.as_ref())?)
}

/// Chooses the image of the konnector.
async fn choose_konnector(consumer: &Cluster, args: &DevUpArgs) -> Result<String, Failure> {
    let installed: Option<Deployment> = consumer.deployment(KONNECTOR).await?;
    let image = AskedImage {
        image: args.konnector_image.as_deref(),
        registry: args.image_registry.as_deref(),
        version: args.image_version.as_deref(),
    };
    Ok(image.choose(
        &konnector::release()?,
        installed.as_ref().and_then(konnector::image).as_deref(),
    ))
}

/// Waits until the server says that the template can be bound.
async fn offered(provider: &Cluster, deadline: Deadline) -> Result<(), Failure> {
    let templates = Api::<APIServiceExportTemplate>::all(provider.api.client());
    let mend = format!(
        "see its conditions: kubectl --context {} get apiserviceexporttemplate {EXAMPLE} -o yaml",
        provider.context()
    );
    let what = format!("condition Ready of APIServiceExportTemplate {EXAMPLE}");
    provider
        .until((&what, &mend), deadline.left(), async || {
            let template = provider.api.find(templates.clone(), EXAMPLE).await?;
            Ok(template.filter(|template| template.is_condition_true(READY)).map(drop))
        })
        .await
}

fn say_what_next(clusters: &Clusters, steps: &Steps) {
    let (provider, consumer) = (
        clusters.provider.args.cluster().flags(),
        clusters.consumer.args.cluster().flags(),
    );
    for next in [
        format!("kubectl{consumer} get cowboys -n wild-west"),
        format!("kubectl{provider} get cowboys --all-namespaces"),
        format!("kubectl bind why cowboy/billy-the-kid -n wild-west{consumer}"),
        format!("kubectl bind status{consumer}"),
        clusters.down(),
    ] {
        steps.note(&format!("next: {next}"));
    }
}
