//! What holds in a contract's own namespaces too, and who is concerned at all.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    names,
    v1alpha2::{APIServiceNamespace, APIServiceNamespaceSpec},
};
use bindery_e2e::eventually_ok;
use k8s_openapi::{
    api::{
        authorization::v1::SelfSubjectAccessReview,
        core::v1::{ConfigMap, Secret},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{
    A, AB, NOT_OWN, PROBE, SHARED, SOON, case, change, cowboy, cowboys, dry_run, named, refused, sheriff, sheriffs,
};

#[test]
fn the_probe_is_refused_by_its_own_words() -> Result<()> {
    case(async |world| {
        refused(world.probe(&world.a, names::POLICY_PROBE).await, &[PROBE])?;
        world.probe(&world.a, "ranch").await?;
        // To anybody else it is a name as any other.
        world.probe(&world.plane.client(), names::POLICY_PROBE).await?;
        Ok(())
    })
}

#[test]
fn a_contract_is_free_in_its_own_namespaces_and_in_no_others() -> Result<()> {
    case(async |world| {
        for namespace in [A, "kube-bind-a-ranch"] {
            let api = cowboys(&world.a, namespace);
            api.create(&PostParams::default(), &cowboy("calamity", None)).await?;
            api.patch("calamity", &PatchParams::default(), &change("ride")).await?;
            api.delete("calamity", &DeleteParams::default()).await?;
        }
        let foreign = [
            (&world.a, AB),
            (&world.a, "kube-bind-ab-ranch"),
            (&world.a, "default"),
            (&world.ab, A),
        ];
        for (client, namespace) in foreign.into_iter().chain([(&world.ab, "kube-bind-a-ranch")]) {
            let api = cowboys(client, namespace);
            let outcome = api.create(&dry_run(), &cowboy("calamity", None)).await;
            refused(outcome, &[namespace, NOT_OWN]).context(namespace)?;
        }
        Ok(())
    })
}

#[test]
fn token_secrets_are_refused_everywhere() -> Result<()> {
    case(async |world| {
        let secret = |name: &str, type_: Option<&str>| -> Secret {
            let mut secret = Secret::default();
            secret.metadata.name = Some(name.to_owned());
            let annotations = [("kubernetes.io/service-account.name".to_owned(), "default".to_owned())];
            secret.metadata.annotations = Some(annotations.into());
            secret.type_ = type_.map(ToOwned::to_owned);
            secret
        };
        let says = ["Secrets that hold tokens"];
        for namespace in [A, "kube-bind-a-ranch", SHARED] {
            let api: Api<Secret> = Api::namespaced(world.a.clone(), namespace);
            for type_ in ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"] {
                let outcome = api.create(&dry_run(), &secret(&named(A, "token"), Some(type_))).await;
                refused(outcome, &says).with_context(|| format!("{type_} in {namespace}"))?;
            }
            for type_ in [None, Some("Opaque"), Some("example.dev/any")] {
                api.create(&dry_run(), &secret(&named(A, "token"), type_)).await?;
            }
        }
        let admin: Api<Secret> = Api::namespaced(world.plane.client(), "kube-bind-a-ranch");
        let planted = secret("planted", Some("kubernetes.io/service-account-token"));
        admin.create(&PostParams::default(), &planted).await?;
        let ours: Api<Secret> = Api::namespaced(world.a.clone(), "kube-bind-a-ranch");
        let label = Patch::Merge(json!({"metadata": {"labels": {"mine": "true"}}}));
        refused(ours.patch("planted", &PatchParams::default(), &label).await, &says)?;
        refused(ours.delete("planted", &DeleteParams::default()).await, &says)
    })
}

#[test]
fn a_contract_adds_no_finalizers_and_keeps_those_of_operators() -> Result<()> {
    case(async |world| {
        let says = ["adds no finalizers to"];
        let finalizers = |all: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": all}}));
        let (operators, own) = ("operator.example.dev/cleans", "joe.example.dev/stays");
        let (params, admin) = (PatchParams::default(), world.plane.client());
        for (ours, admins, object) in [
            (cowboys(&world.a, A), cowboys(&admin, A), cowboy("held", None)),
            (
                cowboys(&world.a, "kube-bind-a-ranch"),
                cowboys(&admin, "kube-bind-a-ranch"),
                cowboy("held", None),
            ),
            (
                cowboys(&world.a, SHARED),
                cowboys(&admin, SHARED),
                cowboy(&named(A, "held"), None),
            ),
            (sheriffs(&world.a), sheriffs(&admin), sheriff(&named(A, "held"), None)),
        ] {
            let name = object.name_any();
            let mut held = object.clone();
            held.metadata.finalizers = Some(vec![own.to_owned()]);
            refused(ours.create(&dry_run(), &held).await, &says)?;
            let apply = PatchParams::apply("kube-bind.io").force();
            refused(ours.patch(&name, &apply, &Patch::Apply(held)).await, &says)?;
            ours.create(&PostParams::default(), &object).await?;
            refused(ours.patch(&name, &params, &finalizers(&[own])).await, &says)?;
            // What an operator of the provider added stays when the contract writes, and does not keep it from writing.
            admins.patch(&name, &params, &finalizers(&[operators])).await?;
            let written = ours.patch(&name, &params, &change("ride")).await?;
            ensure!(written.finalizers() == [operators], "{:?}", written.metadata);
            refused(ours.patch(&name, &params, &finalizers(&[operators, own])).await, &says)?;
            refused(ours.patch(&name, &params, &finalizers(&[own])).await, &says)?;
            ours.delete(&name, &DeleteParams::default()).await?;
            admins.patch(&name, &params, &finalizers(&[])).await?;
        }
        let mut secret = Secret::default();
        secret.metadata.name = Some("held".to_owned());
        let mut request = APIServiceNamespace::new("held", APIServiceNamespaceSpec {});
        for finalizers in [None, Some(vec![own.to_owned()])] {
            secret.metadata.finalizers.clone_from(&finalizers);
            request.metadata.finalizers.clone_from(&finalizers);
            let secrets: Api<Secret> = Api::namespaced(world.a.clone(), "kube-bind-a-ranch");
            let requests: Api<APIServiceNamespace> = Api::namespaced(world.a.clone(), A);
            let outcomes = [
                secrets.create(&dry_run(), &secret).await.map(drop),
                requests.create(&dry_run(), &request).await.map(drop),
            ];
            for outcome in outcomes {
                match &finalizers {
                    None => outcome?,
                    Some(_) => refused(outcome, &says)?,
                }
            }
        }
        Ok(())
    })
}

/// An owner that is deleted in foreground waits for such dependents, and these for finalizers alone, which a contract cannot add.
#[test]
fn no_owner_is_held_by_what_a_contract_puts_below_it() -> Result<()> {
    case(async |world| {
        let admins: Api<ConfigMap> = Api::namespaced(world.plane.client(), "kube-bind-a-ranch");
        let mut owner = ConfigMap::default();
        owner.metadata.name = Some("owner".to_owned());
        let owner = admins.create(&PostParams::default(), &owner).await?;
        let mut below = cowboy("below", None);
        below.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            name: owner.name_any(),
            uid: owner.uid().context("a UID")?,
            block_owner_deletion: Some(true),
            ..OwnerReference::default()
        }]);
        let ours = cowboys(&world.a, "kube-bind-a-ranch");
        ours.create(&PostParams::default(), &below).await?;
        admins.delete("owner", &DeleteParams::foreground()).await?;
        eventually_ok("owner and dependent to be gone", SOON, async || {
            let left = (admins.get_opt("owner").await?, ours.get_opt("below").await?);
            ensure!(left == (None, None), "{left:?}");
            Ok(())
        })
        .await
    })
}

#[test]
fn who_is_no_binder_is_not_concerned_and_questions_are_free() -> Result<()> {
    case(async |world| {
        let other = world.plane.service_account_client(A, "other").await?;
        sheriffs(&other)
            .create(&dry_run(), &sheriff("anybodys", Some(AB)))
            .await?;
        let review: SelfSubjectAccessReview =
            serde_json::from_value(json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}))?;
        let reviews: Api<SelfSubjectAccessReview> = Api::all(world.a.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        ensure!(answer.status.is_some_and(|status| status.allowed), "not answered");
        Ok(())
    })
}
