//! Names that leave no room for a prefix.

use anyhow::{Result, ensure};
use bindery_api::{annotations, names, v1alpha2::Scope};
use bindery_e2e::{eventually, wildwest::SOON};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, PostParams},
};
use serde_json::json;

use crate::{bench::Bench, cells::Place, kinds::Kind, side::Side};

/// Two names of the greatest length that differ in their last letter alone.
pub(crate) fn longest(length: usize) -> [String; 2] {
    ["x", "y"].map(|last| "l".repeat(length - 1) + last)
}

pub(crate) async fn names_that_do_not_fit(bench: &Bench) -> Result<()> {
    for side in [&bench.a, &bench.b] {
        if bench.cell.consumer_scope() == Scope::Namespaced {
            namespaces(side).await?;
        } else {
            objects(side).await?;
        }
    }
    Ok(())
}

/// Name of an object in such a namespace, which cells share.
fn far(side: &Side<'_>) -> String {
    format!("far-{}", side.cell.name)
}

async fn namespaces(side: &Side<'_>) -> Result<()> {
    let kind = Kind::Bound;
    for namespace in longest(names::NAMESPACE_LENGTH_MAX) {
        placed(side, kind, &namespace).await?;
        let (ours, copies) = (side.ours_in(kind, &namespace), side.copies_in(kind, &namespace));
        let name = far(side);
        flows_back(side, &ours, &copies, &name, &name, &namespace).await?;
    }
    Ok(())
}

pub(crate) async fn claims_in_long_namespaces(bench: &Bench) -> Result<()> {
    for side in [&bench.a, &bench.b] {
        for namespace in longest(names::NAMESPACE_LENGTH_MAX) {
            placed(side, Kind::Secret, &namespace).await?;
        }
    }
    Ok(())
}

/// Makes an object in a namespace and waits for its copy.
async fn placed(side: &Side<'_>, kind: Kind, namespace: &str) -> Result<()> {
    side.namespace(namespace).await?;
    let name = far(side);
    let object = kind.labelled(side.cell, &name, namespace);
    side.ours_in(kind, namespace)
        .create(&PostParams::default(), &object)
        .await?;
    let copies = side.copies_in(kind, namespace);
    let copy = found(side, &copies, kind, &name, namespace).await?;
    let said = copy.annotations().get(annotations::CONSUMER_NAMESPACE);
    ensure!(said.is_some_and(|said| said == namespace), "{:?}", copy.annotations());
    Ok(())
}

async fn objects(side: &Side<'_>) -> Result<()> {
    // Under one space of names, each consumer gets names of its own.
    let length = names::NAME_LENGTH_MAX - usize::from(side.cell.shares_names()) * 2;
    for name in longest(length) {
        let name = if side.cell.shares_names() {
            format!("{}-{name}", side.who)
        } else {
            name
        };
        side.create(Kind::Bound, &Kind::Bound.object(side.cell, &name, "ride"))
            .await?;
        let copies = side.copies(Kind::Bound);
        let copy_name = side.copy_name(Kind::Bound, &name);
        let copy = found(side, &copies, Kind::Bound, &copy_name, "ride").await?;
        let noted = copy.annotations().get(annotations::CONSUMER_NAME);
        let expected = (side.cell.place == Place::Prefixed).then_some(&name);
        ensure!(noted == expected, "{:?}", copy.annotations());
        flows_back(side, &side.ours(Kind::Bound), &copies, &name, &copy_name, "found").await?;
    }
    Ok(())
}

async fn found(
    side: &Side<'_>,
    copies: &Api<DynamicObject>,
    kind: Kind,
    name: &str,
    word: &str,
) -> Result<DynamicObject> {
    eventually(format!("{}'s copy {name} to say {word}", side.who), SOON, async || {
        let copy = copies.get_opt(name).await?;
        Ok(copy.filter(|copy| side.owns(copy) && kind.is(copy, word)))
    })
    .await
}

async fn flows_back(
    side: &Side<'_>,
    ours: &Api<DynamicObject>,
    copies: &Api<DynamicObject>,
    name: &str,
    copy: &str,
    result: &str,
) -> Result<()> {
    side.write_status(copies, copy, json!({"result": result})).await?;
    eventually(format!("{}'s {name} to have a result", side.who), SOON, async || {
        let object = ours.get(name).await?;
        Ok((object.data["status"]["result"] == result).then_some(()))
    })
    .await
}
