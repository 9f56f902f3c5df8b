//! What installs the konnector, on a real cluster, and what a provider's answer in a file does. No konnector runs here.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_e2e::{manifests, run};
use serde_json::{Value, json};

use super::{Ended, World};

/// What a deployment installs.
const KINDS: &str = "namespaces,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,secrets";
/// What it installs, whose status somebody else writes.
const REPORTED_KINDS: &str = "validatingadmissionpolicies,validatingadmissionpolicybindings,crds,deployments";

impl World {
    /// Runs the command without a provider.
    async fn plain(&self, args: &[&str]) -> Result<Ended> {
        self.run(self.plane.kubeconfig_path(), args).await
    }

    /// Everything that is installed: with resource versions, and with generations where others report in a status.
    async fn installed(&self) -> Result<String> {
        let versions = "custom-columns=K:.kind,N:.metadata.name,V:.metadata.resourceVersion";
        let generations = "custom-columns=K:.kind,N:.metadata.name,G:.metadata.generation";
        let all = self.plane.kubectl(&["get", KINDS, "-A", "-o", versions]).await?
            + &self
                .plane
                .kubectl(&["get", REPORTED_KINDS, "-A", "-o", generations])
                .await?;
        // Controllers of the cluster make and change objects of their own.
        let ours = all
            .lines()
            .filter(|line| line.contains("kube-bind") || line.contains("kubeconfig") || line.contains("konnector"));
        Ok(ours.collect::<Vec<_>>().join("\n"))
    }

    async fn is_as(&self, before: &str) -> Result<()> {
        let after = self.installed().await?;
        ensure!(
            after == before,
            "something was written; before:\n{before}\nafter:\n{after}"
        );
        Ok(())
    }

    async fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.plane.kubectl(&[args, &["-o", "json"]].concat()).await?;
        Ok(serde_json::from_str(&text)?)
    }

    fn file(&self, name: &str, content: &Value) -> Result<String> {
        let path = self.plane.workdir().write(name, content.to_string())?;
        Ok(path.to_str().context("a path in UTF-8")?.to_owned())
    }
}

#[test]
fn deploying_twice_changes_nothing() -> Result<()> {
    run(async {
        let world = World::start("cli-deploy").await?;
        dry_runs_touch_nothing(&world).await?;
        installs_and_then_changes_nothing(&world).await?;
        what_kubectl_applied_is_the_same(&world).await?;
        rights_for_bundles_are_added(&world).await?;
        adoption_comes_and_goes(&world).await?;
        flags_that_are_left_out_keep_what_is_installed(&world).await?;
        flags_that_were_set_by_hand_stay(&world).await?;
        nobody_waits_for_ever(&world).await
    })
}

async fn dry_runs_touch_nothing(world: &World) -> Result<()> {
    let before = world.installed().await?;
    let dry = [
        "deploy",
        "--dry-run=client",
        "--bundle-resource",
        "cowboys.wildwest.dev",
    ];
    let yaml = world
        .plain(&[&dry[..], &["-o", "yaml"]].concat())
        .await?
        .expect(0, &[])?;
    let list = world
        .plain(&[&dry[..], &["-o", "json"]].concat())
        .await?
        .expect(0, &[])?
        .json()?;
    let items = list["items"].as_array().context("items")?;
    ensure!(
        yaml.stdout.matches("\n---\n").count() == items.len() - 1,
        "{} documents: {}",
        items.len(),
        yaml.stdout
    );
    ensure!(
        items.iter().any(|item| item["kind"] == "Deployment")
            && items.iter().any(|item| item["kind"] == "CustomResourceDefinition"),
        "{list}"
    );
    // No cluster is asked: there need not be one.
    let nowhere = world.run(Path::new("/nowhere"), &dry).await?.expect(0, &[])?;
    ensure!(nowhere.stdout == yaml.stdout, "{}", nowhere.stdout);
    world.is_as(&before).await
}

async fn installs_and_then_changes_nothing(world: &World) -> Result<()> {
    let first = world
        .plain(&["deploy"])
        .await?
        .expect(0, &["namespace/kube-bind created", "deployment.apps/konnector created"])?;
    ensure!(
        !first.stdout.contains("kube-bind-konnector-bundles"),
        "{}",
        first.stdout
    );
    let before = world.installed().await?;
    let again = world
        .plain(&["deploy"])
        .await?
        .expect(0, &["deployment.apps/konnector unchanged"])?;
    let changed: Vec<_> = again
        .stdout
        .lines()
        .filter(|line| !line.ends_with(" unchanged"))
        .collect();
    ensure!(changed.is_empty(), "{changed:?}");
    world.is_as(&before).await
}

/// Whoever applies the files by hand, and whoever runs the command, install the same; whose it is, is settled once.
async fn what_kubectl_applied_is_the_same(world: &World) -> Result<()> {
    let said = async || {
        let kinds = "deployments,clusterroles,validatingadmissionpolicies";
        let said = "jsonpath={range .items[*]}{.kind} {.metadata.name} {.spec} {.rules}{'\\n'}{end}";
        world.plane.kubectl(&["get", kinds, "-A", "-o", said]).await
    };
    let before = said().await?;
    ensure!(before.contains("is-konnector"), "{before}");
    world.plane.apply(&manifests::folder("konnector")?).await?;
    for outcomes in [&["unchanged", "configured"][..], &["unchanged"]] {
        let again = world.plain(&["deploy", "-o", "json"]).await?.expect(0, &[])?.json()?;
        for item in again["items"].as_array().context("items")? {
            ensure!(outcomes.iter().any(|outcome| item["outcome"] == *outcome), "{item}");
        }
        let after = said().await?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    }
    Ok(())
}

async fn rights_for_bundles_are_added(world: &World) -> Result<()> {
    let role = "clusterrole.rbac.authorization.k8s.io/kube-bind-konnector-bundles";
    let cowboys = ["deploy", "--bundle-resource", "cowboys.wildwest.dev"];
    let created = [format!("{role} created")];
    world
        .plain(&cowboys)
        .await?
        .expect(0, &["bundles may bind cowboys.wildwest.dev from now on", &created[0]])?;
    let again = world
        .plain(&cowboys)
        .await?
        .expect(0, &[&format!("{role} unchanged")])?;
    ensure!(!again.stderr.contains("from now on"), "{}", again.stderr);
    world.plain(&["deploy", "--bundle-resource", "secrets"]).await?.expect(
        0,
        &["bundles may bind secrets from now on", &format!("{role} configured")],
    )?;
    // What is left out is not taken away.
    world.plain(&["deploy"]).await?.expect(0, &[])?;
    let rules = world
        .json(&["get", "clusterrole", "kube-bind-konnector-bundles"])
        .await?["rules"]
        .to_string();
    for resource in ["cowboys", "cowboys/status", "secrets"] {
        ensure!(rules.contains(&format!("[\"{resource}\"]")), "{resource}: {rules}");
    }
    world
        .plain(&["deploy", "--bundle-resource", "deployments.apps"])
        .await?
        .expect(2, &["deployments.apps", "Kubernetes itself"])?;
    Ok(())
}

async fn adoption_comes_and_goes(world: &World) -> Result<()> {
    let role = "clusterrole.rbac.authorization.k8s.io/kube-bind-konnector-adoption";
    world
        .plain(&["deploy", "--adoption", "opt-in"])
        .await?
        .expect(0, &[&format!("{role} created"), "deployment.apps/konnector configured"])?;
    let args = [
        "get",
        "deployment",
        "konnector",
        "-n",
        "kube-bind",
        "-o",
        "jsonpath={.spec.template.spec.containers[0].args}",
    ];
    ensure!(world.plane.kubectl(&args).await?.contains("--adoption=opt-in"));
    world
        .plain(&["deploy"])
        .await?
        .expect(0, &["keeps --adoption opt-in", "deployment.apps/konnector unchanged"])?;
    world
        .plain(&["deploy", "--adoption=off"])
        .await?
        .expect(0, &[&format!("{role} deleted"), "deployment.apps/konnector configured"])?;
    ensure!(!world.plane.kubectl(&args).await?.contains("--adoption"));
    world
        .plain(&["deploy", "--adoption=some"])
        .await?
        .expect(2, &["off, opt-in, all"])?;
    Ok(())
}

async fn flags_that_are_left_out_keep_what_is_installed(world: &World) -> Result<()> {
    let image = "registry.example.com:5000/konnector:1";
    world
        .plain(&["deploy", "--konnector-image", image, "--replicas", "2"])
        .await?
        .expect(0, &["deployment.apps/konnector configured"])?;
    world.plain(&["deploy"]).await?.expect(
        0,
        &[&format!("keeps image {image}"), "deployment.apps/konnector unchanged"],
    )?;
    let spec = &world
        .json(&["get", "deployment", "konnector", "-n", "kube-bind"])
        .await?["spec"];
    ensure!(
        spec["replicas"] == 2 && spec["template"]["spec"]["containers"][0]["image"] == image,
        "{spec}"
    );
    Ok(())
}

/// Flags and variables of the konnector that somebody added to its Deployment.
async fn flags_that_were_set_by_hand_stay(world: &World) -> Result<()> {
    let deployment = ["deployment", "konnector", "-n", "kube-bind"];
    let add =
        r#"[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--heartbeat-interval=1m"}]"#;
    world
        .plane
        .kubectl(&[&["patch"], &deployment[..], &["--type=json", "-p", add]].concat())
        .await?;
    world
        .plane
        .kubectl(&[&["set", "env"], &deployment[..], &["RUST_BACKTRACE=1"]].concat())
        .await?;
    world.plain(&["deploy"]).await?.expect(
        0,
        &["keeps --heartbeat-interval=1m", "deployment.apps/konnector unchanged"],
    )?;
    world
        .plain(&["deploy", "--adoption", "opt-in"])
        .await?
        .expect(0, &["deployment.apps/konnector configured"])?;
    let pod = world.json(&[&["get"], &deployment[..]].concat()).await?["spec"]["template"]["spec"].take();
    let container = &pod["containers"][0];
    let flags = [
        "--server-address=0.0.0.0:8090",
        "--account-policies=kube-bind-konnector",
        "--heartbeat-interval=1m",
        "--adoption=opt-in",
    ];
    ensure!(container["args"] == json!(flags), "{container}");
    let mut variables = container["env"].as_array().into_iter().flatten();
    ensure!(
        variables.any(|variable| variable["name"] == "RUST_BACKTRACE"),
        "{container}"
    );
    world
        .plain(&["deploy", "--adoption", "off"])
        .await?
        .expect(0, &["configured"])?;
    Ok(())
}

/// There is no kubelet, so that nothing ever becomes available.
async fn nobody_waits_for_ever(world: &World) -> Result<()> {
    world
        .plain(&["deploy", "--wait", "--timeout", "2s"])
        .await?
        .expect(5, &["Deployment konnector is not available"])?;
    Ok(())
}

/// A kubeconfig as a provider makes it, for contract `kube-bind-x`.
fn kubeconfig(server: &str) -> Value {
    let token = |exp: i64| format!("e30.{}.c2ln", base64_url(&json!({ "exp": exp }).to_string()));
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default", "namespace": "kube-bind-x" } }],
        "clusters": [{ "name": "default", "cluster": { "server": server } }],
        "users": [{ "name": "default", "user": { "token": token(4_000_000_000) } }],
    })
}

fn base64_url(text: &str) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

/// A response that offers cowboys under this name, and claims every Secret.
fn response(name: &str, kubeconfig: &Value) -> Value {
    json!({
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "BindingResourceResponse", "authentication": {},
        "kubeconfig": STANDARD.encode(kubeconfig.to_string()), "providerNamespace": "kube-bind-x", "bindingName": name,
        "requests": [{
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportRequest", "metadata": { "name": name },
            "spec": {
                "resources": [{ "group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"] }],
                "permissionClaims": [{ "resource": "secrets", "selector": { "labelSelector": {} } }],
                "schemaUpdatePolicy": "Never",
            },
        }],
    })
}

#[test]
fn a_provider_answers_in_a_file() -> Result<()> {
    run(async {
        let world = World::start("cli-answer").await?;
        what_is_wrong_installs_nothing(&world).await?;
        a_response_is_bound(&world).await?;
        a_secret_is_bound_as_it_is(&world).await?;
        a_bundle_takes_all(&world).await?;
        the_binding_of_a_bundle_is_not_unbound(&world).await?;
        a_bundle_is_renewed(&world).await?;
        another_provider_is_refused(&world).await
    })
}

async fn what_is_wrong_installs_nothing(world: &World) -> Result<()> {
    let good = kubeconfig("https://api.example.com");
    let mut evil = good.clone();
    evil["users"][0]["user"]["exec"] = json!({ "command": "hunter2" });
    let cowboys = world.file("response.json", &response("cowboys", &good))?;
    let evil = world.file("evil.json", &response("cowboys", &evil))?;
    let alone = world.file("kubeconfig.json", &good)?;
    let pod = world.file("pod.json", &json!({ "apiVersion": "v1", "kind": "Pod" }))?;
    for (args, code, says) in [
        (&["-f", "/nowhere/x.yaml"][..], 2, "/nowhere/x.yaml"),
        (&["-f", &pod], 2, "it is a Pod"),
        (&["-f", &alone], 2, "--bundle NAME"),
        (&["-f", &evil], 1, "exec"),
        (&["-f", &cowboys], 2, "EVERY Secret"),
        (
            &["-f", &cowboys, "--reject-claim", "configmaps.example.com"],
            2,
            "nothing to reject",
        ),
        (&["--accept-claims"], 2, "-f FILE"),
        (&["--bundle", "acme"], 2, "--file"),
        (&["--secret", "a/b"], 2, "--provider-kubeconfig"),
        (&["-f", &cowboys, "--bundle", "A"], 2, "cannot be the name of a bundle"),
    ] {
        let ended = world
            .plain(&[&["deploy"], args].concat())
            .await?
            .expect(code, &[says])?;
        ensure!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
    }
    world.is_untouched().await?;
    let path = world.plane.kubeconfig_path().to_str().context("a path in UTF-8")?;
    let missing = ["deploy", "--provider-kubeconfig", path, "--secret", "default/none"];
    world.plain(&missing).await?.expect(
        4,
        &["no Secret default/none on the provider", "bindableresourcesrequests"],
    )?;
    world.is_untouched().await
}

async fn a_response_is_bound(world: &World) -> Result<()> {
    let file = world.file(
        "response.json",
        &response("cowboys", &kubeconfig("https://api.example.com")),
    )?;
    let reject = ["deploy", "-f", &file, "--reject-claim", "secrets"];
    let dry = world
        .plain(&[&reject[..], &["--dry-run=client"]].concat())
        .await?
        .expect(0, &["kind: APIServiceBinding\n", "--show-secrets"])?;
    ensure!(!dry.stdout.contains("c2ln"), "a token: {}", dry.stdout);
    world.is_untouched().await?;
    world.plain(&reject).await?.expect(
        0,
        &[
            "secret/kubeconfig-cowboys created",
            "clusterrole.rbac.authorization.k8s.io/kube-bind-konnector-cowboys created",
            "apiservicebinding.kube-bind.io/cowboys created",
            "which is rejected",
        ],
    )?;
    let binding = world.json(&["get", "apiservicebinding", "cowboys"]).await?;
    ensure!(
        binding["spec"]["rejectedPermissionClaims"][0]["resource"] == "secrets",
        "{binding}"
    );
    ensure!(
        world.kubeconfig("kubeconfig-cowboys").await? == kubeconfig("https://api.example.com").to_string().as_bytes()
    );
    let before = world.installed().await?;
    let again = world.plain(&["deploy", "-f", &file]).await?.expect(0, &[])?;
    let changed: Vec<_> = again
        .stdout
        .lines()
        .filter(|line| !line.ends_with(" unchanged"))
        .collect();
    ensure!(
        changed.is_empty()
            && again
                .stdout
                .contains("apiservicebinding.kube-bind.io/cowboys unchanged"),
        "{again:?}"
    );
    world.is_as(&before).await
}

async fn a_secret_is_bound_as_it_is(world: &World) -> Result<()> {
    let answer = response("riders", &kubeconfig("https://api.example.com")).to_string();
    let mut secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "riders-binding-response", "namespace": "default" },
        "stringData": { "binding-response": answer } });
    world.plane.apply(&secret.to_string()).await?;
    let path = world.plane.kubeconfig_path().to_str().context("a path in UTF-8")?;
    let of_provider = [
        "deploy",
        "--accept-claims",
        "--provider-kubeconfig",
        path,
        "--secret",
        "default/riders-binding-response",
    ];
    world
        .plain(&of_provider)
        .await?
        .expect(0, &["apiservicebinding.kube-bind.io/riders created", "EVERY Secret"])?;
    secret["metadata"] = json!({ "name": "copied" });
    let file = world.file("secret.json", &secret)?;
    world
        .plain(&["deploy", "-f", &file])
        .await?
        .expect(0, &["apiservicebinding.kube-bind.io/riders unchanged"])?;
    world
        .plain(&["deploy", "-f", &file, "--secret-key", "other"])
        .await?
        .expect(2, &["no key \"other\", but binding-response"])?;
    Ok(())
}

async fn a_bundle_takes_all(world: &World) -> Result<()> {
    let alone = world.file("kubeconfig.json", &kubeconfig("https://acme.example.com"))?;
    let bundle = "apiservicebindingbundle.kube-bind.io/acme";
    world
        .plain(&["deploy", "-f", &alone, "--bundle", "acme"])
        .await?
        .expect(
            0,
            &["secret/kubeconfig-bundle-acme created", &format!("{bundle} created")],
        )?;
    let file = world.file(
        "acme.json",
        &response("cowboys", &kubeconfig("https://acme.example.com")),
    )?;
    world
        .plain(&["deploy", "-f", &file, "--bundle", "acme", "--accept-claims"])
        .await?
        .expect(
            0,
            &[
                "secret/kubeconfig-bundle-acme unchanged",
                &format!("{bundle} configured"),
                "kube-bind-konnector-bundles created",
            ],
        )?;
    let acme = world.json(&["get", "apiservicebindingbundle", "acme"]).await?;
    ensure!(acme["spec"]["acceptedClaims"][0]["resource"] == "secrets", "{acme}");
    // Claims that are not spoken of later stay accepted.
    world
        .plain(&["deploy", "-f", &alone, "--bundle", "acme"])
        .await?
        .expect(0, &[&format!("{bundle} unchanged")])?;
    let status = world
        .plain(&["status"])
        .await?
        .expect(0, &["BUNDLE", "acme", "has not seen it yet"])?;
    ensure!(
        status.stdout.contains("cowboys") && status.stdout.contains("riders"),
        "{}",
        status.stdout
    );
    let json = world
        .plain(&["status", "acme", "-o", "json"])
        .await?
        .expect(0, &[])?
        .json()?;
    ensure!(
        json["bundles"][0]["metadata"]["name"] == "acme" && json["items"] == json!([]),
        "{json}"
    );
    Ok(())
}

async fn the_binding_of_a_bundle_is_not_unbound(world: &World) -> Result<()> {
    let acme = world.json(&["get", "apiservicebindingbundle", "acme"]).await?;
    let owner = json!({ "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBindingBundle", "name": "acme",
        "uid": acme["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true });
    let binding = json!({ "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding",
        "metadata": { "name": "sheriffs", "ownerReferences": [owner] },
        "spec": { "kubeconfigSecretRef": acme["spec"]["kubeconfigSecretRef"] } });
    world.plane.apply(&binding.to_string()).await?;
    world.plain(&["status"]).await?.expect(0, &["of bundle acme"])?;
    world.plain(&["unbind", "sheriffs"]).await?.expect(
        1,
        &[
            "belongs to APIServiceBindingBundle acme",
            "spec.selector",
            "kubectl delete apiservicebindingbundle acme",
        ],
    )?;
    // That which the bundle has given up itself comes not back.
    let removed = json!({ "status": { "conditions": [{ "type": "Connected", "status": "False", "severity": "Error",
        "reason": "ExportRemoved", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } })
    .to_string();
    let patch = [
        "patch",
        "apiservicebinding",
        "sheriffs",
        "--subresource=status",
        "--type=merge",
        "-p",
        &removed,
    ];
    world.plane.kubectl(&patch).await?;
    let ended = world.plain(&["unbind", "sheriffs"]).await?.expect(0, &["unbound"])?;
    ensure!(
        ended.stderr.contains("Secret kube-bind/kubeconfig-bundle-acme stays"),
        "{ended:?}"
    );
    Ok(())
}

async fn a_bundle_is_renewed(world: &World) -> Result<()> {
    let status = json!({ "status": { "providerNamespace": "kube-bind-x", "contractUID": "uid-1" } }).to_string();
    let patch = [
        "patch",
        "apiservicebindingbundle",
        "acme",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status,
    ];
    world.plane.kubectl(&patch).await?;
    let before = world.kubeconfig("kubeconfig-bundle-acme").await?;
    world.bind(&["renew", "acme", "--wait=false"]).await?.expect(
        0,
        &[
            "APIServiceBindingBundle acme uses Secret",
            "changed Secret kube-bind/kubeconfig-bundle-acme",
        ],
    )?;
    ensure!(
        world.kubeconfig("kubeconfig-bundle-acme").await? != before,
        "the old credentials are left"
    );
    world.bind(&["renew", "--bundle", "cowboys"]).await?.expect(
        4,
        &["neither an APIServiceBinding nor an APIServiceBindingBundle \"cowboys\""],
    )?;
    Ok(())
}

async fn another_provider_is_refused(world: &World) -> Result<()> {
    let elsewhere = world.file(
        "elsewhere.json",
        &response("cowboys", &kubeconfig("https://other.example.com")),
    )?;
    world.plain(&["deploy", "-f", &elsewhere]).await?.expect(
        1,
        &["APIServiceBinding cowboys uses the provider https://api.example.com"],
    )?;
    world
        .plain(&["deploy", "-f", &elsewhere, "--bundle", "acme", "-y"])
        .await?
        .expect(
            1,
            &["APIServiceBindingBundle acme uses the provider https://api.example.com"],
        )?;
    Ok(())
}
