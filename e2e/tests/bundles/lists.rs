//! Lists of exports that are refused, fail, break off, or are empty: nothing of the consumer's is deleted by any of them.

use anyhow::{Result, ensure};
use bindery_e2e::{Liar, Lie, Proxy, bundle::Bundle, eventually_ok, holds_for, offer::Offer, wildwest::SOON};
use http::Uri;
use serde_json::json;

use crate::{
    contract::Contract,
    pair::Pair,
    removed::shows_export_removed,
    world::{A_WHILE, Case, case},
};

/// A way to the provider on which the lists of exports can be falsified, and which can be cut.
pub(crate) struct Way {
    pub(crate) liar: Liar,
    pub(crate) line: Proxy,
}

/// What is bound over it: one API with an object, and one without.
pub(crate) struct Bench {
    pub(crate) way: Way,
    contract: Contract,
    pub(crate) bundle: Bundle,
    pub(crate) pair: Pair,
    held: Offer,
    bare: Offer,
}

// === impl Way ===

impl Way {
    async fn start(case: &Case) -> Result<Self> {
        let liar = Liar::start(&case.world.p.plane).await?;
        let line = Proxy::start(liar.address()).await?;
        Ok(Self { liar, line })
    }

    /// Lies about exports from now on, to konnectors that must list them again.
    fn lie(&self, lie: Lie) {
        self.liar.lie(move |_, uri| {
            if !uri.path().ends_with("/apiserviceexports") {
                None
            } else if resumes(uri) {
                Some(Lie::Status(410))
            } else {
                Some(lie)
            }
        });
        self.line.sever();
    }

    /// Lists truly from now on, and has konnectors list: one that believed a list would go on from it.
    fn confess(&self) {
        self.liar
            .lie(|_, uri| (uri.path().ends_with("/apiserviceexports") && resumes(uri)).then_some(Lie::Status(410)));
        self.line.sever();
    }

    pub(crate) fn repent(&self) {
        self.liar.repent();
        self.line.sever();
    }
}

/// Whether it is a watch.
pub(crate) fn resumes(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.contains("watch="))
}

// === impl Bench ===

impl Bench {
    pub(crate) async fn start(case: &Case, apis: [&'static str; 2]) -> Result<Self> {
        let [held, bare] = apis.map(Offer::new);
        let contract = case.contract(&case.world.p, &[held, bare]).await?;
        let way = Way::start(case).await?;
        contract.export(bare).await?;
        let credential = contract
            .export(held)
            .await?
            .without_backend()
            .through(way.line.address());
        let bundle = case.bundle("");
        bundle.give(&credential.yaml()?).await?;
        bundle
            .apply(json!({"pollingInterval": "1s", "backoffMultiplier": 1.0}))
            .await?;
        bundle.binds(&[bare.name, held.name]).await?;
        let pair = case.object(&contract, held, "one").await?;
        Ok(Self {
            way,
            contract,
            bundle,
            pair,
            held,
            bare,
        })
    }

    /// While it lies so, the bundle says that it cannot list, and nothing goes; then all is well again.
    async fn unbinds_nothing(&self, lie: Lie) -> Result<()> {
        let before = self.bundle.bound().await?;
        self.way.lie(lie);
        eventually_ok(format!("the bundle to notice {lie:?}"), SOON, async || {
            let synced = self.bundle.condition("Synced").await?;
            ensure!(!synced.is_true() && synced.reason == "ListExportsFailed", "{synced:?}");
            ensure!(self.bundle.bound().await? == before, "bindings changed");
            self.pair.is_here().await
        })
        .await?;
        holds_for("nothing to be deleted", A_WHILE, async || {
            ensure!(self.bundle.bound().await? == before, "bindings changed");
            self.pair.is_here().await
        })
        .await?;
        self.way.repent();
        self.bundle.binds(&[self.bare.name, self.held.name]).await?;
        self.pair.works(&format!("{lie:?}")).await
    }
}

pub(crate) async fn a_list_that_fails() -> Result<()> {
    unbinds_nothing("failing", ["lis-failing", "lis-failing-bare"], Lie::Status(500)).await
}

pub(crate) async fn a_list_that_is_forbidden() -> Result<()> {
    unbinds_nothing("forbids", ["lis-forbids", "lis-forbids-bare"], Lie::Status(403)).await
}

pub(crate) async fn a_list_that_breaks_off() -> Result<()> {
    unbinds_nothing("cuts", ["lis-cuts", "lis-cuts-bare"], Lie::Cut(200)).await
}

async fn unbinds_nothing(name: &'static str, apis: [&'static str; 2], lie: Lie) -> Result<()> {
    case(name, async |case| {
        let bench = Bench::start(case, apis).await?;
        bench.unbinds_nothing(lie).await
    })
    .await
}

pub(crate) async fn a_list_without_its_end() -> Result<()> {
    case("partial", async |case| {
        let bench = Bench::start(case, ["lis-partial", "lis-partial-bare"]).await?;
        bench.unbinds_nothing(Lie::Partial).await?;
        // What went meanwhile is found, once the list is whole.
        bench.way.lie(Lie::Partial);
        bench.contract.remove(bench.bare.name).await?;
        bench.way.repent();
        bench.bundle.unbound(bench.bare.name).await?;
        bench.bundle.binds(&[bench.held.name]).await
    })
    .await
}

pub(crate) async fn an_empty_list() -> Result<()> {
    case("empty", async |case| {
        let bench = Bench::start(case, ["lis-empty", "lis-empty-bare"]).await?;
        an_empty_list_deletes_no_object(&bench).await
    })
    .await
}

/// The provider is reached, and has nothing: it is believed, and no object goes.
async fn an_empty_list_deletes_no_object(bench: &Bench) -> Result<()> {
    bench.way.lie(Lie::Empty);
    shows_export_removed(&bench.bundle, bench.held.name).await?;
    bench.bundle.unbound(bench.bare.name).await?;
    holds_for("no object to be deleted", A_WHILE, async || {
        bench.pair.is_here().await?;
        let binding = bench.bundle.all_bindings.get(bench.held.name).await?;
        ensure!(binding.metadata.deletion_timestamp.is_none(), "the binding goes");
        Ok(())
    })
    .await?;
    bench.way.confess();
    bench.bundle.binds(&[bench.bare.name, bench.held.name]).await?;
    bench.way.repent();
    bench.pair.works("after all").await
}
