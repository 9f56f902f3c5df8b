//! `deploy/server` and `deploy/konnector`, rendered from the charts with their default values.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::{Helm, KONNECTOR, Release, SERVER};

/// One rendering, and the files of `deploy/` that are made of its templates.
struct Rendering {
    release: Release<'static>,
    args: &'static [&'static str],
    /// The folder of the files, and the templates, which have the names of the files.
    files: &'static [(&'static str, &'static [&'static str])],
}

const RENDERINGS: [Rendering; 3] = [
    Rendering {
        release: SERVER,
        args: &["--set", "createNamespace=true"],
        files: &[
            (
                "server",
                &[
                    "account-policy.yaml",
                    "binder-role.yaml",
                    "claims-role.yaml",
                    "cluster-info.yaml",
                    "contract-role.yaml",
                    "exports-role.yaml",
                    "namespace.yaml",
                    "own-namespace.yaml",
                    "policy.yaml",
                    "requests-policy.yaml",
                    "responses-role.yaml",
                    "role.yaml",
                ],
            ),
            ("server/optional", &["workload.yaml"]),
        ],
    },
    Rendering {
        release: KONNECTOR,
        args: &["--set", "createNamespace=true"],
        files: &[(
            "konnector",
            &[
                "account-policy.yaml",
                "namespace.yaml",
                "own-namespace.yaml",
                "policy.yaml",
                "role.yaml",
                "workload.yaml",
            ],
        )],
    },
    Rendering {
        release: KONNECTOR,
        args: &["--set", "adoption=opt-in,bundleResources={cowboys.wildwest.dev}"],
        files: &[("konnector/optional", &["adoption.yaml", "bundles.yaml"])],
    },
];

/// The files, by their path from the folder of the project.
pub(super) fn files(helm: &Helm) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for rendering in &RENDERINGS {
        let rendered = by_template(&helm.template(rendering.release, rendering.args)?)?;
        for (folder, templates) in rendering.files {
            for template in *templates {
                let chart = rendering.release.chart;
                let documents = rendered
                    .get(*template)
                    .with_context(|| format!("chart {chart} renders nothing of {template}"))?;
                let path = format!("deploy/{folder}/{template}");
                files.push((path.into(), file(chart, documents)));
            }
        }
    }
    Ok(files)
}

fn file(chart: &str, documents: &[String]) -> String {
    format!(
        "# Rendered by `cargo xtask gen` from the chart {chart}. Change the chart instead.\n#\n{}\n",
        documents.join("\n---\n")
    )
}

/// Splits the output of `helm template` into the documents of each template, in their order.
fn by_template(output: &str) -> Result<BTreeMap<String, Vec<String>>> {
    const SOURCE: &str = "# Source: ";
    let mut templates = BTreeMap::<_, Vec<_>>::new();
    let documents = output.trim().trim_start_matches("---\n").split("\n---\n");
    for document in documents {
        let (source, document) = document
            .strip_prefix(SOURCE)
            .and_then(|rest| rest.split_once('\n'))
            .with_context(|| format!("helm does not say the template of:\n{document}"))?;
        let (_, template) = source.rsplit_once('/').context("a template is in a folder")?;
        let document = without_trailing_space(document);
        ensure!(!document.is_empty(), "{source} renders an empty document");
        templates.entry(template.to_owned()).or_default().push(document);
    }
    Ok(templates)
}

fn without_trailing_space(document: &str) -> String {
    let lines: Vec<_> = document.trim().lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_told_apart_by_template() {
        let output = "---\n# Source: c/templates/a.yaml\n# Why.\nkind: A\n---\n# Source: c/templates/b.yaml\nkind: B\n---\n\
                      # Source: c/templates/a.yaml\nkind: C\n\n";
        let templates = by_template(output).unwrap();
        assert_eq!(templates["a.yaml"], ["# Why.\nkind: A", "kind: C"]);
        assert_eq!(templates["b.yaml"], ["kind: B"]);
        assert!(by_template("kind: A").is_err());
    }
}
