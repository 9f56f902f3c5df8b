//! Clusters that cannot be reached, or that have no place for a set.

use std::net::TcpListener;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{eventually, synk::Synk};
use serde_json::json;

use crate::{
    case::{Case, SOON},
    config_map, list,
    world::case,
};

#[test]
fn a_namespace_that_is_not_there_is_told() -> Result<()> {
    case("bad-namespace", async |case| {
        let since = case.now()?;
        let args = ["apply", case.name, "-n", "bad-nowhere", "-f", "-", "--retries=0"];
        let input = list(&[config_map("a", "1")]);
        let says = ["no namespace bad-nowhere", "create it, or add it to the set"];
        case.synk.run(&args, &input).await?.expect(1, &says)?;
        let json = [&args[..], &["-o", "json"]].concat();
        let ran = case.synk.run(&json, &input).await?.expect(1, &[])?;
        ensure!(ran.json()?["error"]["reason"] == "NamespaceNotFound", "{}", ran.all());
        ensure!(case.versions().await?.is_empty(), "a version was made");
        let made = case
            .asked(since)?
            .writes
            .into_iter()
            .filter(|asked| asked.resource != "leases");
        ensure!(made.count() == 0, "something was written");
        Ok(())
    })
}

#[test]
fn a_namespace_that_is_going_is_waited_for() -> Result<()> {
    case("bad-going", async |case| {
        let mut held = config_map("held", "1");
        held["metadata"]["finalizers"] = json!(["e2e.example/held"]);
        held["metadata"]["namespace"] = json!(case.name);
        case.plane.apply(&held.to_string()).await?;
        case.kubectl(&["delete", "namespace", case.name, "--wait=false"], "")
            .await?;
        eventually("the namespace to be going", SOON, async || {
            let namespace = case.find_global("namespaces", case.name).await?.context("it is gone")?;
            Ok((namespace["status"]["phase"] == "Terminating").then_some(()))
        })
        .await?;

        let set = [config_map("a", "1")];
        case.apply_with(&set, &["--retries=0"])
            .await?
            .expect(1, &["namespace bad-going is being deleted"])?;
        ensure!(case.versions().await?.is_empty(), "a version was made");

        let mut run = case.start_apply(&case.synk, &set, &["--retries=30"])?;
        run.wait_for_line("starting over", SOON).await?;
        let release = [
            "patch",
            "configmap",
            "held",
            "-n",
            case.name,
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ];
        case.kubectl(&release, "").await?;
        made_again(case).await?;
        let status = run.wait(SOON).await?;
        run.hush();
        ensure!(status.success(), "{status}: {}", run.log());
        ensure!(case.whole(1).await? == 1, "not there");
        case.gone("configmaps", "held").await?;
        case.delete().await?.done().map(drop)
    })
}

/// Makes the namespace of a case as soon as it can be made again.
async fn made_again(case: &Case) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.name}});
    eventually("the namespace to be gone", SOON, async || {
        Ok(case.find_global("namespaces", case.name).await?.is_none().then_some(()))
    })
    .await?;
    case.plane.apply(&namespace.to_string()).await
}

#[test]
fn an_api_server_that_is_not_there_is_told() -> Result<()> {
    case("bad-server", async |case| {
        // Whoever had the port is gone.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let synk = case.through(&format!("https://127.0.0.1:{port}"))?;
        let input = list(&[config_map("a", "1")]);
        for args in [
            &["apply", case.name, "-n", case.name, "-f", "-", "--retries=0"][..],
            &["plan", case.name, "-n", case.name, "-f", "-"],
            &["delete", case.name],
            &["status"],
            &["init"],
        ] {
            synk.run(args, &input).await?.expect(1, &["refused"])?;
        }
        Ok(())
    })
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_told() -> Result<()> {
    case("bad-kubeconfig", async |case| {
        let whole = case.plane.token_kubeconfig("default", "hunter2").to_yaml()?;
        let broken = [
            ("unparsable", "users: [{user: {token: hunter2".to_owned()),
            ("empty", String::new()),
            ("no-context", whole.replace("current-context:", "other-context:")),
        ];
        let input = list(&[config_map("a", "1")]);
        for (name, content) in broken {
            let path = case.file(&format!("{name}.kubeconfig"), &content)?;
            let args = ["apply", case.name, "-n", case.name, "-f", "-", "--retries=0"];
            let ran = Synk::new(&path).run(&args, &input).await?;
            ran.expect(1, &["kubeconfig"])?.without(&["hunter2"])?;
        }
        let nowhere = Synk::new("/no/such/kubeconfig").run(&["status"], "").await?;
        nowhere.expect(1, &["/no/such/kubeconfig"])?;
        Ok(())
    })
}
