//! The policy on what the konnector writes of claimed resources, whatever rights a binding gave it.

use std::process::Output;

use anyhow::{Result, ensure};
use bindery_e2e::{ControlPlane, manifests, process, run};
use serde_json::{Value, json};

use super::LIMIT;

const KONNECTOR: &str = "system:serviceaccount:kube-bind:konnector";

/// A Secret with the marks of a copy of the provider's, or without.
fn secret(name: &str, namespace: &str, marked: bool, kind: &str) -> Value {
    let mut secret = json!({ "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": { "name": name, "namespace": namespace }, "stringData": { "a": "b" } });
    if marked {
        secret["metadata"]["labels"] = json!({ "kube-bind.io/owner": "provider" });
        secret["metadata"]["annotations"] = json!({ "kube-bind.io/cluster-namespace": "kube-bind-x",
            "kubernetes.io/service-account.name": "default" });
    }
    secret
}

/// kubectl as the konnector.
async fn konnector(plane: &ControlPlane, args: &[&str], input: &str) -> Result<Output> {
    let mut command = plane.kubectl_command(plane.kubeconfig_path());
    command.args(["--as", KONNECTOR]).args(args);
    process::run_with_input(command, input.as_bytes().to_vec(), LIMIT).await
}

async fn apply(plane: &ControlPlane, object: &Value) -> Result<Output> {
    konnector(
        plane,
        &["apply", "--server-side", "--force-conflicts", "--filename=-"],
        &object.to_string(),
    )
    .await
}

fn refused(output: &Output, says: &str) -> Result<()> {
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && text.contains(says),
        "{says:?} is not in: {text}"
    );
    Ok(())
}

fn done(output: &Output) -> Result<()> {
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn the_konnector_writes_claimed_objects_by_their_marks_alone() -> Result<()> {
    run(async {
        let plane = ControlPlane::start("cli-policy").await?;
        plane.apply(&manifests::folder("konnector")?).await?;
        // As a binding with an accepted claim would have it.
        plane
            .kubectl(&[
                "create",
                "clusterrole",
                "claims",
                "--verb=*",
                "--resource=secrets,configmaps,serviceaccounts",
            ])
            .await?;
        plane
            .kubectl(&[
                "create",
                "clusterrolebinding",
                "claims",
                "--clusterrole=claims",
                "--user",
                KONNECTOR,
            ])
            .await?;
        plane.kubectl(&["create", "namespace", "west"]).await?;
        let unmarked = secret("bare", "west", false, "Opaque");
        bindery_e2e::eventually_ok("the policy", LIMIT, async || {
            refused(&apply(&plane, &unmarked).await?, "carry its marks")?;
            // Until then it was let through.
            konnector(
                &plane,
                &["delete", "secret", "bare", "-n", "west", "--ignore-not-found"],
                "",
            )
            .await?;
            Ok(())
        })
        .await?;
        plane
            .kubectl(&["delete", "secret", "bare", "-n", "west", "--ignore-not-found"])
            .await?;

        let copy = secret("copy", "west", true, "Opaque");
        done(&apply(&plane, &copy).await?)?;
        let strip = [
            "annotate",
            "secret",
            "copy",
            "-n",
            "west",
            "kube-bind.io/cluster-namespace-",
        ];
        refused(&konnector(&plane, &strip, "").await?, "carry its marks")?;
        for kind in ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"] {
            refused(
                &apply(&plane, &secret("token", "west", true, kind)).await?,
                "token of this cluster",
            )?;
        }

        plane
            .apply(&secret("mine", "west", false, "Opaque").to_string())
            .await?;
        let delete = |name: &'static str| ["delete", "secret", name, "-n", "west"];
        refused(&konnector(&plane, &delete("mine"), "").await?, "carry its marks")?;
        let takeover = secret("mine", "west", true, "Opaque");
        refused(&apply(&plane, &takeover).await?, "carry its marks")?;
        done(&konnector(&plane, &delete("copy"), "").await?)?;

        // The credentials that it renews lie in its own namespace, and others write as they may.
        done(&apply(&plane, &secret("renewed", "kube-bind", false, "Opaque")).await?)?;
        let token = secret("token", "kube-bind", true, "kubernetes.io/service-account-token");
        refused(&apply(&plane, &token).await?, "token of this cluster")?;
        an_admins_manifests_are_not_its_to_write(&plane).await?;
        it_keeps_no_admin_from_applying(&plane).await?;
        plane.kubectl(&["delete", "secret", "mine", "-n", "west"]).await?;
        Ok(())
    })
}

/// The Lease of the konnector's set, which whoever holds it alone may apply; the one by which it leads is its own.
async fn it_keeps_no_admin_from_applying(plane: &ControlPlane) -> Result<()> {
    let lease = |name: &str, holder: &str| {
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": name, "namespace": "kube-bind" }, "spec": { "holderIdentity": holder } })
        .to_string()
    };
    let create = async |name: &str| konnector(plane, &["create", "--filename=-"], &lease(name, "konnector")).await;
    let replace = async |name: &str| konnector(plane, &["replace", "--filename=-"], &lease(name, "other")).await;
    refused(&create("synk-konnector").await?, "no Lease of a set")?;
    plane.apply(&lease("synk-konnector", "admin")).await?;
    refused(&replace("synk-konnector").await?, "no Lease of a set")?;
    plane
        .kubectl(&["delete", "lease", "synk-konnector", "-n", "kube-bind"])
        .await?;
    done(&create("kube-bind").await?)?;
    done(&replace("kube-bind").await?)
}

/// What synk and Helm keep for a rollback, whatever it is called and whatever it looks like.
async fn an_admins_manifests_are_not_its_to_write(plane: &ControlPlane) -> Result<()> {
    let history = "synk.cloudrobotics.com/history";
    for (name, kind) in [
        ("synk-konnector.v1-0", history),
        ("synk-konnector.v2-0", "Opaque"),
        ("other", history),
        ("sh.helm.release.v1.konnector.v1", "Opaque"),
        ("another", "helm.sh/release.v1"),
    ] {
        let kept = secret(name, "kube-bind", false, kind);
        refused(&apply(plane, &kept).await?, "keeps for a rollback")?;
        plane.apply(&kept.to_string()).await?;
        let mut changed = kept.clone();
        changed["stringData"] = json!({ "a": "c" });
        refused(&apply(plane, &changed).await?, "keeps for a rollback")?;
        refused(
            &konnector(plane, &["delete", "secret", name, "-n", "kube-bind"], "").await?,
            "keeps for a rollback",
        )?;
    }
    Ok(())
}
