//! Two providers export under one name, or the same API: the later one loses, visibly, and nothing is harmed.

use anyhow::{Result, ensure};
use bindery_api::Severity;
use bindery_e2e::{holds_for, offer::Offer};
use serde_json::json;

use crate::world::{A_WHILE, case};

const MINE: Offer = Offer { name: "con-mine" };
const THEIRS: Offer = Offer { name: "con-theirs" };
const OWN: Offer = Offer { name: "con-own" };
const SAME: Offer = Offer { name: "con-same" };

pub(crate) async fn of_two_exports_of_one_name_the_later_is_bound_under_a_prefix() -> Result<()> {
    case("conflicts", async |case| {
        let (p, q) = tokio::try_join!(
            case.contract(&case.world.p, &[MINE]),
            case.contract(&case.world.q, &[THEIRS, OWN])
        )?;
        let (first, later) = (case.bundle("-p"), case.bundle("-q"));
        first.give(&p.export_as("con-shared", MINE).await?.yaml()?).await?;
        first.apply(json!({})).await?;
        first.binds(&["con-shared"]).await?;
        let mine = case.object(&p, MINE, "one").await?;
        q.export_as("con-shared", THEIRS).await?;
        let credential = q.export(OWN).await?.yaml()?;
        later.give(&credential).await?;
        later.apply(json!({})).await?;

        let says = ["export con-shared", "APIServiceBinding con-shared", "bindingNamePrefix"];
        later
            .complains("Synced", Severity::Warning, "SyncErrors", &says)
            .await?;
        // What else there is of that provider is bound all the same, and counted.
        let own = case.object(&q, OWN, "one").await?;
        let status = later.status().await?;
        ensure!(
            status.discovered_services == Some(2) && status.bound_services == Some(1),
            "{status:?}"
        );
        let before = first.bound().await?;
        holds_for("the earlier one to be left alone", A_WHILE, async || {
            ensure!(first.bound().await? == before, "its binding was written");
            ensure!(first.condition("Ready").await?.is_true(), "the earlier one complains");
            Ok(())
        })
        .await?;
        mine.works("green").await?;
        own.works("green").await?;

        // A prefix is for ever, so that it is another bundle that has one. Without the first, its bindings drain.
        let prefixed = case.bundle("-prefixed");
        prefixed.give(&credential).await?;
        later.delete(&[OWN.name]).await?;
        prefixed.apply(json!({"bindingNamePrefix": "q-"})).await?;
        prefixed.binds(&["q-con-shared", "q-con-own"]).await?;
        let theirs = case.object(&q, THEIRS, "one").await?;
        theirs.works("blue").await?;
        mine.works("blue").await?;
        first.binds(&["con-shared"]).await
    })
    .await
}

pub(crate) async fn of_two_exports_of_one_api_the_first_serves_it() -> Result<()> {
    case("one-api", async |case| {
        let (p, q) = tokio::try_join!(
            case.contract(&case.world.p, &[SAME]),
            case.contract(&case.world.q, &[SAME])
        )?;
        let (first, later) = (case.bundle("-p"), case.bundle("-q"));
        first.give(&p.export_as("con-here", SAME).await?.yaml()?).await?;
        first.apply(json!({})).await?;
        first.binds(&["con-here"]).await?;
        let pair = case.object(&p, SAME, "one").await?;
        later.give(&q.export_as("con-there", SAME).await?.yaml()?).await?;
        later.apply(json!({})).await?;

        let reason = "ForeignCustomResourceDefinition";
        later
            .binding_is("con-there", "Connected", |found| found.reason == reason)
            .await?;
        let says = ["export con-there", "widgets.con-same.example.dev"];
        later
            .complains("Synced", Severity::Warning, "SyncErrors", &says)
            .await?;
        pair.works("green").await?;
        first.binds(&["con-here"]).await?;
        let copies = q.copies(SAME, case.name);
        ensure!(copies.get_opt("one").await?.is_none(), "the other provider got it too");
        // The one that serves nothing goes without taking anything along.
        later.delete(&["con-there"]).await?;
        pair.works("blue").await?;
        first.binds(&["con-here"]).await
    })
    .await
}
