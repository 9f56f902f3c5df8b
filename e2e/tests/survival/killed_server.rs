//! The server is killed between any two writes of a bind, of making a namespace, and of an unbind.

use std::{collections::BTreeSet, pin::pin};

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::{APIServiceExport, APIServiceNamespace, APIServiceNamespaceSpec};
use bindery_e2e::{Gate, Provider, lease::PATIENT, run, wildwest::SOON};
use bindery_sdk::Client;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, PostParams},
};

use super::{
    bound::{Bound, free_lease},
    calls,
    picture::{self, Picture},
};

/// More than any step makes.
const WRITES_MAX: usize = 40;

/// What each write of a bind is about; each must have been the last one before a kill.
const COVERED: [&str; 10] = [
    "/bindableresourcesrequests",
    "/api/v1/namespaces",
    "/serviceaccounts",
    "/rolebindings",
    "/clusterbindings",
    "/apiserviceexportrequests",
    "/boundschemas",
    "/apiserviceexports",
    "/status",
    "/token",
];

/// What an unbind leaves none of.
const GOES: [&str; 5] = [
    "APIServiceExport",
    "APIServiceExportRequest",
    "APIServiceNamespace",
    "BindableResourcesRequest",
    "BoundSchema",
];

/// A server behind a gate, and a caller.
struct Stage {
    gate: Gate,
    caller: Caller,
    /// The writes after which the server was killed.
    killed_after: Vec<String>,
}

/// Does steps of a consumer's life, each of which may be repeated.
#[derive(Clone)]
struct Caller {
    client: Client,
    admin: kube::Client,
    undisturbed: [Picture; 3],
}

/// The steps, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Bind `cowboys` over gRPC.
    Bind,
    /// Ask for a place for the objects of a namespace, as a konnector does.
    Place,
    /// Delete the export over gRPC.
    Unbind,
}

impl Step {
    const ALL: [Self; 3] = [Self::Bind, Self::Place, Self::Unbind];

    fn is_done(self, picture: &Picture) -> bool {
        let count = |kind| picture::count(picture, kind);
        match self {
            Self::Bind => picture::has_one_of_each(picture).is_ok(),
            // The contract's own, and the one that was asked for.
            Self::Place => count("Namespace") == 2 && count("Role") == 1,
            Self::Unbind => count("Namespace") == 1 && GOES.into_iter().all(|kind| count(kind) == 0),
        }
    }
}

#[test]
fn server_killed_between_any_two_writes() -> Result<()> {
    run(async {
        let mut provider = Provider::start_with("killed", &PATIENT).await?;
        let token = provider.principal("team", &["cowboys"]).await?;
        let client = calls::client(&provider, &provider.address(), &token)?;
        let mut stage = Stage::set(&mut provider, client).await?;
        stage.picture_undisturbed().await?;
        let mut steps: BTreeSet<Step> = Step::ALL.into();
        for writes in 1..=WRITES_MAX {
            let identity = format!("consumer-{writes}");
            // Each step needs those before it, but none needs those after it.
            let last = steps.last().copied();
            for step in Step::ALL.into_iter().filter(|step| Some(*step) <= last) {
                if !steps.contains(&step) {
                    stage.caller.finish(step, &identity).await?;
                    continue;
                }
                let killed = Box::pin(stage.killed(&mut provider, writes, step, &identity)).await;
                if !killed.with_context(|| format!("{step:?} with a kill after write {writes}"))? {
                    steps.remove(&step);
                }
            }
            if steps.is_empty() {
                return stage.covers_a_bind();
            }
        }
        anyhow::bail!("more than {WRITES_MAX} writes for {steps:?}: {:?}", stage.gate.writes())
    })
}

#[test]
fn a_bind_command_survives_the_server() -> Result<()> {
    run(async {
        let mut bound = Bound::prepare("command", &PATIENT).await?;
        let client = calls::client(&bound.provider, &bound.provider.address(), &bound.token)?;
        let mut stage = Stage::set(&mut bound.provider, client).await?;
        let mut kills = 0;
        for (round, writes) in [9, 5, 2].into_iter().enumerate() {
            stage.gate.shut_after(writes);
            let command = bound.consumer.bind_command_for(&bound.provider, &bound.token)?;
            let mut first = pin!(bind(command));
            let done = tokio::select! {
                done = &mut first => done,
                () = stage.gate.silent() => {
                    kills += 1;
                    stage.kill(&mut bound.provider).await?;
                    first.await
                }
            };
            stage.gate.open();
            if done.is_err() {
                bound.bind(&["cowboys"]).await.context("the same command once more")?;
            }
            bound.create([format!("billy-{round}")]).await?;
            bound.converged().await?;
            bound.status_flows("caught").await?;
            bound.bound_once().await?;
            let present = picture::of(&stage.caller.admin, &bound.consumer.identity().await?).await?;
            picture::has_one_of_each(&present)?;
            bound.unbind().await?;
            bound.expected.clear();
        }
        ensure!(kills == 3, "the server was killed {kills} times");
        Ok(())
    })
}

async fn bind(mut command: std::process::Command) -> Result<()> {
    command.arg("cowboys");
    let output = bindery_e2e::process::run(command, 2 * SOON).await?;
    bindery_e2e::process::stdout(&output).map(drop)
}

impl Stage {
    /// Puts a gate before the API server, as the provider's server sees it.
    async fn set(provider: &mut Provider, client: Client) -> Result<Self> {
        let gate = Gate::start(&provider.plane).await?;
        provider.servers[0].terminate(SOON).await?;
        provider.reach_through(gate.url())?;
        provider.restart_server().await?;
        let caller = Caller {
            client,
            admin: provider.plane.client(),
            undisturbed: Default::default(),
        };
        Ok(Self {
            gate,
            caller,
            killed_after: Vec::new(),
        })
    }

    /// What each step comes to when nobody is killed.
    async fn picture_undisturbed(&mut self) -> Result<()> {
        for step in Step::ALL {
            self.caller.act(step, "undisturbed").await?;
            let is_so = |picture: &Picture| step.is_done(picture);
            let picture = picture::settled_with(&self.caller.admin, "undisturbed", is_so).await?;
            self.caller.undisturbed[step as usize] = picture;
        }
        Ok(())
    }

    /// Does a step while the server is killed right after its n-th write; false if it makes fewer.
    async fn killed(&mut self, provider: &mut Provider, writes: usize, step: Step, identity: &str) -> Result<bool> {
        self.gate.shut_after(writes);
        let caller = self.caller.clone();
        let mut first = pin!(caller.finish(step, identity));
        let done = tokio::select! {
            biased;
            () = self.gate.silent() => None,
            done = &mut first => Some(done),
        };
        if let Some(done) = done {
            self.gate.open();
            return done.map(|()| false);
        }
        let (restarted, done) = tokio::join!(self.kill(provider), first);
        restarted?;
        if done.is_err() {
            self.caller.finish(step, identity).await.context("the same once more")?;
        }
        Ok(true)
    }

    /// Kills the server behind the shut gate and starts it again.
    async fn kill(&mut self, provider: &mut Provider) -> Result<()> {
        provider.servers[0].kill9()?;
        self.killed_after.extend(self.gate.writes().pop());
        self.gate.open();
        free_lease(self.caller.admin.clone(), "bindery-server").await?;
        provider.restart_server().await
    }

    fn covers_a_bind(&self) -> Result<()> {
        for write in COVERED {
            let covered = self.killed_after.iter().any(|killed| killed.contains(write));
            ensure!(
                covered,
                "never killed after a write of {write}: {:#?}",
                self.killed_after
            );
        }
        Ok(())
    }
}

impl Caller {
    /// Does a step and waits until it has come to what it comes to undisturbed.
    async fn finish(&self, step: Step, identity: &str) -> Result<()> {
        self.act(step, identity).await?;
        picture::becomes(&self.admin, identity, &self.undisturbed[step as usize]).await
    }

    async fn act(&self, step: Step, identity: &str) -> Result<()> {
        let contract = Provider::contract(identity);
        let exports: Api<APIServiceExport> = Api::namespaced(self.admin.clone(), &contract);
        match step {
            Step::Bind => calls::bind(&self.client, identity).await.map(drop)?,
            Step::Place => self.place(&contract, &exports.get("cowboys").await?).await?,
            Step::Unbind => {
                if let Some(export) = exports.get_opt("cowboys").await? {
                    // As the konnector does before it asks for the end of the export.
                    let places: Api<APIServiceNamespace> = Api::namespaced(self.admin.clone(), &contract);
                    match places.delete("wild-west", &DeleteParams::default()).await {
                        Err(error) if !is_not_found(&error) => return Err(error.into()),
                        _ => {}
                    }
                    let uid = export.uid().context("no UID")?;
                    calls::unbind(&self.client, &contract, &uid).await?;
                }
            }
        }
        Ok(())
    }

    async fn place(&self, contract: &str, export: &APIServiceExport) -> Result<()> {
        let places: Api<APIServiceNamespace> = Api::namespaced(self.admin.clone(), contract);
        if places.get_opt("wild-west").await?.is_none() {
            let mut place = APIServiceNamespace::new("wild-west", APIServiceNamespaceSpec::default());
            place.metadata.owner_references = Some(export.owner_ref(&()).into_iter().collect());
            places.create(&PostParams::default(), &place).await?;
        }
        Ok(())
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
