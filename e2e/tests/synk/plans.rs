//! What would be done, before anything is touched.

use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::synk::Ran;
use serde_json::{Value, json};

use crate::{
    case::Case,
    config_map,
    document::{definition, deployment, invalid},
    world::{case, rough},
};

#[test]
fn a_plan_tells_what_becomes_of_each_object_and_touches_nothing() -> Result<()> {
    case("planned", async |case| {
        let first = [
            config_map("same", "1"),
            config_map("changes", "1"),
            config_map("leaves", "1"),
            deployment("web", "a", 1),
        ];
        let since = case.now()?;
        let ran = case.plan(&first, &["-o", "json"]).await?.expect(3, &[])?;
        ensure!(
            decisions(&ran.json()?) == ["changes create", "leaves create", "same create", "web create"],
            "{}",
            ran.stdout
        );
        case.wrote_nothing(since)?;
        ensure!(
            case.versions().await?.is_empty() && case.find("configmaps", "same").await?.is_none(),
            "something was made"
        );
        case.apply(&first).await?.done()?;
        case.plan(&first, &[]).await?.done()?;

        let next = [
            config_map("same", "1"),
            config_map("changes", "2"),
            config_map("new", "1"),
            deployment("web", "b", 1),
        ];
        let since = case.now()?;
        for verb in [&["plan"][..], &["apply", "--dry-run=server"]] {
            let args = [verb, &[case.name, "-n", case.name, "-f", "-", "-o", "json"]].concat();
            let ran = case.synk.run(&args, &crate::list(&next)).await?.expect(3, &[])?;
            let plan = ran.json()?;
            let expect = ["changes change", "new create", "same unchanged", "web recreate"];
            ensure!(decisions(&plan) == expect, "{:?}", decisions(&plan));
            let pruned: Vec<_> = plan["pruned"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|object| &object["name"])
                .collect();
            ensure!(pruned == ["leaves"], "{plan:#}");
        }
        let text = case
            .plan(&next, &[])
            .await?
            .expect(3, &["data.key", "leaves", "prune"])?;
        text.expect(3, &["\"1\"", "\"2\""])?;
        case.wrote_nothing(since)?;
        ensure!(!case.asked(since)?.dry_runs.is_empty(), "the API server was not asked");
        ensure!(case.whole(1).await? == 4, "something was done");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_plan_shows_what_the_api_server_makes_of_a_change() -> Result<()> {
    case("planned-exactly", async |case| {
        let with = |cpu: &str| {
            let mut web = deployment("web", "web", 1);
            web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
            web
        };
        case.apply(&[with("1000m")]).await?.done()?;
        case.plan(&[with("1")], &[]).await?.done()?;
        let ran = case.plan(&[with("1500m")], &["-o", "json"]).await?.expect(3, &[])?;
        let plan = ran.json()?;
        let changes = &plan["objects"][0]["changes"];
        let change = &changes[0];
        ensure!(changes.as_array().is_some_and(|all| all.len() == 1), "{changes:#}");
        ensure!(
            change["path"]
                .as_str()
                .is_some_and(|path| path.ends_with("resources.requests.cpu")),
            "{change:#}"
        );
        ensure!(change["from"] == "1" && change["to"] == "1500m", "{change:#}");
        // What the API server would refuse is told beforehand, the rest as well.
        let since = case.now()?;
        case.plan(&[with("1"), invalid("wrong")], &[])
            .await?
            .expect(1, &["configmap/wrong", "no key"])?;
        case.wrote_nothing(since)?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_plan_holds_for_what_the_set_itself_brings() -> Result<()> {
    rough("planned-kinds", async |case| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "planned-kinds-more"}});
        let mut inside = config_map("inside", "1");
        inside["metadata"]["namespace"] = json!("planned-kinds-more");
        let sail = json!({"apiVersion": "planned.example/v1", "kind": "Sail", "metadata": {"name": "s"}});
        let set = [namespace, inside, definition("planned.example", "Sail", "sails"), sail];
        let flags = ["--allow-namespace", "planned-kinds-more"];
        let since = case.now()?;
        case.plan(&set, &flags)
            .await?
            .expect(3, &["inside", "sails.planned.example"])?;
        case.wrote_nothing(since)?;
        case.apply_with(&set, &flags).await?.done()?;
        ensure!(case.whole(1).await? == 4, "not all four");
        case.plan(&set, &flags).await?.done()?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn what_a_secret_holds_is_told_nowhere() -> Result<()> {
    case("hidden", async |case| {
        let secret = |plain: &str, encoded: &str| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
                "stringData": {"plain": plain}, "data": {"encoded": encoded},
            })
        };
        // Each value, and how it looks in `data`.
        let first = ["squirrel-one", "c3F1aXJyZWwtb25l", "YmFkZ2VyLW9uZQ==", "badger-one"];
        let next = ["squirrel-two", "c3F1aXJyZWwtdHdv", "YmFkZ2VyLXR3bw==", "badger-two"];
        let hidden = [first, next].concat();
        let was = secret(first[0], first[2]);
        let is = secret(next[0], next[2]);
        let loud = ["-o", "json"];
        case.plan(std::slice::from_ref(&was), &loud)
            .await?
            .expect(3, &[])?
            .without(&hidden)?;
        case.apply_with(&[was], &loud).await?.done()?.without(&hidden)?;
        for flags in [&[][..], &loud, &["-o", "yaml"], &["-v"], &["-vvv"]] {
            case.plan(std::slice::from_ref(&is), flags)
                .await?
                .expect(3, &["data.plain"])?
                .without(&hidden)?;
        }
        // Nor where it is wrong.
        let mut wrong = is.clone();
        wrong["data"]["no key"] = json!(next[2]);
        case.plan(&[wrong.clone()], &[])
            .await?
            .expect(1, &["secret/s"])?
            .without(&hidden)?;
        case.apply(&[wrong]).await?.expect(1, &["secret/s"])?.without(&hidden)?;
        let mut undecodable = is.clone();
        undecodable["data"]["encoded"] = json!("squirrel-two!");
        case.apply(&[undecodable])
            .await?
            .expect(1, &["secret/s"])?
            .without(&hidden)?;
        for set in case.sets().await? {
            let text = set.to_string();
            ensure!(!hidden.iter().any(|value| text.contains(value)), "{set:#}");
        }
        // Nor where requests are logged.
        let logged = ["-vvv", "--token", &case.token];
        let quiet = [&hidden[..], &[case.token.as_str()]].concat();
        let ran = case.apply_with(&[is], &logged).await?.expect(0, &["DEBUG"])?;
        only_in_args(&ran, &quiet)?;
        let version = case.versions().await?.pop().context("no version")?;
        case.whole(version).await?;
        let back = [&["rollback", "hidden.v1", "-n", case.name], &logged[..]].concat();
        only_in_args(&case.run(&back).await?.expect(0, &["DEBUG"])?, &quiet)?;
        let delete = [&["delete", case.name], &logged[..]].concat();
        only_in_args(&case.run(&delete).await?.expect(0, &["DEBUG"])?, &quiet)
    })
}

/// That neither output holds any of this. What was typed may.
fn only_in_args(ran: &Ran, texts: &[&str]) -> Result<()> {
    let all = ran.all();
    for text in texts {
        ensure!(!all.contains(text), "{} of {} bytes is told", &text[..4], text.len());
    }
    Ok(())
}

#[test]
fn a_saved_plan_is_applied_as_long_as_it_holds() -> Result<()> {
    case("saved", async |case| {
        let first = [config_map("a", "1"), config_map("b", "1")];
        case.apply(&first).await?.done()?;
        let next = [config_map("a", "2"), config_map("c", "1")];
        let path = saved(case, "good", &next).await?;
        let mode = std::fs::metadata(&path)?.permissions().mode();
        ensure!(mode & 0o777 == 0o600, "{mode:o}");
        case.run(&["apply", case.name, "--plan", &path]).await?.done()?;
        ensure!(case.whole(2).await? == 2, "not both");
        ensure!(case.get("configmaps", "a").await?["data"]["key"] == "2", "not applied");
        case.gone("configmaps", "b").await?;

        // It is done: it does not hold any more.
        let since = case.now()?;
        case.run(&["apply", case.name, "--plan", &path])
            .await?
            .expect(1, &["does not hold"])?;

        // Somebody changed what is there.
        let stale = saved(case, "changed", &[config_map("a", "3"), config_map("c", "1")]).await?;
        let theirs = r#"{"data":{"key":"theirs"}}"#;
        case.kubectl(
            &["patch", "configmap", "c", "-n", case.name, "--type=merge", "-p", theirs],
            "",
        )
        .await?;
        case.run(&["apply", case.name, "--plan", &stale])
            .await?
            .expect(1, &["does not hold", "configmap/c"])?;

        // What is there is another object by that name.
        case.plan(&[config_map("a", "3"), config_map("c", "1")], &[])
            .await?
            .expect(3, &[])?;
        case.wrote_nothing(since)?;
        let stale = saved(case, "other", &[config_map("a", "3"), config_map("c", "1")]).await?;
        case.kubectl(&["delete", "configmap", "c", "-n", case.name], "").await?;
        let mut other = config_map("c", "theirs");
        other["metadata"]["namespace"] = json!(case.name);
        case.plane.apply(&other.to_string()).await?;
        case.run(&["apply", case.name, "--plan", &stale])
            .await?
            .expect(1, &["does not hold", "configmap/c"])?;

        // The set has another version.
        let stale = saved(case, "version", &[config_map("a", "4"), config_map("c", "1")]).await?;
        case.apply(&[config_map("a", "3"), config_map("c", "1")])
            .await?
            .done()?;
        let since = case.now()?;
        case.run(&["apply", case.name, "--plan", &stale])
            .await?
            .expect(1, &["does not hold"])?;
        case.wrote_nothing(since)?;
        ensure!(
            case.get("configmaps", "a").await?["data"]["key"] == "3",
            "it was applied"
        );

        // No plan at all.
        let broken = case.file("broken.plan", "{\"kind\": \"Plan\"")?.display().to_string();
        case.run(&["apply", case.name, "--plan", &broken])
            .await?
            .expect(1, &["cannot be read"])?;
        case.delete().await?.done().map(drop)
    })
}

/// Saves a plan that has something to do.
async fn saved(case: &Case, name: &str, manifests: &[Value]) -> Result<String> {
    let path = case.plane.workdir().path().join(format!("{}-{name}.plan", case.name));
    let path = path.to_str().context("a path in UTF-8")?.to_owned();
    case.plan(manifests, &["--out", &path]).await?.expect(3, &[])?;
    Ok(path)
}

/// Name and decision of each object.
fn decisions(plan: &Value) -> Vec<String> {
    let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_lowercase();
    let objects = plan["objects"].as_array().into_iter().flatten();
    objects
        .map(|object| format!("{} {}", text(object, "name"), text(object, "decision")))
        .collect()
}
