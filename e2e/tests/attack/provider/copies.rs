//! Copies with marks that are not theirs.

use anyhow::{Context as _, Result, ensure};
use bindery_api::annotations;
use bindery_e2e::{holds_for, wildwest};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{A_WHILE, Ranch, SPURS, betray, report};

#[test]
fn forged_marks_reach_no_object_of_another_name() -> Result<()> {
    betray(async |ranch| {
        ranch.bind(SPURS, &[]).await?;
        wildwest::namespace(ranch.consumer.plane.client(), "stables").await?;
        for (namespace, name) in [("spurs", "billy"), ("spurs", "jesse"), ("stables", "jesse")] {
            ranch.create(SPURS, namespace, name).await?;
        }
        let ours = ranch.ours(SPURS, "spurs");
        let copies = ranch.copies(SPURS, "spurs");
        let jesse = ours.get("jesse").await?.uid().context("a UID")?;
        let stabled = ranch
            .ours(SPURS, "stables")
            .get("jesse")
            .await?
            .uid()
            .context("a UID")?;

        // Billy's copy says that it is Jesse's, of another namespace.
        let marks = json!({
            annotations::CONSUMER_UID: stabled, annotations::CONSUMER_NAMESPACE: "stables",
            annotations::CONSUMER_NAME: "jesse",
        });
        let forged = Patch::Merge(json!({"metadata": {"annotations": marks}}));
        copies.patch("billy", &PatchParams::default(), &forged).await?;
        report(&copies, "billy", "stolen").await?;
        // One that nobody made says that it is Jesse's, and one says nothing.
        let mut ghost = SPURS.object("ghost", "boo");
        ghost.metadata.annotations = Some(
            [
                (annotations::CLUSTER_NAMESPACE, Ranch::contract(SPURS).as_str()),
                (annotations::CONSUMER_NAMESPACE, "spurs"),
                (annotations::CONSUMER_UID, &jesse),
                (annotations::CONSUMER_NAME, "jesse"),
                (annotations::BOUND, annotations::TRUE),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        );
        copies.create(&PostParams::default(), &ghost).await?;
        copies
            .create(&PostParams::default(), &SPURS.object("kate", "boo"))
            .await?;
        report(&copies, "kate", "stolen").await?;

        ranch.round_trip(SPURS, "spurs", "last").await?;
        ranch.round_trip(SPURS, "stables", "last").await?;
        let everywhere: Api<DynamicObject> = Api::all_with(ranch.consumer.plane.client(), &SPURS.resource());
        holds_for("no object of the consumer's to be forged", A_WHILE, async || {
            let all = everywhere.list(&ListParams::default()).await?;
            for object in &all.items {
                ensure!(object.data["status"]["text"] != "stolen", "{object:?}");
                let name = object.name_any();
                ensure!(["billy", "jesse", "last"].contains(&name.as_str()), "{object:?}");
                ensure!(object.metadata.deletion_timestamp.is_none(), "{object:?}");
            }
            ensure!(all.items.len() == 5, "{} objects", all.items.len());
            Ok(())
        })
        .await
    })
}
