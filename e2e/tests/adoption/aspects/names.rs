//! Names and namespaces, the other way round: from the provider's to the consumer's.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use bindery_api::{annotations, names};
use bindery_e2e::{eventually_ok, wildwest::SOON};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};

use crate::side::Side;

/// The controller of namespaces takes its time.
const ENDED: Duration = Duration::from_mins(2);

/// A namespace is made when something is to be put into it, under its whole name.
pub(crate) async fn namespaces_come_as_they_are_needed(side: &Side) -> Result<()> {
    let (frontier, desert) = (side.cell.frontier(), side.cell.desert());
    let far = format!("{:o<63}", format!("far-{}-", side.cell.name));
    ensure!(
        names::provider_namespace(&side.contract, &far).contains("--"),
        "it fits"
    );
    side.mapped(&far).await?;
    for namespace in [&frontier, &far] {
        ensure!(
            side.namespaces().get_opt(namespace).await?.is_none(),
            "{namespace} is there"
        );
        let source = side.put_into(namespace, &side.fresh("settler", namespace)).await?;
        let pair = side.adopted_in(namespace, "settler", &source).await?;
        ensure!(pair.ours.data["spec"]["intent"] == **namespace, "{:?}", pair.ours.data);
        // It goes on there as anywhere.
        let ours = side.ours_in(namespace);
        ours.create(&PostParams::default(), &side.cell.object("born-there", "ride"))
            .await?;
        eventually_ok("a copy of what was born there", SOON, async || {
            side.copies_in(namespace).get("born-there").await?;
            Ok(())
        })
        .await?;
    }
    ensure!(
        side.namespaces().get_opt(&desert).await?.is_none(),
        "nothing is in {desert}"
    );
    Ok(())
}

/// The user deletes one, and with it what was adopted. What the provider makes then is put into a new one.
pub(crate) async fn a_namespace_takes_its_objects_along(side: &Side) -> Result<()> {
    let namespace = "ghost-town";
    side.mapped(namespace).await?;
    let source = side.put_into(namespace, &side.fresh("settler", "ride")).await?;
    side.adopted_in(namespace, "settler", &source).await?;
    let before = side.namespaces().get(namespace).await?;
    side.namespaces().delete(namespace, &DeleteParams::default()).await?;
    let copies = side.copies_in(namespace);
    eventually_ok("the copies to go with their namespace", ENDED, async || {
        let left = copies.list_metadata(&ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{} are left", left.len());
        Ok(())
    })
    .await?;
    let source = side.put_into(namespace, &side.fresh("next", "ride")).await?;
    side.adopted_in(namespace, "next", &source).await?;
    let now = side.namespaces().get(namespace).await?;
    ensure!(now.uid() != before.uid(), "it is the same namespace");
    ensure!(
        side.ours_in(namespace).get_opt("settler").await?.is_none(),
        "it came back"
    );
    Ok(())
}

/// From a shortened name nobody can tell the whole one.
pub(crate) async fn a_shortened_name_is_not_guessed(side: &Side) -> Result<()> {
    let room = names::NAME_LENGTH_MAX - side.contract.len() - "-".len();
    let [fits, not] = [room, room + 1].map(|length| "l".repeat(length));
    let source = side.put(&side.fresh(&fits, "ride")).await?;
    side.adopted(&fits, &source).await?;

    let shortened = side.put(&side.opted(&not, "stay")).await?;
    ensure!(shortened.name_any().contains("--"), "{}", shortened.name_any());
    let mut lies = side.opted(&format!("{not}y"), "stay");
    let other = (annotations::CONSUMER_NAME.to_owned(), "another".to_owned());
    lies.annotations_mut().extend([other]);
    let lies = side.put(&lies).await?;
    let mut left: BTreeMap<String, DynamicObject> = BTreeMap::new();
    left.insert(not, shortened.clone());
    left.insert("another".to_owned(), lies);
    // Nor is what is left of it without the contract's name.
    let rest = shortened.name_any().trim_start_matches(&*side.contract).to_owned();
    left.insert(rest.trim_start_matches('-').to_owned(), shortened);
    side.stay("after-the-long-ones", &left).await
}
