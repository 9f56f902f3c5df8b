//! Two providers and one consumer for all cases. Each case has APIs, contracts and bundles of its own, and whoever takes a
//! provider down has that of its own too.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use bindery_e2e::{
    Consumer, ControlPlane, Provider,
    bundle::{Bundle, rights},
    lease,
    offer::Offer,
    run,
};
use futures::future::{LocalBoxFuture, join_all, try_join_all};
use kube::{Api, api::DynamicObject};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{contract::Contract, pair::Pair};

/// How long something that must not happen is waited for.
pub(crate) const A_WHILE: Duration = Duration::from_secs(2);

/// How soon a konnector of the suite asks again where nothing says otherwise. No heartbeat falls between a backup of a provider and
/// its restore, after which the konnector would wait for the user.
const POLLING: [&str; 2] = ["--provider-polling-interval=2s", "--heartbeat-interval=2h"];
/// How many objects a konnector of the suite holds of a provider, which is more than any case makes.
pub(crate) const OBJECTS_MAX: &str = "20000";

/// Why it could not be started is told by every case: it is not tried again.
static WORLD: OnceCell<Result<World, String>> = OnceCell::const_new();

/// What the cases share. It lives as long as the process, whose end ends it.
pub(crate) struct World {
    pub(crate) p: Provider,
    pub(crate) q: Provider,
    pub(crate) consumer: Consumer,
}

/// A case: the beginning of the names of all that is made for it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) world: &'static World,
}

/// Runs a case; if it fails, with what servers and konnectors said last.
pub(crate) async fn case(name: &'static str, body: impl AsyncFnOnce(&Case) -> Result<()>) -> Result<()> {
    let started = WORLD.get_or_init(async || Box::pin(World::start()).await.map_err(|error| format!("{error:#}")));
    let world = started.await.as_ref().map_err(anyhow::Error::msg)?;
    let outcome = Box::pin(body(&Case { name, world })).await;
    outcome.map_err(|error| world.tails(name, &error))
}

/// Runs cases beside one another: they wait more than they work.
pub(crate) fn together(cases: Vec<LocalBoxFuture<'static, Result<()>>>) -> Result<()> {
    let outcomes = run(join_all(cases));
    let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    let failures: Vec<_> = failures.iter().map(|failure| format!("{failure:#}")).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

async fn provider(name: &str) -> Result<Provider> {
    let plane = ControlPlane::start_audited(name).await?;
    Provider::start_on(plane, &lease::PATIENT).await
}

async fn consumer(name: &str) -> Result<Consumer> {
    let plane = ControlPlane::start_audited(name).await?;
    let limit = ["--provider-max-objects", OBJECTS_MAX];
    Consumer::start_on(plane, &[&lease::PATIENT[..], &POLLING, &limit].concat()).await
}

// === impl World ===

impl World {
    async fn start() -> Result<Self> {
        let (p, q, consumer) = tokio::try_join!(provider("bundles-p"), provider("bundles-q"), consumer("bundles-c"))?;
        Ok(Self { p, q, consumer })
    }

    /// A bundle of the consumer.
    pub(crate) fn bundle(&self, name: &str) -> Bundle {
        Bundle::new(self.consumer.plane.client(), name)
    }

    /// Gives the konnector its rights on APIs, as an operator lists them at install.
    pub(crate) async fn grant(&self, name: &str, offers: &[Offer]) -> Result<()> {
        let groups: Vec<_> = offers.iter().map(|offer| offer.group()).collect();
        let resources: Vec<_> = groups.iter().map(|group| (group.as_str(), "widgets")).collect();
        let role = rights(&format!("bundles-of-{name}-are-served"), &resources);
        self.consumer.plane.apply(&role.to_string()).await
    }

    /// Makes a namespace on the consumer.
    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.consumer.plane.apply(&namespace.to_string()).await
    }

    /// The consumer's objects of an API in a namespace.
    pub(crate) fn ours(&self, offer: Offer, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.consumer.plane.client(), namespace, &offer.resource())
    }

    fn tails(&self, name: &str, error: &anyhow::Error) -> anyhow::Error {
        let servers = self.p.servers.iter().chain(&self.q.servers);
        let all = servers.chain(&self.consumer.konnectors);
        let tails: Vec<_> = all
            .map(|process| format!("{}:\n{}", process.name(), process.tail()))
            .collect();
        anyhow!("case {name}: {error:#}\n\n{}", tails.join("\n"))
    }
}

// === impl Case ===

impl Case {
    /// Offers these APIs on a provider, gives the konnector its rights on them, and makes a contract that may bind them.
    pub(crate) async fn contract(&self, provider: &Provider, offers: &[Offer]) -> Result<Contract> {
        let names: Vec<_> = offers.iter().map(|offer| offer.name).collect();
        let grant = format!("{}-{}", self.name, names.join("-"));
        let published = try_join_all(offers.iter().map(|offer| offer.publish(provider)));
        let granted = self.world.grant(&grant, offers);
        let contract = Contract::new(provider, self.name, &names);
        let (_, (), contract) = tokio::try_join!(published, granted, contract)?;
        Ok(contract)
    }

    /// A bundle of that case.
    pub(crate) fn bundle(&self, suffix: &str) -> Bundle {
        self.world.bundle(&format!("{}{suffix}", self.name))
    }

    /// The common beginning: one API on the first provider, exported, with a bundle that has bound it.
    pub(crate) async fn begin(&self, offer: Offer, spec: Value) -> Result<(Contract, Bundle)> {
        let contract = self.contract(&self.world.p, &[offer]).await?;
        let credential = contract.export(offer).await?;
        let bundle = self.bundle("");
        bundle.give(&credential.yaml()?).await?;
        bundle.apply(spec).await?;
        bundle.binds(&[offer.name]).await?;
        Ok((contract, bundle))
    }

    /// An object of the consumer's in the case's namespace, which is made, and its copy.
    pub(crate) async fn object(&self, contract: &Contract, offer: Offer, name: &str) -> Result<Pair> {
        self.world.namespace(self.name).await?;
        Pair::create(self.world, contract, offer, self.name, name).await
    }
}
