//! What the charts render: the files that are made of them, roles without wildcards, and pods with as little as they can have.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    charts::{self, CHARTS, Helm, KONNECTOR, Release, SERVER},
    manifests, process, run,
};
use serde_json::{Value, json};

/// Each chart with each of its values files.
const INSTALLS: [Release<'static>; 2] = [SERVER, KONNECTOR];

/// The objects of a release with its default values and with those for high availability.
fn defaults_and_ha(helm: &Helm, release: Release<'_>) -> Result<[Vec<Value>; 2]> {
    let file = charts::folder(release.chart).join("values-ha.yaml");
    let file = file.to_str().context("a path in UTF-8")?;
    Ok([helm.objects(release, &[])?, helm.objects(release, &["--values", file])?])
}

/// The only object of a kind.
pub(crate) fn only<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    match (found.next(), found.next()) {
        (Some(object), None) => Ok(object),
        (None, _) => anyhow::bail!("no {kind}"),
        _ => anyhow::bail!("more than one {kind}"),
    }
}

#[test]
fn the_files_that_are_made_of_the_charts_are_current() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = charts::generated(&Helm::locate()?)?;
    ensure!(files.len() > 15, "only {} files", files.len());
    for (path, content) in files {
        let known = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        ensure!(
            known == content,
            "{} is not current: run `cargo xtask gen`",
            path.display()
        );
    }
    Ok(())
}

/// `kubectl bind deploy` and the chart install the same objects, bundles and adoption included.
#[test]
fn kubectl_bind_deploy_installs_what_the_chart_does() -> Result<()> {
    run(async {
        let mut command = process::Programs::default().command("kubectl-bind")?;
        command.args([
            "deploy",
            "--dry-run=client",
            "-o",
            "yaml",
            "--adoption",
            "all",
            "--replicas",
            "2",
        ]);
        command.args([
            "--bundle-resource",
            "cowboys.wildwest.dev",
            "--bundle-resource",
            "secrets",
        ]);
        let output = process::run(command, std::time::Duration::from_mins(1)).await?;
        let mut deployed = manifests::documents(&process::stdout(&output)?)?;
        deployed.retain(|object| object["kind"] != "CustomResourceDefinition");
        let values = "createNamespace=true,adoption=all,replicas=2,bundleResources={cowboys.wildwest.dev,secrets}";
        let mut rendered = Helm::locate()?.objects(KONNECTOR, &["--set", values])?;
        let key = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
        deployed.sort_by_key(key);
        rendered.sort_by_key(key);
        let keys = |objects: &[Value]| objects.iter().map(key).collect::<Vec<_>>();
        ensure!(
            keys(&deployed) == keys(&rendered),
            "{:?}\n{:?}",
            keys(&deployed),
            keys(&rendered)
        );
        for (deployed, rendered) in deployed.into_iter().zip(rendered) {
            ensure!(
                sorted_rules(deployed.clone()) == sorted_rules(rendered.clone()),
                "kubectl bind deploy:\n{deployed}\nthe chart:\n{rendered}"
            );
        }
        Ok(())
    })
}

/// The order of rules means nothing.
fn sorted_rules(mut object: Value) -> Value {
    if let Some(rules) = object["rules"].as_array_mut() {
        rules.sort_by_key(Value::to_string);
    }
    object
}

#[test]
fn no_role_holds_a_wildcard() -> Result<()> {
    let helm = Helm::locate()?;
    for release in INSTALLS {
        for objects in defaults_and_ha(&helm, release)? {
            let rules: Vec<_> = objects
                .iter()
                .flat_map(|object| object["rules"].as_array().into_iter().flatten())
                .map(Value::to_string)
                .collect();
            ensure!(rules.len() > 5, "only {} rules of {}", rules.len(), release.chart);
            for rule in rules {
                ensure!(!rule.contains('*'), "{}: {rule}", release.chart);
            }
        }
    }
    Ok(())
}

#[test]
fn pods_have_as_little_as_they_can() -> Result<()> {
    let helm = Helm::locate()?;
    for release in INSTALLS {
        for objects in defaults_and_ha(&helm, release)? {
            let deployment = only(&objects, "Deployment")?;
            let pod = &deployment["spec"]["template"]["spec"];
            let container = &pod["containers"][0];
            for (value, expect) in [
                (&pod["serviceAccountName"], json!(release.name)),
                (&pod["securityContext"]["runAsNonRoot"], json!(true)),
                (
                    &pod["securityContext"]["seccompProfile"]["type"],
                    json!("RuntimeDefault"),
                ),
                (&container["securityContext"]["readOnlyRootFilesystem"], json!(true)),
                (&container["securityContext"]["allowPrivilegeEscalation"], json!(false)),
                (&container["securityContext"]["capabilities"]["drop"], json!(["ALL"])),
                (
                    &container["livenessProbe"]["httpGet"],
                    json!({"path": "/healthz", "port": "admin"}),
                ),
                (
                    &container["readinessProbe"]["httpGet"],
                    json!({"path": "/readyz", "port": "admin"}),
                ),
                (
                    &container["image"],
                    json!(format!("{}:{}", release.chart, env!("CARGO_PKG_VERSION"))),
                ),
            ] {
                ensure!(*value == expect, "{}: {value} is not {expect}", release.chart);
            }
            ensure!(container["resources"]["requests"]["memory"].is_string(), "{container}");
        }
    }
    Ok(())
}

#[test]
fn several_replicas_are_spread_and_outlast_a_drain() -> Result<()> {
    let helm = Helm::locate()?;
    for release in INSTALLS {
        let [default, ha] = defaults_and_ha(&helm, release)?;
        ensure!(
            only(&default, "PodDisruptionBudget").is_err(),
            "one replica would block a drain"
        );
        let deployment = only(&ha, "Deployment")?;
        let replicas = deployment["spec"]["replicas"].as_u64().context("replicas")?;
        ensure!(replicas > 1, "{replicas} replicas");
        let selector = &deployment["spec"]["selector"]["matchLabels"];
        let budget = &only(&ha, "PodDisruptionBudget")?["spec"];
        ensure!(
            budget["maxUnavailable"] == 1 && budget["selector"]["matchLabels"] == *selector,
            "{budget}"
        );
        let spread = &deployment["spec"]["template"]["spec"]["topologySpreadConstraints"][0];
        ensure!(spread["labelSelector"]["matchLabels"] == *selector, "{spread}");
    }
    Ok(())
}

/// What limits the rights of contracts and bindings must not go while these stay, nor the namespace of their credentials.
#[test]
fn policies_and_namespaces_outlive_their_release() -> Result<()> {
    let helm = Helm::locate()?;
    for release in INSTALLS {
        let objects = helm.objects(release, &["--set", "createNamespace=true"])?;
        let mut lasting = objects.iter().filter(|object| {
            let kind = object["kind"].as_str().unwrap_or_default();
            kind.starts_with("ValidatingAdmissionPolicy") || kind == "Namespace"
        });
        let kept = |object: &Value| object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep";
        ensure!(
            lasting.clone().count() == 7 && lasting.all(kept),
            "{}: a policy or the namespace goes with the release",
            release.chart
        );
    }
    Ok(())
}

#[test]
fn charts_have_the_version_of_the_programs() -> Result<()> {
    for chart in CHARTS {
        let text = std::fs::read_to_string(charts::folder(chart).join("Chart.yaml"))?;
        let chart = manifests::documents(&text)?.pop().context("Chart.yaml is empty")?;
        for version in ["version", "appVersion"] {
            ensure!(chart[version] == env!("CARGO_PKG_VERSION"), "{version}: {chart}");
        }
    }
    Ok(())
}
