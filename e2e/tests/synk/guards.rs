//! What is refused unless it is said to be meant.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::remains::COLLECTED;
use serde_json::{Value, json};

use crate::{case::SOON, config_map, list, look, world::case};

#[test]
fn an_empty_set_is_refused() -> Result<()> {
    case("empty", async |case| {
        let since = case.now()?;
        case.apply(&[]).await?.expect(1, &["--allow-prune"])?;
        case.apply_text("", &[]).await?.expect(1, &["--allow-prune"])?;
        case.apply_text("---\n# nothing\n---\n", &[])
            .await?
            .expect(1, &["--allow-prune"])?;
        case.wrote_nothing(since)?;

        case.apply(&[config_map("a", "1"), config_map("b", "1")])
            .await?
            .done()?;
        let since = case.now()?;
        case.apply_text("", &[]).await?.expect(1, &["--allow-prune", "2"])?;
        case.plan(&[], &[]).await?.expect(1, &["--allow-prune"])?;
        case.wrote_nothing(since)?;
        ensure!(case.whole(1).await? == 2, "not both");

        case.apply_text("", &["--allow-prune"]).await?.done()?;
        case.gone("configmaps", "a").await?;
        case.gone("configmaps", "b").await?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_set_that_shrinks_by_more_than_half_is_refused() -> Result<()> {
    case("shrinks", async |case| {
        let maps = |count: usize| {
            (0..count)
                .map(|n| config_map(&format!("m{n}"), "1"))
                .collect::<Vec<_>>()
        };
        case.apply(&maps(8)).await?.done()?;
        case.whole(1).await?;
        let since = case.now()?;
        case.apply(&maps(3))
            .await?
            .expect(1, &["5 of the 8", "--allow-prune"])?;
        case.wrote_nothing(since)?;
        // Half of them may go.
        case.apply(&maps(4)).await?.done()?;
        ensure!(case.whole(2).await? == 4, "not four");
        case.apply_with(&maps(1), &["--allow-prune"]).await?.done()?;
        ensure!(case.whole(3).await? == 1, "not one");
        // So is a rollback.
        case.apply_with(&maps(8), &[]).await?.done()?;
        case.whole(4).await?;
        let back = ["rollback", "shrinks.v3"];
        case.run(&back).await?.expect(1, &["7 of the 8", "--allow-prune"])?;
        case.run(&[&back[..], &["--allow-prune"]].concat()).await?.done()?;
        ensure!(case.whole(5).await? == 1, "not one");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn an_object_of_another_set_is_refused() -> Result<()> {
    case("theirs", async |case| {
        case.apply(&[config_map("shared", "1"), config_map("own", "1")])
            .await?
            .done()?;
        let other = ["apply", "theirs-other", "-n", case.name, "-f", "-"];
        let input = crate::list(&[config_map("shared", "2"), config_map("more", "1")]);
        let since = case.now()?;
        let refused = case.synk.run(&other, &input).await?;
        refused.expect(1, &["configmap/shared", "theirs.v1", "--take-over"])?;
        case.wrote_nothing(since)?;
        let takes = [&other[..], &["--take-over"]].concat();
        case.synk.run(&takes, &input).await?.done()?;
        let live = case.get("configmaps", "shared").await?;
        let set = case.sets_of("theirs-other").await?.pop().context("no version")?;
        ensure!(
            live["metadata"]["ownerReferences"] == json!([look::owner(&set)]),
            "{live:#}"
        );
        ensure!(live["data"]["key"] == "2", "{live:#}");

        // The first set lost it, and does not take it with it.
        case.apply(&[config_map("shared", "1"), config_map("own", "1")])
            .await?
            .expect(1, &["configmap/shared", "theirs-other.v1"])?;
        case.delete().await?.done()?;
        case.gone("configmaps", "own").await?;
        case.get("configmaps", "shared").await?;
        case.run(&["delete", "theirs-other"]).await?.done()?;
        case.gone("configmaps", "shared").await
    })
}

#[test]
fn an_object_of_a_newer_version_is_refused() -> Result<()> {
    case("newer", async |case| {
        case.apply(&[config_map("a", "1"), config_map("b", "1")])
            .await?
            .done()?;
        // A version that nobody finds by its label, as one that is made at this moment.
        let newer = json!({"apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet", "metadata": {"name": "newer.v9"}});
        case.plane.apply(&newer.to_string()).await?;
        let path = "apps.cloudrobotics.com/v1alpha1/resourcesets";
        let newer = case.find_global(path, "newer.v9").await?.context("not made")?;
        let owner = json!({"metadata": {"ownerReferences": [look::owner(&newer)]}}).to_string();
        case.kubectl(
            &["patch", "configmap", "a", "-n", case.name, "--type=merge", "-p", &owner],
            "",
        )
        .await?;
        let next = [config_map("a", "2"), config_map("b", "1")];
        let since = case.now()?;
        case.apply(&next)
            .await?
            .expect(1, &["configmap/a", "newer.v9", "--take-over"])?;
        case.wrote_nothing(since)?;
        case.apply_with(&next, &["--take-over"]).await?.done()?;
        case.whole(2).await?;
        case.delete().await?.done()?;
        case.kubectl(&["delete", "resourceset", "newer.v9"], "").await.map(drop)
    })
}

#[test]
fn another_namespace_than_before_is_refused() -> Result<()> {
    case("moved", async |case| {
        let set = [config_map("a", "1")];
        case.apply(&set).await?.done()?;
        case.kubectl(&["create", "namespace", "moved-away"], "").await?;
        let away = ["apply", case.name, "-n", "moved-away", "-f", "-"];
        let since = case.now()?;
        let refused = case.synk.run(&away, &crate::list(&set)).await?;
        refused.expect(1, &["moved-away", "--take-over"])?;
        case.wrote_nothing(since)?;
        let flags = [&away[..], &["--take-over", "--allow-prune"]].concat();
        case.synk.run(&flags, &crate::list(&set)).await?.done()?;
        ensure!(case.whole(2).await? == 1, "not one");
        case.gone("configmaps", "a").await?;
        let there = case.read("/api/v1/namespaces/moved-away/configmaps/a").await?;
        ensure!(there.is_some(), "it was not moved");
        // It is known where the set is.
        case.run(&["delete", case.name]).await?.done()?;
        case.gone_from("/api/v1/namespaces/moved-away/configmaps/a").await
    })
}

#[test]
fn what_is_to_be_left_alone_only_gets_its_owner() -> Result<()> {
    case("ignored", async |case| {
        case.apply(&[config_map("a", "1"), config_map("b", "1")])
            .await?
            .done()?;
        let mark = [
            "annotate",
            "configmap",
            "a",
            "-n",
            case.name,
            "synk.cloudrobotics.com/ignore=true",
        ];
        case.kubectl(&mark, "").await?;
        case.kubectl(
            &[
                "patch",
                "configmap",
                "a",
                "-n",
                case.name,
                "--type=merge",
                "-p",
                r#"{"data":{"key":"theirs"}}"#,
            ],
            "",
        )
        .await?;
        case.apply(&[config_map("a", "2"), config_map("b", "2")])
            .await?
            .done()?;
        case.whole(2).await?;
        let set = case.settled(2).await?;
        ensure!(
            crate::document::actions(&set) == ["a Ignored", "b Update"],
            "{:#}",
            set["status"]
        );
        let live = case.get("configmaps", "a").await?;
        ensure!(live["data"]["key"] == "theirs", "{live:#}");
        let since = case.now()?;
        case.apply(&[config_map("a", "2"), config_map("b", "2")])
            .await?
            .done()?;
        case.wrote_nothing(since)?;

        case.kubectl(
            &[
                "annotate",
                "configmap",
                "a",
                "-n",
                case.name,
                "synk.cloudrobotics.com/ignore-",
            ],
            "",
        )
        .await?;
        case.apply(&[config_map("a", "2"), config_map("b", "2")])
            .await?
            .done()?;
        case.whole(3).await?;
        ensure!(
            case.get("configmaps", "a").await?["data"]["key"] == "2",
            "still left alone"
        );
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn what_leaves_is_deleted_only_if_it_is_the_one_that_was_applied() -> Result<()> {
    case("pruned", async |case| {
        // In this namespace nothing is deleted without naming the UID of what is meant.
        let policy = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": "synk-e2e-pruned"},
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {"resourceRules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]},
                    ]},
                    "validations": [{
                        "expression": "has(request.options.preconditions) && has(request.options.preconditions.uid)",
                        "message": "which one is meant",
                    }],
                },
            },
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": "synk-e2e-pruned"},
                "spec": {
                    "policyName": "synk-e2e-pruned", "validationActions": ["Deny"],
                    "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": case.name}}},
                },
            },
        ]});
        case.plane.apply(&policy.to_string()).await?;
        let maps = ["a", "b", "c", "d", "e"].map(|name| config_map(name, "1"));
        case.apply(&maps).await?.done()?;
        case.whole(1).await?;
        let delete = ["delete", "configmap", "e", "-n", case.name, "--dry-run=server"];
        bindery_e2e::eventually("the policy to be in force", SOON, async || {
            let refused = case.kubectl(&delete, "").await.err();
            Ok(refused
                .filter(|refused| format!("{refused:#}").contains("which one is meant"))
                .map(drop))
        })
        .await?;

        // `d` is another by now, and nobody's.
        let own = case.get("configmaps", "d").await?["metadata"]["uid"].clone();
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": own}});
        let path = format!("{}/d", look::path("configmaps", Some(case.name)));
        let request = http::Request::delete(path.as_str()).body(options.to_string().into_bytes())?;
        case.plane.client().request_text(request).await?;
        let mut other = config_map("d", "theirs");
        other["metadata"]["namespace"] = json!(case.name);
        case.plane.apply(&other.to_string()).await?;

        let since = case.now()?;
        case.apply(&maps[..3]).await?.done()?;
        ensure!(case.whole(2).await? == 3, "not three");
        case.gone("configmaps", "e").await?;
        ensure!(
            case.get("configmaps", "d").await?["data"]["key"] == "theirs",
            "not theirs"
        );
        let deleted: Vec<_> = case
            .asked(since)?
            .writes
            .into_iter()
            .filter(|asked| asked.verb == "delete")
            .collect();
        ensure!(deleted.iter().any(|asked| asked.name == "e"), "{deleted:#?}");
        ensure!(deleted.iter().all(|asked| asked.name != "d"), "{deleted:#?}");
        case.kubectl(&["delete", "validatingadmissionpolicybinding", "synk-e2e-pruned"], "")
            .await?;
        case.delete().await?.done().map(drop)
    })
}

/// With the version that owned it, the garbage collector would take it, and all that lives in it.
#[test]
fn a_namespace_that_leaves_the_set_stays_with_what_is_in_it() -> Result<()> {
    case("moves-out", async |case| {
        let name = "moves-out-own";
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let maps = [config_map("a", "1"), config_map("b", "1")];
        let with = list(&[&[namespace][..], &maps].concat());
        let without = list(&maps);
        let args = [case.name, "-n", name, "-f", "-"];
        let apply = [&["apply"], &args[..]].concat();
        case.synk.run(&apply, &with).await?.done()?;
        ensure!(case.whole(1).await? == 3, "not all three");
        let plan = case.synk.run(&[&["plan"], &args[..]].concat(), &without).await?;
        plan.expect(3, &["namespace/moves-out-own leaves the set and stays"])?;
        case.synk.run(&apply, &without).await?.done()?;
        ensure!(case.whole(2).await? == 2, "not both");
        let left = case.find_global("namespaces", name).await?.context("it is gone")?;
        let metadata = &left["metadata"];
        ensure!(
            metadata["deletionTimestamp"].is_null() && metadata["ownerReferences"].as_array().is_none_or(Vec::is_empty),
            "{left:#}"
        );
        let since = case.now()?;
        case.synk.run(&apply, &without).await?.done()?;
        case.wrote_nothing(since)?;
        case.run(&["delete", case.name]).await?.done()?;
        case.kubectl(&["delete", "namespace", name, "--wait=false"], "")
            .await
            .map(drop)
    })
}

#[test]
fn a_set_that_is_being_deleted_is_not_applied_before_it_is_gone() -> Result<()> {
    case("going", async |case| {
        let set = [config_map("a", "1"), config_map("b", "1")];
        let hold = async |finalizers: &Value| {
            let patch = json!({"metadata": {"finalizers": finalizers}}).to_string();
            let patch = ["patch", "configmap", "a", "-n", case.name, "--type=merge", "-p", &patch];
            case.kubectl(&patch, "").await
        };
        case.apply(&set).await?.done()?;
        case.whole(1).await?;
        hold(&json!(["example.com/hold"])).await?;
        case.run(&["delete", case.name, "--wait=false"]).await?.done()?;
        let since = case.now()?;
        let says = ["set going is being deleted", "going.v1"];
        case.apply_with(&set, &["--retries=0"]).await?.expect(1, &says)?;
        case.plan(&set, &[]).await?.expect(1, &says)?;
        case.wrote_nothing(since)?;
        let status = case.run(&["status", case.name]).await?.all();
        ensure!(status.contains("being deleted"), "{status}");
        // Who tries again gets it all anew.
        let mut run = case.start_apply(&case.synk, &set, &[])?;
        run.wait_for_line("is being deleted", SOON).await?;
        hold(&Value::Null).await?;
        let ended = run.wait(COLLECTED).await?;
        ensure!(ended.success(), "{ended}\n{}", run.log());
        ensure!(case.whole(1).await? == 2, "not both");
        case.delete().await?.done().map(drop)
    })
}
