//! What is never adopted, whatever is asked for.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_api::{annotations, names};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cells::Place,
    side::{Side, shown},
};

/// Some other contract.
const OTHER: &str = "kube-bind-other";
const HELD: &str = "wildwest.dev/last-words";

pub(crate) async fn what_has_other_marks_stays(side: &Side) -> Result<()> {
    let own = &*side.contract;
    let let_go = annotations::released("2026-01-01T00:00:00Z", own);
    let mut left = BTreeMap::new();
    for (name, marks) in [
        ("anothers", json!({annotations::CLUSTER_NAMESPACE: OTHER})),
        (
            "anothers-bound",
            json!({annotations::CLUSTER_NAMESPACE: OTHER, annotations::CONSUMER_UID: "u", annotations::BOUND: "true"}),
        ),
        (
            "let-go",
            json!({
                annotations::CLUSTER_NAMESPACE: own, annotations::CONSUMER_UID: "u", annotations::BOUND: "true",
                annotations::RELEASED: let_go,
            }),
        ),
        ("had-one", json!({annotations::BOUND: "true"})),
    ] {
        left.insert(name.to_owned(), side.put(&marked(side, name, marks)?).await?);
    }
    left.insert("ending".to_owned(), ending(side).await?);
    if side.cell.shares_names() {
        let mut nobodys = side.opted("nobodys", "stay");
        nobodys.annotations_mut().remove(annotations::CLUSTER_NAMESPACE);
        left.insert("nobodys".to_owned(), side.put(&nobodys).await?);
    }
    // One that had a counterpart which is no more is an orphan: it is not made again, and stays.
    let marks = json!({
        annotations::CLUSTER_NAMESPACE: own, annotations::CONSUMER_UID: "u-gone", annotations::BOUND: "true",
        annotations::CONSUMER_NAMESPACE: if side.cell.is_namespaced() { side.cell.name } else { "" },
    });
    left.insert("orphan".to_owned(), side.put(&marked(side, "orphan", marks)?).await?);
    let elsewhere = elsewhere(side).await?;
    side.stay("after-the-others", &left).await?;
    ensure!(side.ours().get_opt("orphan").await?.is_none(), "it was made again");
    if let Some((api, before)) = elsewhere {
        let now = api.get(&before.name_any()).await?;
        ensure!(
            now.resource_version() == before.resource_version(),
            "written: {}",
            shown(&now)
        );
        let all = Api::<DynamicObject>::all_with(side.client.clone(), &side.cell.resource());
        let ours = all.list(&kube::api::ListParams::default()).await?.items;
        ensure!(
            ours.iter().all(|ours| !ours.name_any().contains("elsewhere")),
            "it was adopted"
        );
    }
    // Where the provider says whose they are, they would be counted as what is left of the contract.
    side.patch_copy("ending", json!({"metadata": {"finalizers": null}}))
        .await?;
    side.delete_copy("orphan").await?;
    side.delete_copy("had-one").await
}

/// It asks to be adopted, and has marks that say otherwise.
fn marked(side: &Side, name: &str, marks: Value) -> Result<DynamicObject> {
    let mut object = side.opted(name, "stay");
    let marks: BTreeMap<String, String> = serde_json::from_value(marks)?;
    object.annotations_mut().extend(marks);
    Ok(object)
}

/// One that is being deleted, from before it could be adopted.
async fn ending(side: &Side) -> Result<DynamicObject> {
    let name = "ending";
    let mut object = marked(side, name, json!({annotations::CLUSTER_NAMESPACE: OTHER}))?;
    object.finalizers_mut().push(HELD.to_owned());
    side.put(&object).await?;
    side.copies()
        .delete(&side.copy_name(name), &DeleteParams::default())
        .await?;
    let contract = side.cell.shares_names().then_some(&side.contract);
    side.patch_copy(
        name,
        json!({"metadata": {"annotations": {annotations::CLUSTER_NAMESPACE: contract}}}),
    )
    .await
}

/// One that asks to be adopted where nothing of this contract is, but of another one.
async fn elsewhere(side: &Side) -> Result<Option<(Api<DynamicObject>, DynamicObject)>> {
    let (namespace, name) = match side.cell.place {
        Place::Prefixed => (String::new(), names::prefixed_name(OTHER, "elsewhere")),
        Place::None => return Ok(None),
        Place::Mapped | Place::Contract | Place::Beside => {
            (format!("{OTHER}-{}", side.cell.name), "elsewhere".to_owned())
        }
    };
    if !namespace.is_empty() {
        bindery_e2e::wildwest::namespace(side.provider.plane.client(), &namespace).await?;
    }
    let mut object = side.opted("elsewhere", "stay");
    object.metadata.name = Some(name);
    let api = side.provider_api(&namespace);
    let made = api.create(&PostParams::default(), &object).await?;
    Ok(Some((api, made)))
}
