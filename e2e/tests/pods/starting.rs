use std::fs;

use anyhow::Result;
use bindery_e2e::eventually;
use serde_json::json;

use crate::world::{Node, SOON, container, konnector, short, waits};

pub(crate) async fn an_image_that_was_not_built_cannot_be_pulled(node: &Node<'_>) -> Result<()> {
    let digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    for (name, image) in [
        ("unknown", "registry.example.com/nobody:0.1.0"),
        ("version", "synk:0.0.9"),
        ("digest", &format!("synk@{digest}")),
    ] {
        node.create(name, &short(image, &["--version"])).await?;
        let refused = |status: &_| waits(status, "ErrImagePull", image);
        let status = node.status(name, "the image not to be found", refused).await?;
        assert_eq!(status["phase"], "Pending");
    }
    Ok(())
}

pub(crate) async fn what_is_missing_is_said_until_it_is_there(node: &Node<'_>) -> Result<()> {
    let mut spec = short("synk:0.1.0", &["$(COMMAND)"]);
    spec["volumes"] = json!([{"name": "given", "secret": {"secretName": "late"}}]);
    let container = &mut spec["containers"][0];
    container["volumeMounts"] = json!([{"name": "given", "mountPath": "/given"}]);
    let source = json!({"configMapKeyRef": {"name": "later", "key": "command"}});
    container["env"] = json!([{"name": "COMMAND", "valueFrom": source}]);
    node.create("late", &spec).await?;

    let no_volume = |status: &_| waits(status, "ContainerCreating", "secret \"late\" not found");
    node.status("late", "the missing Secret to be named", no_volume).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late", "namespace": "kube-bind"}});
    node.plane.apply(&secret.to_string()).await?;
    let no_variable = |status: &_| waits(status, "CreateContainerConfigError", "key command in ConfigMap later");
    node.status("late", "the missing key to be named", no_variable).await?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later", "namespace": "kube-bind"},
        "data": {"command": "--version"},
    });
    node.plane.apply(&map.to_string()).await?;
    node.status("late", "to succeed", |status| status["phase"] == "Succeeded")
        .await?;
    Ok(())
}

pub(crate) async fn a_program_that_must_not_be_root_is_not_started(node: &Node<'_>) -> Result<()> {
    let mut spec = short("synk:0.1.0", &["--version"]);
    spec["securityContext"] = json!({"runAsUser": 0, "runAsNonRoot": true});
    node.create("root", &spec).await?;
    let refused = |status: &_| waits(status, "CreateContainerConfigError", "runAsNonRoot");
    node.status("root", "the container to be refused", refused).await?;
    Ok(())
}

pub(crate) async fn a_pod_that_asks_for_something_unknown_is_not_started(node: &Node<'_>) -> Result<()> {
    let mut spec = short("synk:0.1.0", &["--version"]);
    spec["hostAliases"] = json!([{"ip": "192.0.2.7", "hostnames": ["seven"]}]);
    node.create("unknown-field", &spec).await?;
    let refused = |status: &_| waits(status, "CreateContainerConfigError", "does not know hostAliases");
    node.status("unknown-field", "the field to be named", refused).await?;
    Ok(())
}

pub(crate) async fn a_pod_is_ready_once_its_probe_says_so(node: &Node<'_>) -> Result<()> {
    let mut spec = konnector()?;
    spec["containers"][0]["readinessProbe"]["httpGet"]["path"] = json!("/nothing-is-here");
    node.create("unready", &spec).await?;
    // This one has a chance to become ready first.
    let runs = |status: &_| container(status)["state"]["running"].is_object();
    node.status("unready", "to run", runs).await?;
    node.create("ready", &konnector()?).await?;
    node.ready("ready").await?;
    let status = node.status("unready", "to run", runs).await?;
    assert_eq!(
        (&container(&status)["ready"], &container(&status)["started"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(status["phase"], "Running");
    Ok(())
}

/// A program that only its own machine reaches is not ready: probes come from outside.
pub(crate) async fn a_program_that_listens_on_loopback_alone_is_not_ready(node: &Node<'_>) -> Result<()> {
    let mut spec = konnector()?;
    spec["containers"][0]["args"] = json!(["--server-address=127.0.0.1:8090"]);
    node.create("private", &spec).await?;
    eventually("the program to listen", SOON, async || {
        let process = node.process("private").await?;
        // An address and a port in hexadecimal digits, as `/proc` shows them.
        let sockets = fs::read_to_string(process.join("net/tcp"))?;
        Ok(sockets.contains(" 0100007F:1F9A ").then_some(()))
    })
    .await?;
    // This one listens later.
    node.create("public", &konnector()?).await?;
    node.ready("public").await?;
    let status = node.status("private", "to run", |status| status["phase"] == "Running");
    assert_eq!(container(&status.await?)["ready"], false);
    Ok(())
}
