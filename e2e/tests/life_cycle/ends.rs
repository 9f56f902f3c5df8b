//! A binding or its CRD ends, by a person or by a prune, and nobody said what becomes of the provider's objects.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{annotations, conditions::ORPHANED_OBJECTS, names::KUBECONFIG_KEY};
use bindery_e2e::{
    bound::{Bound, deletes_copies},
    eventually_ok,
    wildwest::{self, Cowboys, SOON},
};
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, PropagationPolicy},
};

use super::{bindings, in_namespace, is_released};

const CRD: &str = "cowboys.wildwest.dev";

/// A way in which a binding is deleted.
struct Ending {
    /// The namespace of its cowboys.
    name: &'static str,
    propagation: PropagationPolicy,
    /// The Secret with the kubeconfig goes at the same time, as with a prune.
    with_secret: bool,
}

const ENDINGS: [Ending; 5] = [
    Ending {
        name: "by-kubectl",
        propagation: PropagationPolicy::Background,
        with_secret: false,
    },
    Ending {
        name: "by-kubectl-foreground",
        propagation: PropagationPolicy::Foreground,
        with_secret: false,
    },
    Ending {
        name: "by-argo-cd",
        propagation: PropagationPolicy::Foreground,
        with_secret: true,
    },
    Ending {
        name: "by-flux",
        propagation: PropagationPolicy::Background,
        with_secret: true,
    },
    // The last one, because it leaves the CRD.
    Ending {
        name: "by-kubectl-orphan",
        propagation: PropagationPolicy::Orphan,
        with_secret: false,
    },
];

pub(super) async fn whatever_ends_nothing_is_lost(bound: &Bound) -> Result<()> {
    for ending in ENDINGS {
        ends(bound, &ending).await.context(ending.name)?;
    }
    Ok(())
}

async fn ends(bound: &Bound, ending: &Ending) -> Result<()> {
    let cowboys = in_namespace(bound, ending.name).await?;
    let (billy, jesse) = (synced(&cowboys, "billy").await?, synced(&cowboys, "jesse").await?);
    if ending.with_secret {
        prune_secrets(bound).await?;
    }
    let params = DeleteParams {
        propagation_policy: Some(ending.propagation.clone()),
        ..DeleteParams::default()
    };
    bindings(bound).delete("cowboys", &params).await?;
    binding_ends(bound).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(bound.consumer.plane.client());
    if ending.propagation == PropagationPolicy::Orphan {
        let ours = cowboys.ours.get("billy").await?;
        ensure!(ours.finalizers().is_empty(), "billy is held: {:?}", ours.finalizers());
        definitions.delete(CRD, &DeleteParams::default()).await?;
    }
    definition_ends(&definitions).await?;
    if ending.with_secret {
        return ends_unmarked(bound, &cowboys).await;
    }
    for name in ["billy", "jesse"] {
        is_released(&cowboys.copies, name).await?;
    }

    bound.bind(&["cowboys"]).await?;
    // What says the same is linked, and what says something else is a conflict.
    cowboys.create("billy", "ride").await?;
    is_linked(&cowboys, "billy", &billy).await?;
    cowboys.create("jesse", "hide").await?;
    eventually_ok("the conflict to be told", SOON, async || {
        let told = bound.condition("ObjectsInSync").await?;
        ensure!(told.message.contains("says something else"), "{told:?}");
        Ok(())
    })
    .await?;
    let copy = cowboys.copies.get("jesse").await?;
    ensure!(
        copy.uid() == jesse.uid() && copy.data["spec"]["intent"] == "ride",
        "{copy:?}"
    );
    cowboys.ours.delete("jesse", &DeleteParams::default()).await?;
    cowboys.ours.delete("billy", &DeleteParams::default()).await?;
    cowboys.gone("billy").await
}

/// Where the kubeconfig went too, nobody could mark the copies: the next bind shows them.
async fn ends_unmarked(bound: &Bound, cowboys: &Cowboys) -> Result<()> {
    for name in ["billy", "jesse"] {
        cowboys.copies.get(name).await?;
    }
    bound.bind(&["cowboys"]).await?;
    synced(cowboys, "annie").await?;
    eventually_ok("the copies to be shown as orphans", SOON, async || {
        let told = bound.condition(ORPHANED_OBJECTS).await?;
        ensure!(told.message.starts_with("2 copies"), "{told:?}");
        Ok(())
    })
    .await?;
    bound.bind(&["orphans", "cowboys", "--delete", "--yes"]).await?;
    cowboys.ours.delete("annie", &DeleteParams::default()).await?;
    for name in ["annie", "billy", "jesse"] {
        cowboys.gone(name).await?;
    }
    Ok(())
}

/// The CRD is deleted while its binding stays: the konnector makes the CRD anew, and objects that come back have their copies again.
pub(super) async fn a_deleted_crd_comes_back_with_its_copies(bound: &Bound) -> Result<()> {
    let cowboys = in_namespace(bound, "crd-deleted").await?;
    let copy = synced(&cowboys, "billy").await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(bound.consumer.plane.client());
    let before = definitions.get(CRD).await?.uid();
    definitions.delete(CRD, &DeleteParams::default()).await?;
    eventually_ok("the CRD to be made anew", SOON, async || {
        let after = definitions.get_opt(CRD).await?.context("no CRD")?;
        ensure!(after.uid() != before, "it is the old one");
        Ok(())
    })
    .await?;
    is_released(&cowboys.copies, "billy").await?;
    eventually_ok("billy to be created again", SOON, async || {
        cowboys.create("billy", "ride").await.map(drop)
    })
    .await?;
    is_linked(&cowboys, "billy", &copy).await?;
    // A deletion of one object is a deletion all the same.
    cowboys.ours.delete("billy", &DeleteParams::default()).await?;
    cowboys.gone("billy").await
}

pub(super) async fn the_user_says_what_becomes_of_copies(bound: &Bound) -> Result<()> {
    for (name, flags, said, is_kept) in [
        ("kept", &["--keep-objects"][..], true, true),
        ("nothing-said", &[][..], false, true),
        ("deleted", &["--delete-objects"][..], false, false),
        ("said-before", &["--yes"][..], true, false),
    ] {
        let cowboys = in_namespace(bound, name).await?;
        synced(&cowboys, "billy").await?;
        if said {
            deletes_copies(&bindings(bound), "cowboys").await?;
        }
        bound
            .bind(&[&["unbind", "cowboys"][..], flags].concat())
            .await
            .context(name)?;
        if is_kept {
            is_released(&cowboys.copies, "billy").await.context(name)?;
        } else {
            let left = cowboys.copies.get_opt("billy").await?;
            ensure!(left.is_none(), "{name}: {left:?}");
        }
        bound.bind(&["cowboys"]).await?;
    }
    Ok(())
}

/// What former cases kept is listed by contract, made the provider's own, or deleted.
pub(super) async fn the_providers_admin_ends_what_was_kept(bound: &Bound) -> Result<()> {
    let kubeconfig = bound.provider.plane.kubeconfig_path().to_string_lossy().into_owned();
    let released = async |flags: &[&str]| {
        let command = [
            "provider",
            "released",
            "--provider-kubeconfig",
            &kubeconfig,
            "-o",
            "json",
        ];
        let listed = bound.bind(&[&command[..], flags].concat()).await?;
        let listed: serde_json::Value = serde_json::from_str(&listed)?;
        let items = listed["items"].as_array().cloned().context("items")?;
        anyhow::Ok(items)
    };
    let kept = Cowboys::of(&bound.provider, &bound.consumer, "kept").await?;
    let place = kept.copies.get("billy").await?.namespace().context("a namespace")?;
    let listed = released(&["--namespace", &place]).await?;
    ensure!(listed.len() == 1, "{listed:?}");
    ensure!(
        listed[0]["name"] == "billy" && listed[0]["contract"] == *bound.contract,
        "{listed:?}"
    );
    ensure!(listed[0]["since"].is_string(), "{listed:?}");
    released(&["--namespace", &place, "--forget", "--yes"]).await?;
    let own = kept.copies.get("billy").await?;
    ensure!(
        !own.annotations().contains_key(annotations::CLUSTER_NAMESPACE),
        "{:?}",
        own.annotations()
    );
    released(&["--contract", &bound.contract, "--delete", "--yes"]).await?;
    ensure!(released(&[]).await?.is_empty(), "objects are left");
    kept.copies.get("billy").await?;
    kept.copies.delete("billy", &DeleteParams::default()).await?;
    Ok(())
}

/// Creates a cowboy, waits until it is in sync, and returns its copy.
async fn synced(cowboys: &Cowboys, name: &str) -> Result<DynamicObject> {
    cowboys.create(name, "ride").await?;
    cowboys.copied(name, "ride").await?;
    wildwest::wait(&format!("{name} to be held"), &cowboys.ours, name, |ours| {
        !ours.finalizers().is_empty()
    })
    .await?;
    Ok(cowboys.copies.get(name).await?)
}

/// Waits until a released copy is that of the new object of its name.
async fn is_linked(cowboys: &Cowboys, name: &str, copy: &DynamicObject) -> Result<()> {
    wildwest::wait(&format!("{name} to be linked"), &cowboys.ours, name, |ours| {
        ours.annotations().get(annotations::PROVIDER_UID) == copy.uid().as_ref()
    })
    .await?;
    let (ours, copy) = (cowboys.ours.get(name).await?, cowboys.copies.get(name).await?);
    ensure!(
        copy.annotations().get(annotations::CONSUMER_UID) == ours.uid().as_ref(),
        "{:?}",
        copy.annotations()
    );
    Ok(())
}

/// Deletes the Secrets with kubeconfigs that the user installed.
async fn prune_secrets(bound: &Bound) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(bound.consumer.plane.client(), "kube-bind");
    for secret in secrets.list(&ListParams::default()).await? {
        let is_given = !secret.labels().contains_key(bindery_api::labels::CONTRACT_UID);
        if is_given
            && secret
                .data
                .as_ref()
                .is_some_and(|data| data.contains_key(KUBECONFIG_KEY))
        {
            secrets.delete(&secret.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

async fn binding_ends(bound: &Bound) -> Result<()> {
    eventually_ok("the binding to end", SOON, async || {
        let left = bindings(bound).get_opt("cowboys").await?;
        ensure!(left.is_none(), "{:?}", left.and_then(|binding| binding.status));
        Ok(())
    })
    .await
}

async fn definition_ends(definitions: &Api<CustomResourceDefinition>) -> Result<()> {
    eventually_ok("the CRD to end", SOON, async || {
        ensure!(definitions.get_opt(CRD).await?.is_none(), "it is left");
        Ok(())
    })
    .await
}
