//! `check --end-to-end`: offers a probe API on the provider, binds it here, syncs an object both ways, and removes all of it,
//! also after a failure or Ctrl-C. All names are new, so that nothing of the user's is touched.

mod manifests;
mod removal;

use std::{io::Write, time::Duration};

use bindery_api::{Conditions as _, conditions::READY, v1alpha2::APIServiceExportTemplate};
use bindery_runtime::{
    client::{self, Clients},
    shutdown,
};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::contracts::Endpoint;
use crate::{
    args::{AnswerArgs, BindArgs, CheckArgs, NameKind, settings::Settings},
    commands::{Context, apiservice},
    errors::Failure,
    install::manifests::FIELD_MANAGER,
    provider::{Authority, Backend, Login},
    render::{
        output::{Format, Printer},
        steps::Steps,
    },
};
use manifests::Probe;

/// How long each step may take, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);
/// The pause between two looks at what a step waits for.
const PAUSE: Duration = Duration::from_millis(200);
/// Lifetime of the token that binds, in seconds: the shortest that an API server grants.
const TOKEN_SECONDS: i64 = 600;

/// One run, with its clients.
struct Trial {
    probe: Probe,
    consumer: Client,
    provider: Client,
    backend: Endpoint,
    patience: Duration,
}

/// The failure for flags that `--end-to-end` needs too.
pub(super) fn missing(flags: &str) -> Failure {
    Failure::Usage(format!("--end-to-end offers an API on the provider: add {flags}"))
}

/// Binds the probe API, and removes it again.
pub(super) async fn run<W: Write>(
    context: &Context<W>,
    args: &CheckArgs,
    backend: Option<Endpoint>,
) -> Result<(), Failure> {
    let settings = &context.settings;
    let theirs = args.provider.cluster(&settings.cluster);
    let theirs = theirs.ok_or_else(|| missing("--provider-context or --provider-kubeconfig"))?;
    let backend = backend.ok_or_else(|| {
        missing("--server URL, because no binding of this cluster tells which backend is the one of this provider")
    })?;
    let own = client::config(
        settings.cluster.kubeconfig.as_deref(),
        settings.cluster.context.as_deref(),
    )
    .await?;
    let theirs = client::config(theirs.kubeconfig, theirs.context).await?;
    let trial = Trial {
        probe: Probe::new(&format!("{:08x}", rand::random::<u32>())),
        consumer: Clients::new(&own, 2)?.write,
        provider: Clients::new(&theirs, 2)?.write,
        backend,
        patience: settings.patience(PATIENCE),
    };
    let stop = shutdown::on_signal()?;
    let mut steps = Steps::new(settings.quiet);
    let outcome = tokio::select! {
        outcome = trial.work(settings, args, &mut steps) => outcome,
        () = stop.cancelled() => Err(Failure::Interrupted),
    };
    if let Err(failure) = &outcome {
        steps.note(&format!("{failure}; cleaning up"));
    }
    let removed = Box::pin(trial.remove(settings, &args.konnector.konnector_namespace, &mut steps)).await;
    outcome.and(removed)
}

impl Trial {
    async fn work(&self, settings: &Settings, args: &CheckArgs, steps: &mut Steps) -> Result<(), Failure> {
        let probe = &self.probe;
        for manifest in probe.offer() {
            apply(&self.provider, &manifest, "the provider").await?;
        }
        self.offered().await?;
        steps.done(&format!("the provider offers template {}", probe.id));
        self.bind(settings, args).await?;
        steps.done(&format!("APIServiceBinding {} is ready", probe.id));

        apply(&self.consumer, &probe.namespace(), "this cluster").await?;
        apply(&self.consumer, &probe.object(), "this cluster").await?;
        let copy = self
            .until("the copy on the provider", async || self.copy().await)
            .await?;
        steps.done("an object of this cluster is on the provider");
        let namespace = copy.metadata.namespace.as_deref().unwrap_or_default();
        let copies: Api<DynamicObject> = Api::namespaced_with(self.provider.clone(), namespace, &probe.resource());
        let status = Patch::Merge(json!({ "status": { "answer": probe.id } }));
        let written = copies
            .patch_status(manifests::OBJECT, &PatchParams::default(), &status)
            .await;
        written.map_err(Failure::cluster("write the status of the copy on the provider"))?;
        let answered = async || {
            let ours: Api<DynamicObject> = Api::namespaced_with(self.consumer.clone(), &probe.id, &probe.resource());
            let object = ours
                .get(manifests::OBJECT)
                .await
                .map_err(Failure::cluster("read the object of this cluster"))?;
            Ok((object.data["status"]["answer"] == probe.id.as_str()).then_some(()))
        };
        self.until("the provider's status on this cluster", answered).await?;
        steps.done("the provider's status is on the object of this cluster");
        Ok(())
    }

    async fn offered(&self) -> Result<(), Failure> {
        let templates: Api<APIServiceExportTemplate> = Api::all(self.provider.clone());
        self.until("the template to be ready", async || {
            let template = templates.get(&self.probe.id).await;
            let template = template.map_err(Failure::cluster("read the template of the probe API"))?;
            Ok(template.is_condition_true(READY).then_some(()))
        })
        .await
    }

    /// Binds as a ServiceAccount that may bind this template alone, for a cluster identity of its own.
    async fn bind(&self, settings: &Settings, args: &CheckArgs) -> Result<(), Failure> {
        let backend = Backend {
            address: self.backend.parsed()?,
            login: Login::Token(self.token().await?.into()),
            client_certificate: settings
                .typed_backend()
                .and_then(|typed| typed.client_certificate.clone()),
            certificate_authority: self.backend.ca_pem.clone().map(Authority::Pem),
            allow_plaintext: true,
        };
        let mut quiet = Context {
            settings: settings.silent_with(Some(backend)),
            steps: Steps::new(true),
            printer: Printer::new(Format::Name, std::io::sink()),
        };
        let bind = BindArgs {
            template: self.probe.id.clone(),
            kind: Some(NameKind::Template),
            name: None,
            claim_namespaces: Vec::new(),
            cluster_identity: Some(self.probe.id.clone()),
            cluster_name: Some("kubectl bind check".to_owned()),
            konnector: args.konnector.clone(),
            answers: AnswerArgs {
                reject_claims: Vec::new(),
                accept_claims: true,
            },
            dry_run: false,
            show_secrets: false,
            wait: true,
        };
        Box::pin(apiservice::run(&mut quiet, &bind)).await
    }

    async fn token(&self) -> Result<String, Failure> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![self.backend.parsed()?.to_string()],
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.provider.clone(), &self.probe.id);
        let granted = accounts
            .create_token_request(manifests::BINDER, &PostParams::default(), &request)
            .await;
        let granted = granted.map_err(Failure::cluster("request a token for the backend on the provider"))?;
        Ok(granted.status.map(|status| status.token).unwrap_or_default())
    }

    /// The copy of the object on the provider; no other object is of its API.
    async fn copy(&self) -> Result<Option<DynamicObject>, Failure> {
        let copies: Api<DynamicObject> = Api::all_with(self.provider.clone(), &self.probe.resource());
        let listed = copies.list(&ListParams::default().limit(1)).await;
        let listed = listed.map_err(Failure::cluster("list the copies on the provider"))?;
        Ok(listed.items.into_iter().next())
    }

    /// Looks again and again until there is something, or the time for the step is over.
    async fn until<T>(&self, what: &str, look: impl AsyncFn() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
        let start = Instant::now();
        loop {
            let seen = look().await;
            if let Ok(Some(found)) = seen {
                return Ok(found);
            }
            if start.elapsed() > self.patience {
                return Err(match seen {
                    Err(failure) => failure,
                    Ok(_) => Failure::TimedOut {
                        what: format!("{what} is not there"),
                        waited: start.elapsed(),
                        last: format!("kubectl bind status {} says more", self.probe.id),
                    },
                });
            }
            sleep(PAUSE).await;
        }
    }
}

/// Applies a manifest; `on` names the cluster in an error.
async fn apply(client: &Client, manifest: &Value, on: &str) -> Result<(), Failure> {
    let object: DynamicObject =
        serde_json::from_value(manifest.clone()).map_err(|error| Failure::Format(error.to_string()))?;
    let types = object.types.clone().unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    let resource = manifests::resource_of(&types);
    let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(FIELD_MANAGER);
    let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
    applied.map_err(Failure::cluster(format!("apply {} {name} on {on}", types.kind)))?;
    Ok(())
}
