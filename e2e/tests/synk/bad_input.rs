//! Input that cannot be applied, and clusters that cannot take it: what is wrong is said, and nothing else changes.

mod cluster;
mod objects;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::{case::Case, config_map, list, world::case};

#[test]
fn broken_manifests_are_told_with_file_document_and_line() -> Result<()> {
    case("bad-yaml", async |case| {
        let stream = "\
# A chart.
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fine}
---
apiVersion: v1
kind: Secret
metadata: {name: broken}
stringData:
  password: \"hunter2
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels: {}
---
apiVersion: v1
kind: Secret
metadata: {name: twice}
stringData:
  password: hunter2
  password: hunter3
";
        let file = case.file("broken.yaml", stream)?;
        let file = file.to_str().context("a path in UTF-8")?;
        let other = case.file("other.json", &config_map("other", "1").to_string().replace('}', ""))?;
        let other = other.to_str().context("a path in UTF-8")?;
        let since = case.now()?;
        for verb in ["apply", "plan"] {
            let args = [
                verb,
                case.name,
                "-n",
                case.name,
                "-f",
                file,
                "-f",
                other,
                "-f",
                "/no/such.yaml",
            ];
            let says = [
                &format!("{file}, document 2, line 11: "),
                &format!("{file}, document 3, line 15: metadata.name is missing"),
                &format!("{file}, document 4, line 23: key \"password\" is given twice, first on line 22"),
                &format!("{other}, document 1, line 1: "),
                "/no/such.yaml: no such file",
            ];
            let ran = case.run(&args).await?.expect(1, &says)?;
            ran.without(&["hunter", "fine"])?;
            let ran = case.run(&[&args[..], &["-o", "json"]].concat()).await?.expect(1, &[])?;
            let error = &ran.json()?["error"];
            ensure!(error["reason"] == "InvalidInput", "{error:#}");
        }
        case.apply_text("{{ .Values.name }}", &[])
            .await?
            .expect(1, &["standard input, document 1, line 1: "])?;
        nothing_done(case, since).await
    })
}

#[test]
fn objects_that_cannot_be_in_a_set_are_told_all_at_once() -> Result<()> {
    case("bad-objects", async |case| {
        let long = "a".repeat(254);
        let mut foreign = config_map("foreign", "1");
        foreign["metadata"]["namespace"] = json!("kube-public");
        let mut elsewhere = config_map("twice", "2");
        elsewhere["metadata"]["namespace"] = json!(case.name);
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": &long[..64]}});
        let since = case.now()?;
        let set = [
            config_map("fine", "1"),
            config_map("twice", "1"),
            elsewhere,
            foreign,
            config_map(&long, "1"),
            service,
            config_map("../namespaces/kube-system", "1"),
        ];
        let documents: Vec<_> = set.iter().map(|object| format!("---\n{object}")).collect();
        let stream = documents.join("\n");
        let says = [
            "document 3, line 6: configmap/twice in namespace bad-objects is given twice, first in standard input, document 2, line 4",
            "document 4, line 8: configmap/foreign in namespace kube-public is in neither bad-objects",
            "--allow-namespace kube-public",
            "document 5, line 10: ",
            "has a name of 254 characters: at most 253 are allowed",
            "has a name of 64 characters: at most 63 are allowed",
            "document 7, line 14: configmap/../namespaces/kube-system in namespace bad-objects has a name that cannot be part of a path",
        ];
        case.apply_text(&stream, &[]).await?.expect(1, &says)?;
        nothing_done(case, since).await
    })
}

#[test]
fn nothing_is_sent_without_manifests() -> Result<()> {
    case("bad-empty", async |case| {
        let since = case.now()?;
        let folder = case.file("README.md", "no manifest")?.with_extension("folder");
        std::fs::create_dir(&folder)?;
        let folder = folder.to_str().context("a path in UTF-8")?;
        let args = ["apply", case.name, "-n", case.name, "-f", folder];
        case.run(&args).await?.expect(1, &["no .yaml, .yml or .json file"])?;
        for stream in ["", "---\n# nothing\n", &list(&[])] {
            case.apply_text(stream, &[])
                .await?
                .expect(1, &["no objects", "--allow-prune"])?;
        }
        nothing_done(case, since).await
    })
}

/// No write, no version.
async fn nothing_done(case: &Case, since: bindery_e2e::Moment) -> Result<()> {
    case.wrote_nothing(since)?;
    let versions = case.versions().await?;
    ensure!(versions.is_empty(), "{versions:?}");
    Ok(())
}
