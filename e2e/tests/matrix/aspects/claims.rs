//! Claimed objects of the consumers: which are copied, and that a copy goes when nothing selects it any more.

use anyhow::{Result, ensure};
use bindery_api::{annotations, labels};
use futures::future::try_join_all;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject},
};
use serde_json::json;

use crate::{
    aspects::provider_owned,
    bench::Bench,
    cells::Place,
    kinds::Kind,
    offer::{BY_NAME, CLAIM_LABEL},
    side::{Side, shown},
};

pub(crate) async fn by_label(bench: &Bench) -> Result<()> {
    let kinds = bench.cell.claimed().into_iter();
    try_join_all(kinds.map(|kind| labelled(bench, kind))).await.map(drop)
}

async fn labelled(bench: &Bench, kind: Kind) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let twin = bench.twin(a, b, kind, "by-label").await?;
    // One without the label, from before: it must still be alone when all of this is over.
    a.create(kind, &kind.object(bench.cell, "unclaimed", "mine")).await?;
    let source = a.patch(kind, "by-label", kind.patch("changed")).await?;
    let copy = a.copied(kind, "by-label", "changed").await?;
    marked(bench, &copy, &source)?;
    let unlabel = json!({"metadata": {"labels": {CLAIM_LABEL: null}}});
    let source = a.patch(kind, "by-label", unlabel).await?;
    a.withdrawn(kind, "by-label").await?;
    is_as_the_user_left_it(a, kind, &source).await?;
    twin.left_the_other_alone().await?;
    if bench.cell.shares_names() {
        b.copied(kind, "by-label", b.who).await?;
    }
    // Selected again, it comes again.
    let again = json!({"metadata": {"labels": {CLAIM_LABEL: bench.cell.name}}});
    a.patch(kind, "by-label", again).await?;
    if bench.cell.shares_names() {
        a.conflict(kind, "by-label").await?;
    } else {
        a.copied(kind, "by-label", "changed").await?;
    }
    twin.left_the_other_alone().await?;
    let unclaimed = a.copies(kind).get_opt("unclaimed").await?;
    ensure!(unclaimed.is_none(), "a {kind:?} that nothing selects was copied");
    Ok(())
}

pub(crate) async fn by_name(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let kind = Kind::Secret;
    let make = |word: &str| kind.object(bench.cell, BY_NAME, word);
    let twin = bench.twin_of(b, a, kind, BY_NAME, make).await?;
    let source = b.patch(kind, BY_NAME, kind.patch("changed")).await?;
    b.copied(kind, BY_NAME, "changed").await?;
    is_as_the_user_left_it(b, kind, &source).await?;
    twin.left_the_other_alone().await?;
    if bench.cell.shares_names() {
        // Whose copy would come back, is open.
        return Ok(());
    }
    // A copy that is lost comes back.
    let copy = b.copied(kind, BY_NAME, "changed").await?;
    b.copies(kind).delete(BY_NAME, &DeleteParams::default()).await?;
    let back = |now: &DynamicObject| now.uid() != copy.uid() && kind.is(now, "changed");
    b.copy_is("to come back", kind, BY_NAME, back).await?;
    is_as_the_user_left_it(b, kind, &source).await?;
    twin.left_the_other_alone().await
}

/// Both sides have one of the same name, and neither is a copy of the other's: nothing is written.
pub(crate) async fn in_conflict(bench: &Bench) -> Result<()> {
    let side = &bench.b;
    let kind = Kind::Secret;
    let selected = |name: &str, word: &str| kind.labelled(bench.cell, name, word);
    let plain = |name: &str, word: &str| kind.object(bench.cell, name, word);
    for (name, ours, theirs) in [
        (
            "taken-here",
            plain("taken-here", "ours"),
            selected("taken-here", "theirs"),
        ),
        (
            "taken-there",
            selected("taken-there", "ours"),
            plain("taken-there", "theirs"),
        ),
    ] {
        // The one that no claim selects is there first.
        let (ours, theirs) = if name == "taken-here" {
            (
                side.create(kind, &ours).await?,
                provider_owned::put(side, &theirs).await?,
            )
        } else {
            let theirs = provider_owned::put(side, &theirs).await?;
            (side.create(kind, &ours).await?, theirs)
        };
        side.conflict(kind, name).await?;
        is_as_the_user_left_it(side, kind, &ours).await?;
        let now = side.copies(kind).get(name).await?;
        ensure!(
            now.resource_version() == theirs.resource_version(),
            "the provider's was written: {}",
            shown(&now)
        );
        side.copies(kind).delete(name, &DeleteParams::default()).await?;
    }
    // Nothing is in its way any more.
    side.copied(kind, "taken-there", "ours").await.map(drop)
}

pub(crate) async fn by_reference(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let kind = Kind::Secret;
    for side in [a, b] {
        let referrer = format!("referrer-{}", side.who);
        side.create(Kind::Bound, &Kind::Bound.object(bench.cell, &referrer, "ride"))
            .await?;
        refer(side, &referrer, "referred").await?;
    }
    let make = |name: &str, word: &str| kind.object(bench.cell, name, word);
    let twin = bench
        .twin_of(a, b, kind, "referred", |word| make("referred", word))
        .await?;
    let source = a.patch(kind, "referred", kind.patch("changed")).await?;
    a.copied(kind, "referred", "changed").await?;
    a.create(kind, &make("referred-next", "next")).await?;
    // The referring object alone changes.
    refer(a, "referrer-a", "referred-next").await?;
    a.copied(kind, "referred-next", "next").await?;
    a.withdrawn(kind, "referred").await?;
    is_as_the_user_left_it(a, kind, &source).await?;
    twin.left_the_other_alone().await?;
    if bench.cell.shares_names() {
        b.copied(kind, "referred", b.who).await?;
    }
    // Nobody refers any more.
    a.ours(Kind::Bound)
        .delete("referrer-a", &DeleteParams::default())
        .await?;
    a.withdrawn(kind, "referred-next").await?;
    ensure!(
        a.ours(kind).get_opt("referred-next").await?.is_some(),
        "a source was deleted"
    );
    twin.left_the_other_alone().await
}

/// Has an object refer to a Secret of the cell's namespace.
async fn refer(side: &Side<'_>, referrer: &str, secret: &str) -> Result<()> {
    let reference = json!([{"name": secret, "namespace": side.cell.name}]);
    side.patch(Kind::Bound, referrer, json!({"spec": {"secretRefs": reference}}))
        .await
        .map(drop)
}

/// A copy says whose it is and what it was made of.
fn marked(bench: &Bench, copy: &DynamicObject, source: &DynamicObject) -> Result<()> {
    let has = |key: &str| copy.annotations().get(key).cloned();
    ensure!(has(annotations::CONSUMER_UID) == source.uid(), "{:?}", copy.metadata);
    ensure!(
        has(annotations::CONSUMER_NAMESPACE) == source.namespace(),
        "{:?}",
        copy.metadata
    );
    let owner = copy.labels().get(labels::OWNER).map(String::as_str);
    ensure!(owner == Some("consumer"), "{:?}", copy.metadata);
    let shared = matches!(bench.cell.place, Place::None | Place::NoneLastWins);
    let same = copy.namespace() == source.namespace();
    ensure!(same == shared, "in namespace {:?}", copy.namespace());
    ensure!(
        copy.data["secrets"].is_null(),
        "token Secrets of a ServiceAccount: {}",
        copy.data
    );
    Ok(())
}

/// Sources are never written.
pub(crate) async fn is_as_the_user_left_it(side: &Side<'_>, kind: Kind, source: &DynamicObject) -> Result<()> {
    let now = side.ours(kind).get(&source.name_any()).await?;
    ensure!(
        now.resource_version() == source.resource_version(),
        "a source was written: {}",
        shown(&now)
    );
    Ok(())
}
