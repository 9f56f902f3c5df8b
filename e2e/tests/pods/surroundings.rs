//! What a program sees, as `/proc` shows it.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bindery_e2e::eventually;
use serde_json::{Value, json};

use crate::world::{Node, SOON, konnector};

/// The files by which a program is known to the API server.
const ACCOUNT: &str = "root/var/run/secrets/kubernetes.io/serviceaccount";

pub(crate) async fn a_program_finds_what_its_pod_gives_it(node: &Node<'_>) -> Result<()> {
    let given = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given", "namespace": "kube-bind"},
            "stringData": {"word": "hush", "other": "not mounted"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "given", "namespace": "kube-bind"},
            "data": {"color": "red"}},
    ]});
    node.plane.apply(&given.to_string()).await?;
    let mut spec = konnector()?;
    spec["securityContext"]["fsGroup"] = json!(2000);
    spec["securityContext"]["supplementalGroups"] = json!([3000]);
    spec["volumes"] = json!([
        {"name": "secret", "secret": {"secretName": "given", "defaultMode": 0o440,
            "items": [{"key": "word", "path": "in/word"}]}},
        {"name": "map", "configMap": {"name": "given"}},
        {"name": "pod", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"name": "empty", "emptyDir": {}},
    ]);
    let container = &mut spec["containers"][0];
    container["volumeMounts"] = json!([
        {"name": "secret", "mountPath": "/secret", "readOnly": true},
        {"name": "map", "mountPath": "/map", "readOnly": true},
        {"name": "pod", "mountPath": "/pod", "readOnly": true},
        {"name": "empty", "mountPath": "/empty"},
    ]);
    let variables = container["env"].as_array_mut().context("no variables")?;
    let secret = json!({"secretKeyRef": {"name": "given", "key": "word"}});
    variables.push(json!({"name": "WORD", "valueFrom": secret}));
    variables.push(json!({"name": "SENTENCE", "value": "$(WORD) in $(POD_NAMESPACE), not in $(PATH)"}));
    node.create("given", &spec).await?;
    let process = node.ready("given").await?;

    let variables = fs::read_to_string(process.join("environ"))?;
    let variables: BTreeSet<_> = variables.split_terminator('\0').collect();
    for expect in [
        "POD_NAME=given",
        "WORD=hush",
        "SENTENCE=hush in kube-bind, not in $(PATH)",
    ] {
        ensure!(variables.contains(expect), "{variables:?}");
    }
    let own = env!("CARGO_MANIFEST_DIR");
    ensure!(
        !variables.iter().any(|it| it.contains(own)),
        "variables of the test: {variables:?}"
    );

    let read = |name: &str| fs::read_to_string(process.join("root").join(name)).with_context(|| name.to_owned());
    for (name, expect) in [("secret/in/word", "hush"), ("map/color", "red"), ("pod/name", "given")] {
        assert_eq!(read(name)?, expect, "{name}");
    }
    ensure!(
        !process.join("root/secret/other").exists(),
        "a key is mounted that was not chosen"
    );
    let word = fs::metadata(process.join("root/secret/in/word"))?;
    assert_eq!((word.mode() & 0o777, word.gid()), (0o440, 2000));
    assert_eq!(
        read("var/run/secrets/kubernetes.io/serviceaccount/ca.crt")?,
        node.plane.ca_pem()
    );
    assert_eq!(
        read("var/run/secrets/kubernetes.io/serviceaccount/namespace")?,
        "kube-bind"
    );

    // These are the mounts of the Pod, so that a write fails here as it does there.
    for name in ["new", "usr/bin/new", "secret/new", "map/new"] {
        let error = fs::write(process.join("root").join(name), "")
            .err()
            .with_context(|| format!("{name} is made"))?;
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem, "{name}");
    }
    let empty = process.join("root/empty");
    fs::write(empty.join("new"), "")?;
    assert_eq!(fs::metadata(&empty)?.permissions().mode() & 0o777, 0o777);
    is_without_rights(&process)?;

    let changed = json!({"data": {"color": null, "size": "big"}}).to_string();
    let patch = [
        "patch",
        "configmap",
        "given",
        "-n",
        "kube-bind",
        "--type=merge",
        "-p",
        changed.as_str(),
    ];
    node.plane.kubectl(&patch).await?;
    eventually("the files to be as the ConfigMap", SOON, async || {
        let is_so = read("map/size").is_ok_and(|it| it == "big") && !process.join("root/map/color").exists();
        Ok(is_so.then_some(()))
    })
    .await
}

/// The program has the user of its Pod, and no way to become another one. It is process 1 of the Pod.
fn is_without_rights(process: &Path) -> Result<()> {
    let status = fs::read_to_string(process.join("status"))?;
    let field = |name: &str| {
        let mut lines = status
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        lines.next().map(str::split_whitespace).map(Iterator::collect::<Vec<_>>)
    };
    for (name, expect) in [
        ("Uid", vec!["65532"; 4]),
        ("Gid", vec!["65532"; 4]),
        ("Groups", vec!["2000", "3000", "65532"]),
        ("CapEff", vec!["0000000000000000"]),
        ("NoNewPrivs", vec!["1"]),
    ] {
        assert_eq!(field(name), Some(expect), "{name}");
    }
    assert_eq!(field("NSpid").and_then(|ids| ids.last().copied()), Some("1"));
    Ok(())
}

pub(crate) async fn a_token_is_replaced_while_the_program_runs(node: &Node<'_>) -> Result<()> {
    node.create("rotated", &konnector()?).await?;
    let process = node.ready("rotated").await?;
    let token = || fs::read_to_string(process.join(ACCOUNT).join("token"));
    let first = token()?;
    let second = eventually("another token", SOON, async || {
        Ok(Some(token()?).filter(|it| *it != first))
    })
    .await?;
    let pod = node.pods.get("rotated").await?;
    for token in [first, second] {
        let claims = token.split('.').nth(1).context("a token without claims")?;
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
        let kubernetes = &claims["kubernetes.io"];
        assert_eq!(kubernetes["pod"]["uid"].as_str(), pod.metadata.uid.as_deref());
        assert_eq!(kubernetes["serviceaccount"]["name"], "konnector");
    }
    ensure!(process.exists(), "the program was started again");
    Ok(())
}
