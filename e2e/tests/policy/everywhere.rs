//! What holds in a contract's own namespaces too, and who is concerned at all.

use anyhow::{Context as _, Result, ensure};
use bindery_api::names;
use k8s_openapi::api::{authorization::v1::SelfSubjectAccessReview, core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{
    A, AB, NOT_OWN, PROBE, SHARED, case, change, cowboy, cowboys, dry_run, named, refused, sheriff, sheriffs,
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
            api.create(&PostParams::default(), &cowboy("billy", None)).await?;
            api.patch("billy", &PatchParams::default(), &change("ride")).await?;
            api.delete("billy", &DeleteParams::default()).await?;
        }
        let foreign = [
            (&world.a, AB),
            (&world.a, "kube-bind-ab-ranch"),
            (&world.a, "default"),
            (&world.ab, A),
        ];
        for (client, namespace) in foreign.into_iter().chain([(&world.ab, "kube-bind-a-ranch")]) {
            let api = cowboys(client, namespace);
            let outcome = api.create(&dry_run(), &cowboy("billy", None)).await;
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
