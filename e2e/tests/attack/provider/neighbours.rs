//! A consumer that plants objects for the konnector of another to see: with a cluster-wide watch it sees them all.

use anyhow::{Result, ensure};
use bindery_api::{Conditions as _, annotations};
use bindery_e2e::holds_for;
use kube::{
    ResourceExt as _,
    api::{ListParams, PostParams},
};

use super::{A_WHILE, REINS, Ranch, betray};
use crate::tenant::Tenant;

/// Each would be an orphan of the konnector if it took it for its own.
const MANY: usize = 15;

#[test]
fn objects_that_another_consumer_marks_as_ours_change_nothing() -> Result<()> {
    betray(async |ranch| {
        ranch.bind(REINS, &[]).await?;
        ranch.create(REINS, REINS.name, "first").await?;
        let joe = Tenant::settle(&ranch.provider, "joe", &[REINS]).await?;
        let planted = joe.objects(REINS);
        for number in 0..MANY {
            let mut object = joe.copy(REINS, &format!("copy-{number}"));
            let marks = [
                (annotations::CLUSTER_NAMESPACE, Ranch::contract(REINS)),
                (annotations::CONSUMER_NAMESPACE, REINS.name.to_owned()),
            ];
            object
                .annotations_mut()
                .extend(marks.map(|(key, value)| (key.to_owned(), value)));
            planted.create(&PostParams::default(), &object).await?;
        }
        let before = planted.list(&ListParams::default()).await?;
        let before: Vec<_> = before
            .iter()
            .map(|object| (object.name_any(), object.resource_version()))
            .collect();

        // What the user deletes goes, as if they were not there.
        ranch.round_trip(REINS, REINS.name, "last").await?;
        ranch
            .ours(REINS, REINS.name)
            .delete("first", &kube::api::DeleteParams::default())
            .await?;
        bindery_e2e::eventually("the copy to go", bindery_e2e::wildwest::SOON, || async {
            let copy = ranch.copies(REINS, REINS.name).get_opt("first").await?;
            Ok(copy.is_none().then_some(()))
        })
        .await?;
        holds_for("the binding to be well, and the planted to stay", A_WHILE, async || {
            let binding = ranch.binding(REINS.name).await?;
            ensure!(binding.is_condition_true("Ready"), "{:?}", binding.conditions());
            let now = planted.list(&ListParams::default()).await?;
            let now: Vec<_> = now
                .iter()
                .map(|object| (object.name_any(), object.resource_version()))
                .collect();
            ensure!(now == before, "{before:?} became {now:?}");
            Ok(())
        })
        .await
    })
}
