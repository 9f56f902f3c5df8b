//! What an apply does, sentence by sentence.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::synk::Synk;
use serde_json::{Value, json};

use crate::{
    config_map, list, look,
    world::{case, rough},
};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

#[test]
fn namespaces_are_filled_in_where_objects_have_one() -> Result<()> {
    case("filled-in", async |case| {
        let role = |kind: &str| {
            let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
            json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": "filled-in"}, "rules": rules})
        };
        let mut named = config_map("named", "1");
        named["metadata"]["namespace"] = json!(case.name);
        case.apply(&[config_map("plain", "1"), named, role("Role"), role("ClusterRole")])
            .await?
            .done()?;
        ensure!(case.whole(1).await? == 4, "not all four");
        case.get("configmaps", "plain").await?;
        case.get("configmaps", "named").await?;
        case.get(&format!("{RBAC}/roles"), "filled-in").await?;
        case.find_global(&format!("{RBAC}/clusterroles"), "filled-in")
            .await?
            .context("no ClusterRole")?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn another_namespace_is_refused_and_kube_system_is_not() -> Result<()> {
    case("foreign", async |case| {
        let placed = |name: &str, namespace: &str| {
            let mut object = config_map(name, "1");
            object["metadata"]["namespace"] = json!(namespace);
            object
        };
        let system = placed("foreign-system", "kube-system");
        let foreign = placed("foreign-default", "default");
        let both = [config_map("own", "1"), system.clone(), foreign];
        let since = case.now()?;
        case.apply(&both).await?.expect(1, &["foreign-default", "default"])?;
        case.wrote_nothing(since)?;
        ensure!(case.versions().await?.is_empty(), "a version was made");

        case.apply(&[config_map("own", "1"), system]).await?.done()?;
        ensure!(case.whole(1).await? == 2, "not both");
        case.apply_with(&both, &["--allow-namespace", "default"])
            .await?
            .done()?;
        ensure!(case.whole(2).await? == 3, "not all three");
        case.delete().await?.done()?;
        let elsewhere = [
            "kube-system/configmaps/foreign-system",
            "default/configmaps/foreign-default",
        ];
        case.nothing_left(&elsewhere.map(|path| format!("/api/v1/namespaces/{path}")))
            .await
    })
}

#[test]
fn a_version_lists_what_it_holds_and_what_became_of_it() -> Result<()> {
    case("versions", async |case| {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
        let deployment = deployment("web", "web", 1);
        let set = [
            config_map("b", "1"),
            deployment.clone(),
            account.clone(),
            config_map("a", "1"),
        ];
        case.apply(&set).await?.done()?;
        case.whole(1).await?;
        let first = case.settled(1).await?;
        ensure!(first["metadata"]["name"] == "versions.v1", "{first:#}");
        ensure!(first["metadata"]["labels"] == json!({"name": "versions"}), "{first:#}");
        let item = |name: &str| json!({"namespace": "versions", "name": name});
        let expect = json!([
            {"version": "v1", "kind": "ServiceAccount", "items": [item("robot")]},
            {"version": "v1", "kind": "ConfigMap", "items": [item("a"), item("b")]},
            {"group": "apps", "version": "v1", "kind": "Deployment", "items": [item("web")]},
        ]);
        ensure!(first["spec"]["resources"] == expect, "{:#}", first["spec"]);
        let status = &first["status"];
        ensure!(
            status["startedAt"].is_string() && status["finishedAt"].is_string(),
            "{status:#}"
        );
        ensure!(
            actions(&first) == ["robot Create", "a Create", "b Create", "web Create"],
            "{status:#}"
        );
        let live = case.get("apps/v1/deployments", "web").await?;
        let recorded = look::objects_in(&status["applied"]).pop().unwrap_or_default();
        ensure!(
            recorded["uid"] == live["metadata"]["uid"] && recorded["generation"] == 1,
            "{recorded:#}"
        );

        let mut deployment = deployment;
        deployment["spec"]["replicas"] = json!(2);
        let set = [deployment, account, config_map("a", "2"), config_map("c", "1")];
        case.apply(&set).await?.done()?;
        case.whole(2).await?;
        let second = case.settled(2).await?;
        let expect = ["robot None", "a Update", "c Create", "web Update"];
        ensure!(actions(&second) == expect, "{:#}", second["status"]);
        let recorded = look::objects_in(&second["status"]["applied"]).pop().unwrap_or_default();
        ensure!(recorded["generation"] == 2, "{recorded:#}");
        case.gone("configmaps", "b").await?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn definitions_are_applied_first_and_waited_for() -> Result<()> {
    rough("definitions", async |case| {
        let boat = json!({"apiVersion": "definitions.example/v1", "kind": "Boat", "metadata": {"name": "one"}, "spec": {"sails": 3}});
        let since = case.now()?;
        case.apply(&[
            boat.clone(),
            config_map("early", "1"),
            definition("definitions.example", "Boat", "boats"),
        ])
        .await?
        .done()?;
        ensure!(case.whole(1).await? == 3, "not all three");
        case.get("definitions.example/v1/boats", "one").await?;
        let asks = case.asked(since)?;
        let writes: Vec<_> = asks
            .writes
            .iter()
            .filter(|asked| is_object(asked))
            .map(|asked| asked.resource.as_str())
            .collect();
        ensure!(writes.first() == Some(&"customresourcedefinitions"), "{writes:?}");
        ensure!(writes.len() == 3, "{writes:?}");

        // Out of the set, the definition stays, and so does what others have of its kind.
        let others = json!({"apiVersion": "definitions.example/v1", "kind": "Boat", "metadata": {"name": "others", "namespace": "default"}});
        case.plane.apply(&others.to_string()).await?;
        case.apply(&[config_map("early", "1"), config_map("late", "1")])
            .await?
            .done()?;
        case.whole(2).await?;
        case.gone("definitions.example/v1/boats", "one").await?;
        let definitions = "apiextensions.k8s.io/v1/customresourcedefinitions";
        let stays = case
            .find_global(definitions, "boats.definitions.example")
            .await?
            .context("the CRD is gone")?;
        ensure!(
            stays["metadata"]["deletionTimestamp"].is_null() && stays["metadata"]["ownerReferences"].is_null(),
            "{stays:#}"
        );
        ensure!(
            case.read("/apis/definitions.example/v1/namespaces/default/boats/others")
                .await?
                .is_some(),
            "theirs is gone"
        );
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn objects_are_written_in_the_order_of_the_wire() -> Result<()> {
    case("order", async |case| {
        let of = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        let mut foreign = of("ServiceAccount", "z");
        foreign["metadata"]["namespace"] = json!("order-more");
        let set = [
            deployment("web", "web", 1),
            config_map("a", "1"),
            of("Secret", "b"),
            of("ServiceAccount", "y"),
            foreign,
            of("Namespace", "order-more"),
        ];
        let since = case.now()?;
        case.apply_with(&set, &["--allow-namespace", "order-more"])
            .await?
            .done()?;
        let asks = case.asked(since)?;
        let order: Vec<_> = asks
            .writes
            .iter()
            .filter(|asked| is_object(asked))
            .map(|asked| asked.resource.as_str())
            .collect();
        let expect = ["namespaces", "serviceaccounts", "serviceaccounts", "secrets"];
        ensure!(order.starts_with(&expect) && order.len() == 6, "{order:?}");
        // The version is there before what it owns, and it is told last how it went.
        let sets: Vec<_> = asks
            .writes
            .iter()
            .map(|asked| asked.resource == "resourcesets")
            .collect();
        let first = sets.iter().position(|is_set| *is_set).context("no version was made")?;
        let object = asks
            .writes
            .iter()
            .position(is_object)
            .context("no object was written")?;
        let last = sets.iter().rposition(|is_set| *is_set).unwrap_or_default();
        let last_object = asks.writes.iter().rposition(is_object).unwrap_or_default();
        ensure!(first < object && last > last_object, "{:#?}", asks.writes);
        case.whole(1).await?;
        case.delete().await?.done()?;
        case.gone_from("/api/v1/namespaces/order-more").await
    })
}

#[test]
fn a_set_is_deleted_by_name_and_a_version_by_its() -> Result<()> {
    case("deleted", async |case| {
        let set = [config_map("a", "1"), config_map("b", "1")];
        case.apply(&set).await?.done()?;
        case.apply(&[config_map("a", "2"), config_map("b", "1")])
            .await?
            .done()?;
        case.settles(2).await?;
        case.run(&["delete", "deleted.v7"]).await?.expect(1, &["deleted.v7"])?;
        case.run(&["delete", "deleted.v7", "--ignore-not-found"])
            .await?
            .done()?;
        case.run(&["delete", "deleted.v2"]).await?.done()?;
        let paths = ["a", "b"].map(|name| format!("{}/{name}", look::path("configmaps", Some(case.name))));
        case.nothing_left(&paths).await?;
        case.delete().await?.expect(1, &["deleted"])?;
        case.run(&["delete", case.name, "--ignore-not-found"]).await?.done()?;

        // The number begins anew when there is nothing to continue.
        case.apply(&set).await?.done()?;
        case.whole(1).await?;
        case.delete().await?.done()?;
        for path in &paths {
            ensure!(case.read(path).await?.is_none(), "{path} outlived the command");
        }
        case.nothing_left(&paths).await
    })
}

#[test]
fn an_older_version_is_deleted_with_what_it_alone_owns() -> Result<()> {
    case("one-version", async |case| {
        case.apply(&[config_map("a", "1"), config_map("b", "1"), config_map("c", "1")])
            .await?
            .done()?;
        // `b` is left behind with the first version, for the second fails.
        let second = [
            config_map("a", "2"),
            config_map("c", "1"),
            config_map("not", "1"),
            invalid("wrong"),
        ];
        case.apply(&second).await?.expect(1, &["wrong"])?;
        ensure!(case.versions().await? == [1, 2], "{:?}", case.versions().await?);
        case.run(&["delete", "one-version.v1"]).await?.done()?;
        case.gone("configmaps", "b").await?;
        case.get("configmaps", "a").await?;
        ensure!(case.versions().await? == [2], "{:?}", case.versions().await?);
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn init_is_done_once() -> Result<()> {
    case("init", async |case| {
        let since = case.now()?;
        case.run(&["init"]).await?.done()?;
        case.wrote_nothing(since)?;
        let definition = case
            .find_global(
                "apiextensions.k8s.io/v1/customresourcedefinitions",
                "resourcesets.apps.cloudrobotics.com",
            )
            .await?;
        let definition = definition.context("no definition")?;
        ensure!(definition["spec"]["scope"] == "Cluster", "{definition:#}");
        let version = &definition["spec"]["versions"][0];
        ensure!(
            version["name"] == "v1alpha1" && version["subresources"]["status"].is_null(),
            "{version:#}"
        );
        Ok(())
    })
}

#[test]
fn manifests_come_from_files_folders_streams_and_lists() -> Result<()> {
    case("inputs", async |case| {
        let folder = case.plane.workdir().path().join("inputs");
        std::fs::create_dir_all(&folder)?;
        let yaml = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        std::fs::write(
            folder.join("a.yaml"),
            format!("{}---\n# nothing\n---\n{}", yaml("one"), yaml("two")),
        )?;
        std::fs::write(
            folder.join("b.json"),
            list(&[config_map("three", "1"), config_map("four", "1")]),
        )?;
        std::fs::write(folder.join("notes.txt"), "no manifest")?;
        let single = case.file("single.yml", &yaml("five"))?;
        let arg = |path: &std::path::Path| path.display().to_string();
        let args = [
            "apply",
            case.name,
            "-n",
            case.name,
            "-f",
            &arg(&folder),
            "-f",
            &arg(&single),
            "-f",
            "-",
        ];
        let both = format!("{}{}", config_map("six", "1"), config_map("seven", "1"));
        case.synk.run(&args, &both).await?.done()?;
        ensure!(case.whole(1).await? == 7, "not all seven");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn wrong_usage_and_wrong_credentials_are_told_apart() -> Result<()> {
    case("usage", async |case| {
        case.run(&["apply"]).await?.expect(2, &[])?;
        case.run(&["apply", "Not_A_Name", "-n", "usage", "-f", "-"])
            .await?
            .expect(2, &["Not_A_Name"])?;
        case.run(&["no-such-command"]).await?.expect(2, &[])?;
        let nobody = case.plane.token_kubeconfig("default", "not-a-token").to_yaml()?;
        let nobody = Synk::new(case.file("nobody.kubeconfig", &nobody)?);
        let args = ["apply", case.name, "-n", case.name, "-f", "-", "--retries=0"];
        nobody
            .run(&args, &list(&[config_map("a", "1")]))
            .await?
            .expect(1, &[])?
            .without(&["not-a-token"])?;
        Ok(())
    })
}

/// A Deployment that selects and runs one label.
pub(crate) fn deployment(name: &str, label: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": label}},
            "template": {
                "metadata": {"labels": {"app": label}},
                "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
            },
        },
    })
}

/// A definition of a namespaced kind that takes everything.
pub(crate) fn definition(group: &str, kind: &str, plural: &str) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open}}],
        },
    })
}

/// A ConfigMap that an API server refuses.
pub(crate) fn invalid(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"no key": "1"}})
}

/// Name and action of each object that was applied.
pub(crate) fn actions(set: &Value) -> Vec<String> {
    let applied = look::objects_in(&set["status"]["applied"]);
    let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    applied
        .iter()
        .map(|object| format!("{} {}", text(object, "name"), text(object, "action")))
        .collect()
}

/// Whether it is a write of an object of the set, and not of what keeps the set together.
fn is_object(asked: &bindery_e2e::Asked) -> bool {
    let keeps = ["resourcesets", "leases"].contains(&asked.resource.as_str());
    let is_history = asked.resource == "secrets" && (asked.name.is_empty() || asked.name.starts_with("synk-"));
    !keeps && !is_history
}
