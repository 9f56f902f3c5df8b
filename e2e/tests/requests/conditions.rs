//! What a request waits for or fails with, in words that name the mend; and that the mend is one.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    annotations, labels, names,
    v1alpha2::{BindableResourcesRequest, Phase},
};
use bindery_e2e::{Provider, call, holds_for, wildwest::SOON};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    case::{Case, case, case_without_responses, default_secret, ready, role},
    response::{opens_the_contract, text},
    world::A_WHILE,
};

#[test]
fn what_can_never_work_fails_with_its_mend() -> Result<()> {
    case("static", async |_, case| {
        let asked = |name: &str, change: &dyn Fn(&mut Value)| {
            let mut request = case.request("cowboys");
            request["metadata"]["name"] = json!(name);
            change(&mut request["spec"]);
            request
        };
        let author = |author: &str| {
            let author = json!(author);
            asked("author", &|spec| spec["author"] = author.clone())
        };
        let long = "x".repeat(254);
        let table = [
            (asked("dotted.name", &|_| ()), "InvalidName", "DNS label"),
            (
                asked("identity", &|spec| spec["clusterIdentity"]["identity"] = json!(long)),
                "InvalidClusterIdentity",
                "spec.clusterIdentity.identity",
            ),
            (
                asked("blank", &|spec| spec["clusterIdentity"]["identity"] = json!(" ")),
                "InvalidClusterIdentity",
                "spec.clusterIdentity.identity",
            ),
            (
                asked("ttl", &|spec| spec["ttlAfterFinished"] = json!("99999999h")),
                "InvalidTTL",
                "spec.ttlAfterFinished",
            ),
            (
                asked("secret", &|spec| {
                    spec["kubeconfigSecretRef"] = json!({"name": "Not_A_Name", "key": "kubeconfig"});
                }),
                "InvalidSecretRef",
                "spec.kubeconfigSecretRef",
            ),
            (
                asked("key", &|spec| {
                    spec["kubeconfigSecretRef"] = json!({"name": "a", "key": "a/b"});
                }),
                "InvalidSecretRef",
                "spec.kubeconfigSecretRef",
            ),
            (
                asked("compatible", &|spec| spec["compatibility"] = json!("KubeBind")),
                "FeatureOff",
                "compatibility",
            ),
            // Those that may impersonate everybody get as far as the server.
            (author("system:anonymous"), "InvalidAuthor", "spec.author"),
        ];
        for (request, _, _) in &table {
            case.provider.plane.apply(&request.to_string()).await?;
        }
        for (request, reason, says) in &table {
            let name = request["metadata"]["name"].as_str().context("a name")?;
            case.comes_to(name, Phase::Failed, reason, &[says]).await?;
            let secret = case.secrets().get_opt(&default_secret(name)).await?;
            ensure!(secret.is_none(), "{name} has a Secret");
        }
        ensure!(
            has_no_contract(case.provider, &case.contract()).await?,
            "a contract was made"
        );
        Ok(())
    })
}

async fn has_no_contract(provider: &Provider, contract: &str) -> Result<bool> {
    let namespaces: Api<Namespace> = Api::all(provider.plane.client());
    Ok(namespaces.get_opt(contract).await?.is_none())
}

#[test]
fn a_template_that_comes_later_is_waited_for() -> Result<()> {
    case("later", async |_, case| {
        case.apply(&case.request(case.name)).await?;
        case.comes_to(case.name, Phase::Pending, "TemplateNotFound", &[case.name])
            .await?;
        ensure!(
            has_no_contract(case.provider, &case.contract()).await?,
            "a contract was made"
        );
        case.offer().await?;
        case.succeeds(case.name).await?;
        ensure!(case.exports().get_opt(case.name).await?.is_some(), "no export");
        Ok(())
    })
}

#[test]
fn the_printed_role_binding_is_the_mend() -> Result<()> {
    case_without_responses("rights", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        let says = ["RoleBinding", "bindery-server-responses", case.name];
        let waiting = case
            .comes_to("cowboys", Phase::Pending, "ServerLacksRights", &says)
            .await?;
        let message = &ready(&waiting)?.message;
        let start = message.find("apiVersion:").with_context(|| message.clone())?;
        case.provider.plane.apply(&message[start..]).await?;
        case.succeeds("cowboys").await?;
        let secret = case.secrets().get(&default_secret("cowboys")).await?;
        opens_the_contract(case, &text(&secret, "kubeconfig")?, "cowboys").await
    })
}

/// A Secret as somebody else has it.
fn foreign(name: &str, annotations: &[(&str, &str)], type_: &str) -> Secret {
    let mut secret = Secret {
        data: Some([("kubeconfig".to_owned(), ByteString(b"mine".to_vec()))].into()),
        type_: Some(type_.to_owned()),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    let pairs = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    secret.annotations_mut().extend(pairs);
    secret
}

const REQUEST: &str = "kube-bind.io/request";

/// Plants a Secret, asks for it and waits until it is called foreign, which it stays.
async fn is_left_alone(case: &Case<'_>, request: &str, secret: &Secret) -> Result<()> {
    let planted = case.secrets().create(&PostParams::default(), secret).await?;
    let mut asked = case.request("cowboys");
    asked["metadata"]["name"] = json!(request);
    asked["spec"]["kubeconfigSecretRef"] = json!({"name": secret.name_any(), "key": "kubeconfig"});
    case.apply(&asked).await?;
    case.comes_to(request, Phase::Pending, "ForeignSecret", &[&secret.name_any(), REQUEST])
        .await?;
    holds_for("the Secret is as it was", A_WHILE / 4, async || {
        let now = case.secrets().get(&secret.name_any()).await?;
        ensure!(now.resource_version() == planted.resource_version(), "it was written");
        Ok(())
    })
    .await
}

#[test]
fn a_secret_of_somebody_else_is_not_written() -> Result<()> {
    case("foreign", async |_, case| {
        let secrets = case.secrets();
        is_left_alone(case, "gone", &foreign("gone", &[], "Opaque")).await?;
        secrets.delete("gone", &DeleteParams::default()).await?;
        case.succeeds("gone").await?;

        // Whoever owns the Secret can give it to the request.
        is_left_alone(case, "marked", &foreign("marked", &[(REQUEST, "another")], "Opaque")).await?;
        let mark = Patch::Merge(json!({
            "metadata": {"annotations": {REQUEST: "marked"}, "labels": {"mine": "too"}}, "stringData": {"other": "kept"},
        }));
        secrets.patch("marked", &PatchParams::default(), &mark).await?;
        case.succeeds("marked").await?;
        let written = secrets.get("marked").await?;
        ensure!(text(&written, "other")? == "kept", "another key was changed");
        ensure!(written.labels().contains_key("mine"), "a label was taken");
        opens_the_contract(case, &text(&written, "kubeconfig")?, "marked").await?;

        // One that was written for somebody else is not taken over by a request of the same name.
        let author = [(REQUEST, "others"), (annotations::AUTHOR, "jane")];
        is_left_alone(case, "others", &foreign("others", &author, "Opaque")).await?;
        is_left_alone(
            case,
            "typed",
            &foreign("typed", &[(REQUEST, "typed")], "example.dev/any"),
        )
        .await
    })
}

#[test]
fn a_secret_that_cannot_be_written_is_told_of() -> Result<()> {
    case("refused", async |_, case| {
        let mut fixed = foreign(&default_secret("cowboys"), &[(REQUEST, "cowboys")], "Opaque");
        fixed.immutable = Some(true);
        let secrets = case.secrets();
        let planted = secrets.create(&PostParams::default(), &fixed).await?;
        case.apply(&case.request("cowboys")).await?;
        let says = [planted.metadata.name.as_deref().unwrap_or_default(), "immutable"];
        case.comes_to("cowboys", Phase::Pending, "SecretCreationFailed", &says)
            .await?;
        ensure!(
            secrets.get(says[0]).await?.data == planted.data,
            "it was written all the same"
        );
        secrets.delete(says[0], &DeleteParams::default()).await?;
        case.succeeds("cowboys").await.map(drop)
    })
}

#[test]
fn a_name_that_another_template_has_is_refused() -> Result<()> {
    case("named-twice", async |_, case| {
        case.offer().await?;
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let wish = call::wish("riders", "cowboys", &case.identity());
        case.caller().await?.bind_by_request(wish, SOON, |_| ()).await?;
        let mut request = case.request(case.name);
        request["metadata"]["name"] = json!("riders");
        case.apply(&request).await?;
        let says = ["riders", "template cowboys", "another name"];
        case.comes_to("riders", Phase::Failed, "ExportNameTaken", &says).await?;
        let secret = case.secrets().get_opt(&default_secret("riders")).await?;
        ensure!(secret.is_none(), "it got a Secret");
        Ok(())
    })
}

#[test]
fn a_contract_of_somebody_else_is_refused() -> Result<()> {
    case("rancher", async |world, owner| {
        owner.apply(&owner.request("cowboys")).await?;
        owner.succeeds("cowboys").await?;
        let other = Case::settle(&world.provider, "not-owner").await?;
        other.let_the_server_respond().await?;
        let mut request = other.request("cowboys");
        request["spec"]["clusterIdentity"]["identity"] = json!(owner.identity());
        other.apply(&request).await?;
        let says = ["another principal", "kubectl bind provider transfer"];
        let failed = other
            .comes_to("cowboys", Phase::Failed, "ClusterIdentityTaken", &says)
            .await?;
        let told = serde_json::to_string(&failed.status)?;
        ensure!(!told.contains(owner.name), "the owner is told: {told}");
        let secret = other.secrets().get_opt(&default_secret("cowboys")).await?;
        ensure!(secret.is_none(), "it got a Secret");
        Ok(())
    })
}

#[test]
fn calls_and_resources_make_requests_side_by_side() -> Result<()> {
    case("both-ways", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let caller = case.caller().await?;
        // The server's own requests pass the policy, with the marks that nobody else may set.
        let bound = caller
            .bind_by_request(call::wish("cowboys", "cowboys", &case.identity()), SOON, |_| ())
            .await?;
        ensure!(bound.response.provider_namespace == case.contract(), "another contract");
        // What was bound by a call is the very account's, and a resource knows its author by name alone.
        let theirs = "cluster-of-a-call";
        caller
            .bind_by_request(call::wish("cowboys", "cowboys", theirs), SOON, |_| ())
            .await?;
        let mut request = case.request("cowboys");
        request["metadata"]["name"] = json!("of-a-call");
        request["spec"]["clusterIdentity"]["identity"] = json!(theirs);
        case.apply(&request).await?;
        case.comes_to("of-a-call", Phase::Failed, "ClusterIdentityTaken", &[])
            .await?;
        Ok(())
    })
}

#[test]
fn no_response_is_written_where_contracts_are() -> Result<()> {
    case("place", async |world, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let binder = world
            .provider
            .plane
            .service_account_client(&case.contract(), names::KUBE_BINDER)
            .await?;
        let space = space(&binder, &case.contract()).await?;
        let rules =
            json!([{"apiGroups": ["kube-bind.io"], "resources": ["bindableresourcesrequests"], "verbs": ["*"]}]);
        let subject = json!([{"kind": "ServiceAccount", "namespace": case.name, "name": "binder"}]);
        // One that consumers of isolation None share.
        let shared = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "place-shared", "labels": {labels::SHARED: "true"}},
        });
        world.provider.plane.apply(&shared.to_string()).await?;
        for place in [case.contract(), space, "place-shared".to_owned()] {
            let given = role(&place, "requests", &rules, &subject);
            world.provider.plane.apply(&given.to_string()).await?;
            let mut request = case.request("cowboys");
            request["metadata"] = json!({"name": "inside", "namespace": place});
            request["spec"]["kubeconfigSecretRef"] = json!({"name": "response", "key": "kubeconfig"});
            case.apply(&request).await?;
            let requests: Api<BindableResourcesRequest> = Api::namespaced(world.provider.plane.client(), &place);
            bindery_e2e::eventually_ok(format!("a request in {place} to be refused"), SOON, async || {
                let found = requests.get("inside").await?;
                let ready = ready(&found)?;
                ensure!(
                    ready.reason == "ForbiddenNamespace" && ready.message.contains(&place),
                    "{ready:?}"
                );
                ensure!(
                    found.status.as_ref().is_some_and(|it| it.phase == Phase::Failed),
                    "{:?}",
                    found.status
                );
                Ok(())
            })
            .await?;
            let secrets: Api<Secret> = Api::namespaced(world.provider.plane.client(), &place);
            ensure!(secrets.get_opt("response").await?.is_none(), "a Secret in {place}");
        }
        Ok(())
    })
}

/// A provider namespace, asked for as a konnector does.
async fn space(binder: &kube::Client, contract: &str) -> Result<String> {
    use bindery_api::v1alpha2::{APIServiceNamespace, APIServiceNamespaceSpec};
    let spaces: Api<APIServiceNamespace> = Api::namespaced(binder.clone(), contract);
    let wanted = APIServiceNamespace::new("ranch", APIServiceNamespaceSpec {});
    spaces.create(&PostParams::default(), &wanted).await?;
    bindery_e2e::eventually("a provider namespace", SOON, async || {
        Ok(spaces.get("ranch").await?.status.and_then(|status| status.namespace))
    })
    .await
}
