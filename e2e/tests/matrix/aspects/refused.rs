//! Secrets that are somebody's identity: never copied, whoever selects them.

use anyhow::{Result, ensure};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::json;

use crate::{bench::Bench, cells::Cell, kinds::Kind, offer::CLAIM_LABEL, side::Side};

const SECRET: Kind = Kind::Secret;
const TYPES: [(&str, &str); 2] = [
    ("service-account", "kubernetes.io/service-account-token"),
    ("bootstrap", "bootstrap.kubernetes.io/token"),
];

pub(crate) async fn token_secrets(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let accounts = a.ours(Kind::ServiceAccount);
    let account = Kind::ServiceAccount.object(bench.cell, "rider", "x");
    accounts.create(&kube::api::PostParams::default(), &account).await?;
    for (name, type_) in TYPES {
        a.create(SECRET, &token(bench.cell, &format!("up-{name}"), type_))
            .await?;
    }
    // What is created after them is copied, so that they were looked at.
    a.create(SECRET, &SECRET.labelled(bench.cell, "sentinel-up", "x"))
        .await?;
    a.copied(SECRET, "sentinel-up", "x").await?;
    for (name, type_) in TYPES {
        // The provider's come from its admin, whom no policy holds back.
        super::provider_owned::put(b, &token(bench.cell, &format!("down-{name}"), type_)).await?;
    }
    super::provider_owned::put(b, &SECRET.labelled(bench.cell, "sentinel-down", "x")).await?;
    let came = |copy: &DynamicObject| SECRET.is(copy, "x");
    b.ours_is("to come down", SECRET, "sentinel-down", came).await?;
    none(a, b).await
}

/// Whatever happened since.
pub(crate) async fn were_never_copied(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    none(a, b).await?;
    for (name, _) in TYPES {
        let source = a.ours(SECRET).get(&format!("up-{name}")).await?;
        ensure!(source.finalizers().is_empty(), "{:?}", source.metadata);
    }
    // What is left of them would keep the provider's namespaces.
    for name in ["down-service-account", "down-bootstrap", "sentinel-down"] {
        let copies = b.copies(SECRET);
        copies.delete(name, &kube::api::DeleteParams::default()).await?;
    }
    b.gone(SECRET, "sentinel-down").await
}

async fn none(a: &Side<'_>, b: &Side<'_>) -> Result<()> {
    for (name, type_) in TYPES {
        let up = a.copies(SECRET).get_opt(&format!("up-{name}")).await?;
        ensure!(up.is_none(), "a Secret of type {type_} went up");
        for side in [a, b] {
            let down = side.ours(SECRET).get_opt(&format!("down-{name}")).await?;
            ensure!(down.is_none(), "a Secret of type {type_} came down to {}", side.who);
        }
    }
    Ok(())
}

fn token(cell: &Cell, name: &str, type_: &str) -> DynamicObject {
    let mut object = SECRET.object(cell, name, "secret");
    object.data["type"] = json!(type_);
    object.labels_mut().insert(CLAIM_LABEL.to_owned(), cell.name.to_owned());
    let annotations = object.annotations_mut();
    // Without one that exists, Kubernetes deletes it.
    let account = if name.starts_with("up-") { "rider" } else { "default" };
    annotations.insert("kubernetes.io/service-account.name".to_owned(), account.to_owned());
    object
}
