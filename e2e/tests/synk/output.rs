//! What the command says, to people and to programs, and how it ends.

use std::{fs::File, io::Read as _};

use anyhow::{Context as _, Result, ensure};
use nix::pty::{Winsize, openpty};
use serde_json::Value;
use tokio::{process, time::timeout};

use crate::{
    case::{Case, SOON},
    config_map,
    document::invalid,
    list,
    world::case,
};

const ESCAPE: &str = "\u{1b}";
const API_VERSION: &str = "synk.cloudrobotics.com/v1";

#[test]
fn where_no_terminal_is_each_object_has_a_plain_line() -> Result<()> {
    case("lines", async |case| {
        let ran = case
            .apply(&[config_map("a", "1"), config_map("b", "1")])
            .await?
            .done()?;
        let lines: Vec<_> = ran.stderr.lines().collect();
        for name in ["a", "b"] {
            let line = format!("configmap/{name} created");
            ensure!(lines.contains(&line.as_str()), "no {line:?} in {:?}", ran.stderr);
        }
        ensure!(
            ran.stdout.starts_with("lines.v1 ") && ran.stdout.contains("2 created"),
            "{}",
            ran.stdout
        );
        ran.without(&[ESCAPE, "\r"])?;
        let quiet = case
            .apply_with(&[config_map("a", "2"), config_map("b", "1")], &["--quiet"])
            .await?
            .done()?;
        ensure!(quiet.stderr.is_empty(), "{}", quiet.stderr);
        case.plan(&[config_map("a", "3"), config_map("b", "1")], &[])
            .await?
            .expect(3, &[])?
            .without(&[ESCAPE])?;
        case.delete().await?.done()?.without(&[ESCAPE]).map(drop)
    })
}

#[test]
fn on_a_terminal_a_bar_shows_how_far_it_is() -> Result<()> {
    case("bar", async |case| {
        let set: Vec<_> = (0..40)
            .map(|number| config_map(&format!("map-{number}"), "1"))
            .collect();
        let file = case.file("bar.json", &list(&set))?.display().to_string();
        let seen = on_terminal(case, &["apply", case.name, "-n", case.name, "-f", &file], 0).await?;
        ensure!(seen.contains("/40") && seen.contains(ESCAPE), "no bar in {seen:?}");
        ensure!(seen.contains("40 created"), "{seen:?}");
        let next = case.file("bar.json", &list(&[&set[..39], &[config_map("map-39", "2")]].concat()))?;
        let next = next.display().to_string();
        let seen = on_terminal(case, &["plan", case.name, "-n", case.name, "-f", &next], 3).await?;
        ensure!(seen.contains("\u{1b}[33m~"), "no colour in {seen:?}");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn programs_get_one_document_whatever_happens() -> Result<()> {
    case("documents", async |case| {
        let json = ["-o", "json"];
        let two = [config_map("a", "1"), config_map("b", "1")];
        let plan = case.plan(&two, &json).await?.expect(3, &[])?.json()?;
        ensure!(
            plan["kind"] == "PlanReport" && plan["summary"]["create"] == 2,
            "{plan:#}"
        );
        let report = case.apply_with(&two, &json).await?.done()?.json()?;
        ensure!(
            report["kind"] == "ApplyReport" && report["version"] == "documents.v1",
            "{report:#}"
        );
        ensure!(
            report["changed"] == true && report["summary"]["created"] == 2,
            "{report:#}"
        );
        let live = case.get("configmaps", "a").await?;
        let first = &report["objects"][0];
        ensure!(first["name"] == "a" && first["action"] == "Create", "{first:#}");
        ensure!(first["uid"] == live["metadata"]["uid"], "{first:#}");
        let report = case.apply_with(&two, &json).await?.done()?.json()?;
        ensure!(
            report["changed"] == false && report["summary"]["unchanged"] == 2,
            "{report:#}"
        );

        // What fails is in the same document as what went well.
        let some = [config_map("a", "2"), config_map("b", "1"), invalid("wrong")];
        let report = case.apply_with(&some, &json).await?.expect(1, &[])?.json()?;
        ensure!(
            report["error"]["reason"] == "Incomplete" && report["summary"]["failed"] == 1,
            "{report:#}"
        );
        let refused = case.apply_with(&[], &json).await?.expect(1, &[])?.json()?;
        failed(&refused, "Refused")?;
        let broken = case.apply_text("a: [", &json).await?.expect(1, &[])?.json()?;
        failed(&broken, "InvalidInput")?;
        let unknown = case
            .run(&["delete", "documents-none", "-o", "json"])
            .await?
            .expect(1, &[])?
            .json()?;
        failed(&unknown, "NotFound")?;
        let usage = case.run(&["apply", "-o", "json"]).await?.expect(2, &[])?.json()?;
        failed(&usage, "Usage")?;

        case.apply(&two).await?.done()?;
        for (args, kind) in [
            (&["status", case.name][..], "Status"),
            (&["status"], "SetList"),
            (&["history", case.name], "History"),
            (&["init"], "InitReport"),
            (&["version"], "VersionReport"),
            (&["delete", case.name], "DeleteReport"),
        ] {
            let args = [args, &["-o", "yaml"]].concat();
            let ran = case.run(&args).await?.done()?;
            let document: Value = serde_saphyr::from_str(&ran.stdout).with_context(|| ran.all())?;
            ensure!(document["kind"] == kind, "{document:#}");
            ensure!(document["apiVersion"] == API_VERSION, "{document:#}");
        }
        Ok(())
    })
}

#[test]
fn no_more_is_written_at_once_than_is_said() -> Result<()> {
    case("at-once", async |case| {
        let (gate, synk) = case.gated().await?;
        let apply = async |value: &str, flags: &[&str]| {
            let set: Vec<_> = (0..120)
                .map(|number| config_map(&format!("map-{number}"), value))
                .collect();
            let args = [&["apply", case.name, "-n", case.name, "-f", "-"], flags].concat();
            synk.run(&args, &list(&set)).await?.done()?;
            anyhow::Ok(gate.most_at_once())
        };
        // One request more may renew the Lease.
        let few = apply("1", &["--concurrency=3"]).await?;
        ensure!((2..=4).contains(&few), "{few} at once instead of 3");
        let more = apply("2", &[]).await?;
        ensure!((few + 1..=17).contains(&more), "{more} at once instead of 16");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn an_api_server_that_does_not_answer_is_named() -> Result<()> {
    case("no-answer", async |case| {
        let (proxy, synk) = case.proxied().await?;
        proxy.block();
        let address = format!("https://{}", proxy.address());
        synk.run(&["status"], "").await?.expect(1, &[&address, "--context"])?;
        let set = list(&[config_map("a", "1")]);
        let apply = [
            "apply",
            case.name,
            "-n",
            case.name,
            "-f",
            "-",
            "--retries=0",
            "-o",
            "json",
        ];
        let ran = synk.run(&apply, &set).await?.expect(1, &[&address])?;
        failed(&ran.json()?, "ApiError")?;
        // With a path and a password, which are nobody's business.
        let given = address.replace("https://", "https://ann:open-sesame@") + "/cluster";
        let ran = synk.run(&["status", "--server", &given], "").await?;
        ran.expect(1, &[&address])?.without(&["open-sesame"]).map(drop)
    })
}

#[test]
fn a_set_is_not_looked_for_where_it_is_not() -> Result<()> {
    case("elsewhere", async |case| {
        case.apply(&[config_map("a", "1")]).await?.done()?;
        for command in [
            &["delete", case.name][..],
            &["status", case.name],
            &["history", case.name],
            &["rollback", "elsewhere.v1"],
        ] {
            let args = [command, &["-n", "default", "-o", "json"]].concat();
            let ran = case
                .run(&args)
                .await?
                .expect(1, &["set elsewhere is in namespace elsewhere"])?;
            failed(&ran.json()?, "OtherNamespace")?;
        }
        ensure!(case.whole(1).await? == 1, "it is not what it was");
        for unknown in [
            &["history", "elsewhere-none", "-n", case.name][..],
            &["history", "elsewhere-none"],
        ] {
            case.run(unknown)
                .await?
                .expect(1, &["there is no set elsewhere-none"])?;
        }
        case.delete().await?.done().map(drop)
    })
}

/// That a document says of a failure which has no other result.
#[track_caller]
fn failed(document: &Value, reason: &str) -> Result<()> {
    ensure!(document["apiVersion"] == API_VERSION, "{document:#}");
    ensure!(document["kind"] == "Failure", "{document:#}");
    ensure!(document["error"]["reason"] == reason, "{document:#}");
    Ok(())
}

/// What is seen on a terminal.
async fn on_terminal(case: &Case, args: &[&str], code: i32) -> Result<String> {
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(Some(&size), None)?;
    let mut synk = case.synk.command(args)?;
    synk.env("TERM", "xterm").env_remove("NO_COLOR");
    synk.stdin(terminal.slave.try_clone()?);
    synk.stdout(terminal.slave.try_clone()?).stderr(terminal.slave);
    let mut command = process::Command::from(synk);
    let mut process = command.kill_on_drop(true).spawn()?;
    // The terminal ends when nobody has it open but its reader.
    drop(command);
    let reader = tokio::task::spawn_blocking(move || {
        let mut seen = Vec::new();
        // That the other end is closed shows as an error.
        let _ = File::from(terminal.master).read_to_end(&mut seen);
        seen
    });
    let status = timeout(SOON, process.wait()).await.context("it does not end")??;
    let seen = String::from_utf8_lossy(&reader.await?).into_owned();
    ensure!(status.code() == Some(code), "{status}: {seen}");
    Ok(seen)
}
