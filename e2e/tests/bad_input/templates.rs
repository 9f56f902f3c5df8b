//! Templates that do not exist, may not be bound, or cannot be served.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Conditions as _, v1alpha2 as api};
use bindery_e2e::{eventually, wildwest::SOON};
use bindery_proto::v1alpha2::{ErrorReason, ListTemplatesRequest};
use bindery_sdk::Code;
use kube::Api;
use serde_json::{Value, json};

use crate::{
    expect::{is_false, refused, tells},
    offer::Offer,
    world::case,
};

#[test]
fn an_unknown_template_is_told_from_a_forbidden_one_by_who_may_bind_it_alone() -> Result<()> {
    case("ghost", async |case| {
        let (may, ghost) = (
            case.principal("ghost-may", &["ghost"]).await?,
            ErrorReason::TemplateNotFound,
        );
        let says = ["template ghost"];
        refused(may.ask("ghost", &case.identity()).await, Code::NotFound, ghost, &says)?;
        refused(may.client.get_template("ghost").await, Code::NotFound, ghost, &says)?;
        case.nothing_written(&may, &case.identity()).await?;

        let may_not = case.principal("stranger", &[]).await?;
        let mut texts = Vec::new();
        for template in ["ghost", "cowboys"] {
            let says = [
                template,
                "may not bind",
                &may_not.username,
                "verb bind on apiserviceexporttemplates.kube-bind.io",
            ];
            let denied = ErrorReason::TemplateBindDenied;
            let create = refused(
                may_not.ask(template, &case.identity()).await,
                Code::PermissionDenied,
                denied,
                &says,
            )?;
            let get = refused(
                may_not.client.get_template(template).await,
                Code::PermissionDenied,
                denied,
                &says,
            )?;
            ensure!(
                create.metadata.get("template").map(String::as_str) == Some(template),
                "{create:?}"
            );
            texts.extend([create, get].map(|error| error.message.replace(template, "X")));
        }
        texts.dedup();
        ensure!(
            texts.len() == 1,
            "the words tell whether there is such a template: {texts:?}"
        );
        let listed = may_not.client.list_templates(ListTemplatesRequest::default()).await?;
        ensure!(listed.is_empty(), "{listed:?}");
        case.nothing_written(&may_not, &case.identity()).await
    })
}

#[test]
fn a_server_without_the_rights_prints_the_role_that_mends_it() -> Result<()> {
    case("lacking", async |case| {
        let (provider, offer) = (case.provider(), Offer::new(case.name));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [offer.crd(), offer.template()]});
        provider.plane.apply(&list.to_string()).await?;
        let templates: Api<api::APIServiceExportTemplate> = Api::all(provider.plane.client());
        let role = format!("bindery-server-export-{}", offer.name);
        let says = [
            role.as_str(),
            &offer.group(),
            "widgets",
            "create",
            "rbac.kube-bind.io/aggregate-to-server",
        ];
        is_false(&templates, offer.name, "Ready", "ServerLacksRights", &says).await?;

        let principal = case.principal("lacking", &["lacking"]).await?;
        let reason = ErrorReason::ServerLacksRights;
        let outcome = principal.ask("lacking", &case.identity()).await;
        let error = refused(
            outcome,
            Code::FailedPrecondition,
            reason,
            &[&["template lacking"], &says[..]].concat(),
        )?;
        let violation = error
            .precondition_violations
            .first()
            .context("no PreconditionFailure")?;
        ensure!(violation.kind == "SERVER_LACKS_RIGHTS", "{violation:?}");
        case.nothing_written(&principal, &case.identity()).await?;

        // What it prints is what mends it.
        let (_, manifest) = error
            .message
            .split_once("apply this:\n")
            .context("no manifest in the message")?;
        ensure!(!manifest.contains('*'), "a wildcard: {manifest}");
        provider.plane.apply(manifest).await?;
        offer.ready(provider).await?;
        // The replica that answers may have asked just before.
        eventually("the bind to succeed", SOON, || async {
            principal.bind("lacking", &case.identity()).await?;
            Ok(Some(()))
        })
        .await
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row for each refusal")]
fn a_template_that_cannot_be_served_says_why() -> Result<()> {
    case("unservable", async |case| {
        let provider = case.provider();
        let template = |name: &str, group: &str, spec: &Value| {
            let mut template = json!({
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate", "metadata": {"name": name},
                "spec": spec,
            });
            template["spec"]["resources"] = json!([{"group": group, "resource": "widgets", "versions": ["v1"]}]);
            template
        };
        let namespaced = || json!({"scope": "Namespaced"});
        let hidden = Offer::new("hidden");
        let mut unlabelled = hidden.crd();
        unlabelled["metadata"]["labels"] = json!({});
        let cases = [
            (
                "no-crd",
                "nowhere.example.dev",
                namespaced(),
                "SchemaNotFound",
                ErrorReason::TemplateNotReady,
                "widgets.nowhere.example.dev",
            ),
            (
                "no-label",
                "hidden.example.dev",
                namespaced(),
                "SchemaNotFound",
                ErrorReason::TemplateNotReady,
                "kube-bind.io/exported=true",
            ),
            (
                "protected",
                "apps.k8s.io",
                namespaced(),
                "ProtectedGroup",
                ErrorReason::SchemaUnsupported,
                "protected group",
            ),
            (
                "core-crd",
                "kube-bind.io",
                namespaced(),
                "ProtectedGroup",
                ErrorReason::SchemaUnsupported,
                "protected group",
            ),
            (
                "wrong-scope",
                "unservable.example.dev",
                json!({"scope": "Cluster"}),
                "ScopeMismatch",
                ErrorReason::TemplateNotReady,
                "isolation Prefixed converts nothing; set spec.scope to Namespaced",
            ),
            (
                "not-namespaced",
                "clusterwide.example.dev",
                namespaced(),
                "ScopeMismatch",
                ErrorReason::TemplateNotReady,
                "set it to Cluster",
            ),
            (
                "not-convertible",
                "clusterwide.example.dev",
                json!({"scope": "Cluster", "isolation": "Namespaced"}),
                "ClusterScopedResource",
                ErrorReason::SchemaUnsupported,
                "set spec.isolation to Prefixed or None",
            ),
            (
                "nobody-wins",
                "clusterwide.example.dev",
                json!({"scope": "Cluster", "isolation": "Prefixed", "conflictPolicy": "LastWins"}),
                "InvalidConflictPolicy",
                ErrorReason::TemplateNotReady,
                "spec.conflictPolicy is for templates of scope Cluster with isolation None",
            ),
            (
                "needless-namespace",
                "unservable.example.dev",
                json!({"scope": "Namespaced", "clusterScopedNamespace": "ranch"}),
                "InvalidClusterScopedNamespace",
                ErrorReason::TemplateNotReady,
                "spec.clusterScopedNamespace is for templates of scope Cluster with isolation Namespaced",
            ),
        ];
        let mut cluster_wide = Offer::new("clusterwide").crd();
        cluster_wide["spec"]["scope"] = json!("Cluster");
        let mut items = vec![unlabelled, cluster_wide, Offer::new(case.name).crd()];
        items.extend(cases.iter().map(|(name, group, spec, ..)| template(name, group, spec)));
        provider
            .plane
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
            .await?;
        let names: Vec<_> = cases.iter().map(|(name, ..)| *name).collect();
        let principal = case.principal("unservable", &names).await?;
        let templates: Api<api::APIServiceExportTemplate> = Api::all(provider.plane.client());
        for (name, .., condition, reason, says) in cases {
            is_false(&templates, name, "Ready", condition, &[says]).await?;
            let outcome = principal.ask(name, &case.identity()).await;
            let error = refused(outcome, Code::FailedPrecondition, reason, &[name, says])?;
            ensure!(
                error.metadata.get("cause").map(String::as_str) == Some(condition),
                "{error:?}"
            );
        }
        // The catalog shows it all the same, with its condition.
        let shown = principal.client.get_template("no-crd").await?.template;
        let conditions = shown.status.context("no status")?.conditions;
        let ready = conditions
            .iter()
            .find(|condition| condition.r#type == "Ready")
            .context("no Ready")?;
        ensure!(
            (ready.status.as_str(), ready.reason.as_str()) == ("False", "SchemaNotFound"),
            "{ready:?}"
        );
        tells(&ready.message, &["widgets.nowhere.example.dev"])?;
        ensure!(!templates.get("no-crd").await?.is_condition_true("Ready"));
        case.nothing_written(&principal, &case.identity()).await
    })
}
