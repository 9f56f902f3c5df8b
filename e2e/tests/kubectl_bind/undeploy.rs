//! What removes the konnector, on a real cluster: what it refuses to remove, what it leaves, and that nothing else is left.
//! No konnector runs here.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{ControlPlane, Process, manifests, process::Signal, run};
use serde_json::{Value, json};

use super::{Ended, World};

/// Kinds of which something is installed, but for definitions.
const KINDS: &str = "namespaces,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,deployments,\
                     validatingadmissionpolicies,validatingadmissionpolicybindings";
const DEFINITIONS: [&str; 3] = [
    "apiservicebindingbundles.kube-bind.io",
    "apiservicebindings.kube-bind.io",
    "resourcesets.apps.cloudrobotics.com",
];
const SOON: Duration = Duration::from_mins(2);
/// What an older release applied with it.
const OLD: &str = "example.com/old";

impl World {
    async fn admin(&self, args: &[&str]) -> Result<Ended> {
        self.run(self.plane.kubeconfig_path(), args).await
    }

    /// What is installed, as kind and name, and whether the set owns it.
    async fn owned(&self) -> Result<Vec<(String, bool)>> {
        let all: Value = serde_json::from_str(&self.plane.kubectl(&["get", KINDS, "-A", "-o", "json"]).await?)?;
        let items = all["items"].as_array().context("items")?;
        let ours = items.iter().filter_map(|item| {
            let meta = &item["metadata"];
            let name = meta["name"].as_str()?;
            let is_ours = name.starts_with("kube-bind") || name == "konnector";
            let is_owner = |owner: &Value| {
                owner["kind"] == "ResourceSet"
                    && owner["name"]
                        .as_str()
                        .is_some_and(|name| name.starts_with("konnector.v"))
            };
            let owners = meta["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
            is_ours.then(|| {
                (
                    format!("{} {name}", item["kind"].as_str().unwrap_or_default()),
                    owners.iter().any(is_owner),
                )
            })
        });
        Ok(ours.collect())
    }

    async fn names(&self, kind: &str) -> Result<Vec<String>> {
        let names = [
            "get",
            kind,
            "-A",
            "-o",
            "custom-columns=N:.metadata.name",
            "--no-headers",
        ];
        let names = self.plane.kubectl(&names).await?;
        Ok(names.lines().map(|name| name.trim().to_owned()).collect())
    }

    async fn definitions_are_there(&self) -> Result<()> {
        let there = self.names("crds").await?;
        for name in DEFINITIONS {
            ensure!(there.iter().any(|other| other == name), "{name} is not in {there:?}");
        }
        Ok(())
    }
}

#[test]
fn what_was_deployed_is_undeployed_and_nothing_else() -> Result<()> {
    run(async {
        let world = World::start("cli-undeploy").await?;
        nothing_is_installed(&world).await?;
        what_kubectl_applied_is_not_removed(&world).await?;
        it_is_taken_into_the_set(&world).await?;
        who_stops_it_is_told_how_to_go_on(&world).await?;
        what_is_bound_stands_in_the_way(&world).await?;
        what_others_keep_in_the_namespace_stays(&world).await?;
        nothing_is_left_but_definitions(&world).await?;
        a_set_of_somebody_else_is_left(&world).await?;
        what_a_former_release_applied_is_taken_whole(&world).await?;
        it_comes_again(&world).await
    })
}

async fn nothing_is_installed(world: &World) -> Result<()> {
    world
        .admin(&["undeploy"])
        .await?
        .expect(4, &["not installed on this cluster", "--ignore-not-found"])?;
    let ended = world.admin(&["undeploy", "--ignore-not-found"]).await?.expect(0, &[])?;
    ensure!(ended.stdout.is_empty(), "{ended:?}");
    Ok(())
}

/// As a user of an older release has it, with a label that is not applied any more.
async fn what_kubectl_applied_is_not_removed(world: &World) -> Result<()> {
    let all = manifests::folder("konnector")?;
    let labelled = all.replacen(
        "  name: kube-bind\n",
        &format!("  name: kube-bind\n  labels: {{{OLD}: \"yes\"}}\n"),
        1,
    );
    ensure!(labelled != all, "the namespace has no label");
    let path = world.plane.workdir().write("konnector.yaml", &labelled)?;
    let path = path.to_str().context("a path in UTF-8")?;
    world.plane.kubectl(&["apply", "-f", path]).await?;
    let before = world.owned().await?;
    ensure!(before.iter().all(|(_, owned)| !owned), "{before:?}");
    world.admin(&["undeploy"]).await?.expect(
        1,
        &[
            "was not installed as a set",
            "kubectl delete -f deploy/konnector",
            "kubectl bind deploy",
        ],
    )?;
    world
        .admin(&["undeploy", "--ignore-not-found"])
        .await?
        .expect(1, &["was not installed as a set"])?;
    ensure!(world.owned().await? == before, "something was removed");
    Ok(())
}

async fn it_is_taken_into_the_set(world: &World) -> Result<()> {
    world.admin(&["deploy"]).await?.expect(
        0,
        &[
            "customresourcedefinition.apiextensions.k8s.io/resourcesets.apps.cloudrobotics.com created",
            "deployment.apps/konnector configured",
            "namespace/kube-bind configured",
            "ResourceSet konnector.v1",
        ],
    )?;
    let owned = world.owned().await?;
    ensure!(owned.len() > 10 && owned.iter().all(|(_, owned)| *owned), "{owned:?}");
    let labels = world
        .plane
        .kubectl(&["get", "namespace", "kube-bind", "-o", "jsonpath={.metadata.labels}"])
        .await?;
    ensure!(!labels.contains(OLD), "what left the manifest is there still: {labels}");
    // So that the garbage collector knows ResourceSets now, and not in half a minute.
    world.plane.restart_controller_manager()
}

/// While it waits for another that is at work, as at any moment from then on.
async fn who_stops_it_is_told_how_to_go_on(world: &World) -> Result<()> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "synk-konnector", "namespace": "kube-bind" },
        "spec": { "holderIdentity": "somebody@elsewhere", "leaseDurationSeconds": 600,
            "renewTime": "2026-01-01T00:00:00.000000Z" },
    });
    world.plane.apply(&lease.to_string()).await?;
    for args in [&["deploy", "--replicas=2"][..], &["undeploy"]] {
        let mut command = Process::cargo_bin("kubectl-bind")?;
        command.env("KUBECONFIG", world.plane.kubeconfig_path()).args(args);
        let mut process = Process::spawn_in(world.plane.workdir().path(), "stopped", &command)?;
        process
            .wait_for_line("somebody@elsewhere is at work on this", SOON)
            .await?;
        process.signal(Signal::SIGINT)?;
        let status = process.wait(SOON).await?;
        process.hush();
        let log = process.log();
        ensure!(status.code() == Some(130), "{args:?}: {status}: {log}");
        ensure!(log.contains("run this again, and it goes on"), "{args:?}: {log}");
    }
    ensure!(
        world.names("resourcesets").await? == ["konnector.v1"],
        "something was done"
    );
    world
        .plane
        .kubectl(&["delete", "lease", "synk-konnector", "-n", "kube-bind"])
        .await?;
    Ok(())
}

async fn what_is_bound_stands_in_the_way(world: &World) -> Result<()> {
    let secret = json!({ "name": "west", "namespace": "kube-bind", "key": "kubeconfig" });
    let object = |kind: &str, name: &str| {
        json!({ "apiVersion": "kube-bind.io/v1alpha2", "kind": kind, "metadata": { "name": name },
            "spec": { "kubeconfigSecretRef": secret } })
    };
    let versions = world.names("resourcesets").await?;
    for (kind, name, end) in [
        ("APIServiceBinding", "cowboys", "kubectl bind unbind cowboys"),
        (
            "APIServiceBindingBundle",
            "acme",
            "kubectl delete apiservicebindingbundle acme",
        ),
    ] {
        world.plane.apply(&object(kind, name).to_string()).await?;
        for args in [&["undeploy"][..], &["undeploy", "--dry-run"]] {
            world.admin(args).await?.expect(1, &[&format!("{kind} {name}"), end])?;
        }
        world.plane.kubectl(&["delete", kind, name]).await?;
    }
    ensure!(
        world.owned().await?.iter().all(|(_, owned)| *owned),
        "something was removed"
    );
    ensure!(world.names("resourcesets").await? == versions);
    Ok(())
}

/// A kubeconfig of the user's own, and the server of a provider, whose namespace has the same name.
async fn what_others_keep_in_the_namespace_stays(world: &World) -> Result<()> {
    world.plane.apply(&manifests::file("server/namespace.yaml")?).await?;
    world
        .plane
        .kubectl(&[
            "create",
            "secret",
            "generic",
            "west",
            "-n",
            "kube-bind",
            "--from-literal=kubeconfig=x",
        ])
        .await?;
    let says = [
        "secret/west",
        "serviceaccount/bindery-server",
        "namespace kube-bind stays",
    ];
    let gone = "deployment.apps/konnector deleted";
    let dry = world.admin(&["undeploy", "--dry-run"]).await?.expect(0, &says)?;
    ensure!(dry.stdout.contains(&format!("{gone} (dry run)\n")), "{dry:?}");
    ensure!(!dry.stdout.contains("namespace/"), "{dry:?}");
    ensure!(
        world.owned().await?.iter().all(|(_, owned)| *owned),
        "a dry run removed something"
    );

    let ended = world.admin(&["undeploy"]).await?.expect(0, &says)?;
    ensure!(
        ended.stdout == dry.stdout.replace(" (dry run)", ""),
        "{ended:?}\n{dry:?}"
    );
    let left = world.owned().await?;
    ensure!(left == [("Namespace kube-bind".to_owned(), false)], "{left:?}");
    ensure!(world.names("resourcesets").await?.is_empty());
    let secrets = world.names("secrets").await?;
    ensure!(secrets.contains(&"west".to_owned()), "{secrets:?}");
    ensure!(!secrets.iter().any(|name| name.starts_with("synk-")), "{secrets:?}");
    ensure!(
        world
            .names("serviceaccounts")
            .await?
            .contains(&"bindery-server".to_owned())
    );
    world.definitions_are_there().await
}

async fn nothing_is_left_but_definitions(world: &World) -> Result<()> {
    world
        .admin(&["deploy"])
        .await?
        .expect(0, &["deployment.apps/konnector created"])?;
    world
        .plane
        .kubectl(&[
            "delete",
            "secret/west",
            "serviceaccount/bindery-server",
            "-n",
            "kube-bind",
        ])
        .await?;
    let ended = world
        .admin(&["undeploy", "-o", "json"])
        .await?
        .expect(0, &["the definitions stay", DEFINITIONS[2]])?;
    let items = ended.json()?;
    let deleted = |name: &str| {
        let items = items["items"].as_array().map_or(&[][..], Vec::as_slice);
        items
            .iter()
            .any(|item| item["object"] == name && item["outcome"] == "deleted")
    };
    ensure!(
        deleted("namespace/kube-bind") && deleted("deployment.apps/konnector"),
        "{items}"
    );
    let left = world.owned().await?;
    ensure!(left.is_empty(), "{left:?}");
    ensure!(world.names("resourcesets").await?.is_empty());
    world.definitions_are_there().await?;
    world.admin(&["undeploy"]).await?.expect(4, &["not installed"])?;
    Ok(())
}

/// One with the same name, as another program or another user applied it.
async fn a_set_of_somebody_else_is_left(world: &World) -> Result<()> {
    for (annotations, why) in [
        (json!({}), "it says no namespace"),
        (
            json!({ "synk.cloudrobotics.com/namespace": "team" }),
            "it has namespace team",
        ),
        (
            json!({ "synk.cloudrobotics.com/namespace": "kube-bind" }),
            "it does not list deployment.apps/konnector",
        ),
    ] {
        let items = json!([{ "namespace": "kube-bind", "name": "settings" }]);
        let set = json!({
            "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet",
            "metadata": { "name": "konnector.v7", "labels": { "name": "konnector" }, "annotations": annotations },
            "spec": { "resources": [{ "version": "v1", "kind": "ConfigMap", "items": items }] },
            "status": { "phase": "Settled" },
        });
        world.plane.apply(&set.to_string()).await?;
        for args in [&["deploy"][..], &["undeploy"], &["undeploy", "--ignore-not-found"]] {
            let says = ["set konnector of this cluster is not that of the konnector", why];
            world.admin(args).await?.expect(1, &says)?;
        }
        let sets = world.names("resourcesets").await?;
        ensure!(sets == ["konnector.v7"], "{sets:?}");
        let installed = world.owned().await?;
        ensure!(installed.is_empty(), "{installed:?}");
        world.plane.kubectl(&["delete", "resourceset", "konnector.v7"]).await?;
    }
    Ok(())
}

/// It applied server-side, and left no note of what. What a later release does not have any more goes: here an exception of
/// a policy, which would let the konnector write what an admin applies.
async fn what_a_former_release_applied_is_taken_whole(world: &World) -> Result<()> {
    let all = manifests::folder("konnector")?;
    let condition = "    - name: is-konnector\n";
    let former = all.replace(
        condition,
        &format!("    - name: is-elsewhere\n      expression: request.namespace != 'kube-bind'\n{condition}"),
    );
    ensure!(former != all, "the policy has no condition {condition:?}");
    let former = format!("{former}\n---\n{}", manifests::file("konnector/optional/bundles.yaml")?);
    let path = world.plane.workdir().write("former.yaml", &former)?;
    let path = path.to_str().context("a path in UTF-8")?;
    let apply = [
        "apply",
        "--server-side",
        "--field-manager=kubectl-bind-deploy",
        "-f",
        path,
    ];
    world.plane.kubectl(&apply).await?;
    let policies = async || {
        let get = ["get", "validatingadmissionpolicies", "-o", "jsonpath={.items[*].spec}"];
        world.plane.kubectl(&get).await
    };
    ensure!(policies().await?.contains("is-elsewhere"), "it was not applied");
    world.admin(&["deploy"]).await?.expect(
        0,
        &[
            "validatingadmissionpolicy.admissionregistration.k8s.io/kube-bind-konnector-claims configured",
            "ResourceSet konnector.v1",
        ],
    )?;
    let left = policies().await?;
    ensure!(!left.contains("is-elsewhere"), "{left}");
    let again = world.admin(&["deploy"]).await?.expect(0, &["unchanged"])?;
    ensure!(!again.stdout.contains("configured"), "{again:?}");
    // The rights for bundles, too, which nobody named this time.
    let owned = world.owned().await?;
    ensure!(
        owned.contains(&("ClusterRole kube-bind-konnector-bundles".to_owned(), true)),
        "{owned:?}"
    );
    what_was_taken_out_of_the_set_is_said_to_stay(world).await
}

async fn what_was_taken_out_of_the_set_is_said_to_stay(world: &World) -> Result<()> {
    let rights = ["clusterrolebinding", "kube-bind-konnector-bundles"];
    let nobodys = json!({ "metadata": { "ownerReferences": null } }).to_string();
    let patch = [&["patch"][..], &rights, &["--type=merge", "-p", &nobodys]].concat();
    world.plane.kubectl(&patch).await?;
    let name = "clusterrolebinding.rbac.authorization.k8s.io/kube-bind-konnector-bundles";
    for args in [&["undeploy", "--dry-run"][..], &["undeploy"]] {
        let says =
            [&format!("these objects stay, because set konnector does not own them, or not alone: {name}\n")[..]];
        let ended = world.admin(args).await?.expect(0, &says)?;
        ensure!(!ended.stdout.contains(name), "{ended:?}");
    }
    let left = world.owned().await?;
    let expect = [("ClusterRoleBinding kube-bind-konnector-bundles".to_owned(), false)];
    ensure!(left == expect, "{left:?}");
    world.plane.kubectl(&[&["delete"][..], &rights].concat()).await?;
    Ok(())
}

async fn it_comes_again(world: &World) -> Result<()> {
    world
        .admin(&["deploy"])
        .await?
        .expect(0, &["namespace/kube-bind created", "ResourceSet konnector.v1"])?;
    // Whoever does not wait has begun it all the same.
    world
        .admin(&["undeploy", "--wait=false"])
        .await?
        .expect(0, &["is being deleted"])?;
    bindery_e2e::eventually("all to be gone", Duration::from_mins(2), async || {
        Ok(world.owned().await?.is_empty().then_some(()))
    })
    .await
}

/// An account of this cluster that may do all, and whose requests are noted.
async fn account(plane: &ControlPlane) -> Result<(String, PathBuf)> {
    plane
        .kubectl(&["create", "serviceaccount", "deployer", "-n", "default"])
        .await?;
    let grant = [
        "create",
        "clusterrolebinding",
        "deployer",
        "--clusterrole=cluster-admin",
    ];
    plane
        .kubectl(&[&grant[..], &["--serviceaccount=default:deployer"]].concat())
        .await?;
    let kubeconfig = plane.service_account_kubeconfig("default", "deployer").await?;
    Ok(("system:serviceaccount:default:deployer".to_owned(), kubeconfig))
}

#[test]
fn deploying_again_writes_nothing() -> Result<()> {
    run(async {
        let world = World::on(ControlPlane::start_audited("cli-again").await?).await?;
        let (user, kubeconfig) = account(&world.plane).await?;
        let deploy = async |args: &[&str]| -> Result<Vec<String>> {
            let audit = world.plane.audit()?;
            let then = audit.now()?;
            world
                .run(Path::new(&kubeconfig), &[&["deploy"], args].concat())
                .await?
                .expect(0, &[])?;
            let asked = audit.since(then)?.into_iter().filter(|asked| asked.by == user);
            let writes = asked.filter(|asked| asked.is_write() && !asked.dry_run);
            Ok(writes
                .map(|asked| format!("{} {}/{}", asked.verb, asked.resource, asked.name))
                .collect())
        };
        for args in [
            &[][..],
            &["--adoption", "all", "--bundle-resource", "cowboys.wildwest.dev"],
            &[
                "--replicas",
                "2",
                "--konnector-image",
                "registry.example.com:5000/konnector:1",
            ],
            &["--adoption", "off"],
        ] {
            let first = deploy(args).await?;
            ensure!(first.len() > 10, "{args:?} wrote {first:?}");
            for again in [args, &[]] {
                let writes = deploy(again).await?;
                ensure!(writes.is_empty(), "{again:?} after {args:?} wrote {writes:?}");
            }
        }
        let sets = world.names("resourcesets").await?;
        ensure!(sets == ["konnector.v4"], "{sets:?}");
        let rules = [
            "get",
            "clusterrole",
            "kube-bind-konnector-bundles",
            "-o",
            "jsonpath={.rules}",
        ];
        ensure!(
            world.plane.kubectl(&rules).await?.contains("cowboys"),
            "rights for bundles are gone"
        );
        Ok(())
    })
}
