//! `kubectl bind why`, on one cluster that stands for both: the contract's namespaces are on it.

use anyhow::{Result, ensure};
use bindery_api::v1alpha2::APIServiceBinding;
use bindery_e2e::{manifests, process, rights, run};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{LIMIT, World};

fn metadata(name: &str, namespace: &str) -> Value {
    json!({ "name": name, "namespace": namespace })
}

/// A cowboy of the consumer that the konnector has taken up.
fn cowboy(finalizers: &[&str]) -> Value {
    json!({ "apiVersion": "wildwest.dev/v1alpha1", "kind": "Cowboy",
        "metadata": { "name": "billy", "namespace": "west", "finalizers": finalizers,
            "annotations": { "kube-bind.io/provider-namespace": "kube-bind-x-west" } },
        "spec": { "intent": "ride", "secretRefs": [{ "name": "permit" }] } })
}

/// Its copy.
fn copy(uid: &str, finalizers: &[&str]) -> Value {
    let mut copy = cowboy(finalizers);
    copy["metadata"]["namespace"] = "kube-bind-x-west".into();
    copy["metadata"]["annotations"] =
        json!({ "kube-bind.io/cluster-namespace": "kube-bind-x", "kube-bind.io/consumer-uid": uid });
    copy
}

/// Applies as a konnector does.
async fn apply(world: &World, object: &Value) -> Result<()> {
    let mut command = world.plane.kubectl_command(world.plane.kubeconfig_path());
    command.args([
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=kube-bind.io",
        "--filename=-",
    ]);
    let output = process::run_with_input(command, object.to_string().into_bytes(), LIMIT).await?;
    process::stdout(&output).map(drop)
}

/// The contract as a provider has it, and a binding that a konnector has bound.
async fn bound(world: &World) -> Result<()> {
    let plane = &world.plane;
    plane.apply(&manifests::folder("crds")?).await?;
    for namespace in ["kube-bind-x", "kube-bind-x-west", "west"] {
        plane.kubectl(&["create", "namespace", namespace]).await?;
    }
    for account in ["kube-binder", "user"] {
        plane
            .kubectl(&["create", "serviceaccount", account, "-n", "kube-bind-x"])
            .await?;
    }
    let given = [
        (
            "binder",
            "kube-binder",
            "cowboys.wildwest.dev,secrets,apiserviceexports.kube-bind.io,apiservicenamespaces.kube-bind.io",
        ),
        ("user", "user", "cowboys.wildwest.dev"),
    ];
    let token = plane.token_for("kube-bind-x", "kube-binder", &[], 3600).await?;
    world.backend.script.lock().access = Some((plane.server_url(), plane.ca_pem(), token));
    let (bind, ready) = tokio::join!(world.bind(&["cowboys"]), world.report_ready("cowboys"));
    ready?;
    bind?.expect(0, &[])?;
    plane
        .apply(&manifests::file("examples/cowboys/provider/crd.yaml")?)
        .await?;
    for (role, account, resources) in given {
        let subject = format!("--serviceaccount=kube-bind-x:{account}");
        plane
            .kubectl(&[
                "create",
                "clusterrole",
                role,
                "--verb=get,list",
                "--resource",
                resources,
            ])
            .await?;
        plane
            .kubectl(&["create", "clusterrolebinding", role, "--clusterrole", role, &subject])
            .await?;
        let list = ResourceAttributes {
            verb: Some("list".to_owned()),
            group: Some("wildwest.dev".to_owned()),
            resource: Some("cowboys".to_owned()),
            ..ResourceAttributes::default()
        };
        let user = format!("system:serviceaccount:kube-bind-x:{account}");
        rights::wait_until(plane, &user, &list, true).await?;
    }
    let export = json!({ "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExport",
        "metadata": metadata("cowboys", "kube-bind-x"),
        "spec": { "resources": [{ "group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"] }],
            "informerScope": "Namespaced", "isolation": "Prefixed" } });
    plane.apply(&export.to_string()).await
}

#[test]
fn an_object_says_what_it_waits_for() -> Result<()> {
    run(async {
        let world = World::start("cli-why").await?;
        bound(&world).await?;
        on_its_way_up(&world).await?;
        in_sync(&world).await?;
        a_secret_that_is_named(&world).await?;
        partly_blind(&world).await?;
        on_its_way_out(&world).await?;
        what_is_nowhere(&world).await
    })
}

async fn on_its_way_up(world: &World) -> Result<()> {
    let why = ["why", "cowboy/billy", "-n", "west"];
    world.plane.apply(&cowboy(&[]).to_string()).await?;
    world.bind(&why).await?.expect(
        0,
        &[
            "Cowboy west/billy",
            "binding cowboys, contract kube-bind-x",
            "no namespace for namespace west",
            "waits for the provider",
        ],
    )?;
    let place = json!({ "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceNamespace",
        "metadata": metadata("west", "kube-bind-x"), "spec": {} });
    world.plane.apply(&place.to_string()).await?;
    let status = r#"{"status":{"namespace":"kube-bind-x-west"}}"#;
    let patch = [
        "patch",
        "apiservicenamespace",
        "west",
        "-n",
        "kube-bind-x",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ];
    world.plane.kubectl(&patch).await?;
    world.bind(&why).await?.expect(
        0,
        &[
            "there: kube-bind-x-west/billy, not there",
            "has not taken it up",
            "the konnector",
        ],
    )?;
    apply(world, &cowboy(&["kubebind.io/syncer"])).await?;
    world.bind(&why).await?.expect(0, &["the provider has no copy of it"])?;
    Ok(())
}

async fn uid(world: &World) -> Result<String> {
    let get = ["get", "cowboy", "billy", "-n", "west", "-o", "jsonpath={.metadata.uid}"];
    world.plane.kubectl(&get).await
}

async fn in_sync(world: &World) -> Result<()> {
    let uid = uid(world).await?;
    apply(world, &copy("another", &["example.com/stable"])).await?;
    world
        .bind(&["why", "cowboys.wildwest.dev", "billy", "-n", "west"])
        .await?
        .expect(0, &["conflict", "UID another", "mend:"])?;
    apply(world, &copy(&uid, &["example.com/stable"])).await?;
    world.bind(&["why", "Cowboy/billy", "-n", "west"]).await?.expect(
        0,
        &[
            "✓ it is in sync with its copy kube-bind-x-west/billy",
            "written by the konnector",
        ],
    )?;
    let patch = [
        "patch",
        "cowboy",
        "billy",
        "-n",
        "west",
        "--type=merge",
        "-p",
        r#"{"spec":{"intent":"walk"}}"#,
    ];
    world.plane.kubectl(&patch).await?;
    let found = world
        .bind(&["why", "cowboy/billy", "-n", "west", "-o", "json"])
        .await?
        .expect(0, &[])?
        .json()?;
    ensure!(
        found["lines"][0]["what"]
            .as_str()
            .is_some_and(|what| what.contains("spec.intent")),
        "{found}"
    );
    ensure!(
        found["lines"][0]["waitingFor"] == "the konnector of this cluster",
        "{found}"
    );
    ensure!(
        found["links"][0]["copy"]["is"]["finalizers"] == json!(["example.com/stable"]),
        "{found}"
    );
    Ok(())
}

async fn a_secret_that_is_named(world: &World) -> Result<()> {
    let why = ["why", "secret/permit", "-n", "west"];
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata("permit", "west"),
        "stringData": { "permit": "hunter2" } });
    world.plane.apply(&secret.to_string()).await?;
    world
        .bind(&why)
        .await?
        .expect(0, &["no binding of this cluster brings or claims secrets"])?;
    let claim = json!({ "resource": "secrets", "selector": { "references": [
        { "group": "wildwest.dev", "resource": "cowboys", "jsonPath": { "name": "spec.secretRefs.#.name" } }] } });
    let bindings = Api::<APIServiceBinding>::all(world.plane.client());
    let status = Patch::Merge(json!({ "status": { "permissionClaims": [claim] } }));
    bindings
        .patch_status("cowboys", &PatchParams::default(), &status)
        .await?;
    let ended = world.bind(&[&why[..], &["-o", "yaml"]].concat()).await?.expect(
        0,
        &[
            "because cowboys.wildwest.dev west/billy names it",
            "the provider has no copy of it yet",
        ],
    )?;
    ensure!(
        !ended.stdout.contains("aHVudGVyMg"),
        "the Secret's content: {}",
        ended.stdout
    );
    let reject = Patch::Merge(json!({ "spec": { "rejectedPermissionClaims": [{ "resource": "secrets" }] } }));
    bindings.patch("cowboys", &PatchParams::default(), &reject).await?;
    world.bind(&why).await?.expect(
        0,
        &[
            "rejects the claim on secrets",
            "kubectl bind claims cowboys --accept secrets",
        ],
    )?;
    Ok(())
}

async fn partly_blind(world: &World) -> Result<()> {
    let kubeconfig = world.plane.service_account_kubeconfig("kube-bind-x", "user").await?;
    let ended = world.run(&kubeconfig, &["why", "cowboy/billy", "-n", "west"]).await?;
    ended.expect(
        0,
        &[
            "a binding that you cannot read",
            "? the binding cannot be read",
            "apiservicebindings",
            "has begun to copy it",
        ],
    )?;
    Ok(())
}

async fn on_its_way_out(world: &World) -> Result<()> {
    let why = ["why", "cowboy/billy", "-n", "west"];
    let delete = |namespace: &'static str| ["delete", "cowboy", "billy", "--wait=false", "-n", namespace];
    world.plane.kubectl(&delete("west")).await?;
    world
        .bind(&why)
        .await?
        .expect(0, &["being deleted for", "has not reached the copy"])?;
    world.plane.kubectl(&delete("kube-bind-x-west")).await?;
    world.bind(&why).await?.expect(
        0,
        &[
            "kept by its finalizers example.com/stable",
            "waits for the provider: the controller of example.com/stable",
        ],
    )?;
    let free = |namespace: &'static str| {
        [
            "patch",
            "cowboy",
            "billy",
            "-n",
            namespace,
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ]
    };
    world.plane.kubectl(&free("kube-bind-x-west")).await?;
    world
        .bind(&why)
        .await?
        .expect(0, &["has not removed its finalizer yet", "the konnector"])?;
    world.plane.kubectl(&free("west")).await?;
    Ok(())
}

async fn what_is_nowhere(world: &World) -> Result<()> {
    world
        .bind(&["why", "cowboy/billy", "-n", "west"])
        .await?
        .expect(4, &["there is no Cowboy west/billy"])?;
    world
        .bind(&["why", "horse/x"])
        .await?
        .expect(2, &["no API called \"horse\""])?;
    world.bind(&["why", "cowboy"]).await?.expect(2, &["KIND/NAME"])?;
    apply(world, &copy("gone", &[])).await?;
    world
        .bind(&["why", "cowboy/billy", "-n", "west"])
        .await?
        .expect(0, &["it is not on this cluster, and the provider has its copy"])?;
    Ok(())
}
