//! The server is killed between any two writes of a bind, of making a namespace, and of an unbind.

use std::pin::pin;

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::{APIServiceExport, APIServiceNamespace, APIServiceNamespaceSpec};
use bindery_e2e::{
    Gate, Provider,
    bound::{Bound, free_lease},
    lease::PATIENT,
    run,
    wildwest::SOON,
};
use bindery_sdk::Client;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, PostParams},
};

use super::{
    calls,
    picture::{self, Picture},
};

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
    /// What each step writes when nobody is killed, in order.
    writes: [Vec<Write>; 3],
}

/// A write, without what differs from consumer to consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Write {
    plain: String,
    /// Which of several that look the same, from 1.
    nth: usize,
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
        stage.watch_undisturbed().await?;
        let rounds = stage.writes.iter().map(Vec::len).max().unwrap_or_default();
        let mut kills = [0; 3];
        for round in 0..rounds {
            let identity = format!("consumer-{round}");
            // Each step needs those before it, but none needs those after it.
            let last = Step::ALL
                .into_iter()
                .rfind(|step| round < stage.writes[*step as usize].len());
            for step in Step::ALL.into_iter().filter(|step| Some(*step) <= last) {
                let Some(write) = stage.writes[step as usize].get(round).cloned() else {
                    stage.caller.finish(step, &identity).await?;
                    continue;
                };
                let killed = Box::pin(stage.killed(&mut provider, &write, step, &identity)).await;
                let killed = killed.with_context(|| format!("{step:?} with a kill after {write:?}"))?;
                // A status may be written in fewer steps, and what goes with its namespace need not be deleted.
                ensure!(killed || step != Step::Bind || write.nth > 1, "{write:?} was not made");
                kills[step as usize] += usize::from(killed);
            }
        }
        for step in Step::ALL {
            let (writes, kills) = (&stage.writes[step as usize], kills[step as usize]);
            ensure!(
                kills >= 2 && 2 * kills >= writes.len(),
                "{kills} kills during {step:?}: {writes:#?}"
            );
        }
        Ok(())
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
            stage.gate.shut_after(writes, |_| true);
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
            writes: Default::default(),
        })
    }

    /// What each step writes and comes to when nobody is killed.
    async fn watch_undisturbed(&mut self) -> Result<()> {
        let identity = "undisturbed";
        for step in Step::ALL {
            self.gate.note();
            self.caller.act(step, identity).await?;
            let is_so = |picture: &Picture| step.is_done(picture);
            let picture = picture::settled_with(&self.caller.admin, identity, is_so).await?;
            self.caller.undisturbed[step as usize] = picture;
            let mut writes: Vec<Write> = Vec::new();
            for write in self.gate.writes() {
                let plain = plain(&write, &Provider::contract(identity));
                let nth = 1 + writes.iter().filter(|write| write.plain == plain).count();
                writes.push(Write { plain, nth });
            }
            self.writes[step as usize] = writes;
        }
        Ok(())
    }

    /// Does a step while the server is killed right after a write; false if it does not make that.
    async fn killed(&mut self, provider: &mut Provider, write: &Write, step: Step, identity: &str) -> Result<bool> {
        let (wanted, contract) = (write.plain.clone(), Provider::contract(identity));
        self.gate
            .shut_after(write.nth, move |write| plain(write, &contract) == wanted);
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
        self.gate.open();
        free_lease(self.caller.admin.clone(), "bindery-server").await?;
        provider.restart_server().await
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

/// A write as every consumer's would be.
fn plain(write: &str, contract: &str) -> String {
    let is_request = |part: &&str| part.strip_prefix("bind-").is_some_and(|hash| hash.len() == 40);
    let write = write.replace(contract, "<contract>");
    match write.split('/').find(is_request) {
        Some(request) => write.replace(request, "<request>"),
        None => write,
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
