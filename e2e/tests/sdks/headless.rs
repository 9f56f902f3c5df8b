//! Each SDK binds on real control planes, and what it renders is all that the consumer needs.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Consumer, Provider, lease, remains, run,
    wildwest::{self, Cowboys},
};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::runners::{self, RunnerProgram};

/// One provider and one consumer serve all SDKs, one after the other: each binds, syncs one object, and leaves nothing.
#[test]
fn every_sdk_binds_headless() -> Result<()> {
    run(async {
        let _alone = crate::ALONE.lock().await;
        let programs = tokio::task::spawn_blocking(runners::all);
        let (provider, consumer) = tokio::try_join!(
            Provider::start_with("sdks-p", &lease::PATIENT),
            Consumer::start_with("sdks-c", &lease::PATIENT)
        )?;
        let token = provider.principal("team", &["cowboys"]).await?;
        wildwest::namespace(consumer.plane.client(), "wild-west").await?;
        let cowboys = Cowboys::of(&provider, &consumer, "wild-west").await?;
        let client = json!({
            "address": provider.address(), "caFile": provider.ca_path(), "token": { "file": token },
        });
        let scratch = tempfile::tempdir()?;
        for program in programs.await?? {
            let manifests = bind(&program, scratch.path(), &client, &consumer.identity().await?)
                .await
                .with_context(|| format!("SDK {}", program.name))?;
            consumer
                .plane
                .apply(&manifests.lines().collect::<Vec<_>>().join("\n---\n"))
                .await?;
            // Only then is the API served here.
            let ready = [
                "wait",
                "apiservicebinding/cowboys",
                "--for=condition=Ready",
                "--timeout=2m",
            ];
            consumer.plane.kubectl(&ready).await?;
            cowboys.create(program.name, "rob a train").await?;
            cowboys.copied(program.name, "rob a train").await?;
            cowboys.ours.delete(program.name, &DeleteParams::default()).await?;
            cowboys.gone(program.name).await?;
            consumer
                .bind(&provider, &token, &["unbind", "cowboys", "--delete-objects"])
                .await?;
            remains::none(&provider, &consumer, "cowboys", "wildwest.dev").await?;
            writeln!(
                io::stderr().lock(),
                "{} has bound, synced and left nothing",
                program.name
            )?;
        }
        Ok(())
    })
}

/// Binds template `cowboys`, and returns the manifests that the SDK makes of the answer.
async fn bind(program: &RunnerProgram, folder: &std::path::Path, client: &Value, identity: &str) -> Result<String> {
    let runner = program.start(folder)?;
    let wish = json!({ "bind": { "template": "cowboys", "identity": identity } });
    let bound = runner
        .ask("bind", &json!({ "id": "bind", "client": client, "action": wish }))
        .await?;
    ensure!(bound.get("error").is_none_or(Value::is_null), "{}", bound["error"]);
    let input = json!({ "response": bound["ok"]["response"], "options": { "name": "cowboys", "template": "cowboys" } });
    let made = json!({ "id": "manifests", "client": client, "action": { "manifests": input } });
    let made = runner.ask("manifests", &made).await?;
    let text = made["ok"]
        .as_str()
        .with_context(|| format!("no manifests: {}", made["error"]))?;
    Ok(text.to_owned())
}
