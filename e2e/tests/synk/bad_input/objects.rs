//! Objects that an API server does not take.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    config_map,
    document::{definition, deployment},
    look,
    world::{case, rough},
};

#[test]
fn kinds_that_nobody_serves_fail_and_the_rest_is_applied() -> Result<()> {
    rough("bad-kind", async |case| {
        let kite = json!({"apiVersion": "bad-kind.example/v1", "kind": "Kite", "metadata": {"name": "known"}});
        let unknown = json!({"apiVersion": "bad-kind.example/v1", "kind": "Balloon", "metadata": {"name": "unknown"}});
        let old = json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "old"}});
        let brought = definition("bad-kind.example", "Kite", "kites");
        let set = [unknown, old, kite.clone(), config_map("a", "1"), brought.clone()];
        let says = [
            "balloon.bad-kind.example/unknown",
            "no kind bad-kind.example/v1 Balloon is served",
            "no kind apps/v1beta1 Deployment is served, but apps/v1",
        ];
        case.plan(&set, &[]).await?.expect(1, &says)?;
        case.apply_with(&set, &["--retries=0"]).await?.expect(1, &says)?;
        case.get("bad-kind.example/v1/kites", "known").await?;
        case.get("configmaps", "a").await?;
        let failed = case.sets().await?.pop().context("no version")?["status"].clone();
        ensure!(failed["phase"] == "Failed", "{failed:#}");
        ensure!(look::objects_in(&failed["failed"]).len() == 2, "{failed:#}");

        case.apply(&[kite, config_map("a", "1"), brought]).await?.done()?;
        ensure!(case.whole(2).await? == 3, "not all three");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn an_object_that_cannot_be_stored_fails_and_the_rest_is_applied() -> Result<()> {
    case("bad-large", async |case| {
        // More than etcd takes at once, and less than an API server reads.
        let mut large = deployment("large", "a", 0);
        large["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(1_700_000)]);
        let huge = config_map("huge", &"x".repeat(4 << 20));
        let set = [large, huge, config_map("a", "1")];
        let ran = case.apply_with(&set, &["--retries=0"]).await?;
        let says = [
            "deployment.apps/large",
            "etcdserver: request is too large",
            "configmap/huge",
            "Request entity too large",
        ];
        ran.expect(1, &says)?.without(&["xxxxxxxx"])?;
        // Not tried again as a whole: it would be as large.
        let [large, _, small] = set;
        let ran = case.apply_with(&[large, small], &["--retries=1"]).await?;
        ran.expect(1, &["etcdserver: request is too large"])?
            .without(&["starting over"])?;
        case.get("configmaps", "a").await?;
        case.gone("configmaps", "huge").await?;
        case.apply(&[config_map("a", "1")]).await?.done()?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_definition_that_is_refused_takes_nothing_away() -> Result<()> {
    rough("bad-definition", async |case| {
        let first = [config_map("a", "1"), config_map("b", "1")];
        case.apply(&first).await?.done()?;
        case.whole(1).await?;
        let good = definition("bad-definition.example", "Sail", "sails");
        for (hostile, says) in hostile(&good) {
            let set = [first[0].clone(), config_map("c", "1"), hostile];
            let since = case.now()?;
            case.plan(&set, &[])
                .await?
                .expect(1, &["sails.bad-definition.example", says])?;
            case.wrote_nothing(since)?;
            case.apply_with(&set, &["--retries=0"])
                .await?
                .expect(1, &["sails.bad-definition.example", says])?;
            case.get("configmaps", "b").await?;
            let versions = case.versions().await?;
            ensure!(versions.first() == Some(&1), "{versions:?}");
            let definitions = "apiextensions.k8s.io/v1/customresourcedefinitions";
            let made = case.find_global(definitions, "sails.bad-definition.example").await?;
            ensure!(made.is_none(), "{made:?}");
        }
        case.apply(&first).await?.done()?;
        let version = case.versions().await?.pop().context("no version")?;
        ensure!(case.whole(version).await? == 2, "not both");
        case.gone("configmaps", "c").await?;
        case.delete().await?.done().map(drop)
    })
}

/// Definitions that an API server refuses, and what it says.
fn hostile(good: &Value) -> Vec<(Value, &'static str)> {
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let with = |pointer: &str, value: Value| {
        let mut definition = good.clone();
        *definition.pointer_mut(pointer).expect("it is there") = value;
        definition
    };
    vec![
        (with(schema, json!({"type": "strin"})), "Unsupported value: \"strin\""),
        (with("/spec/versions/0/storage", json!(false)), "storage version"),
    ]
}
