//! Fields that are wrong: every one is named, at once.

use anyhow::{Result, ensure};
use bindery_proto::v1alpha2::{
    CreateBindableResourcesRequestRequest, DeleteExportRequest, ErrorReason, ListExportsRequest, ListTemplatesRequest,
    WatchExportsRequest,
};
use bindery_sdk::{Code, Error, StatusError};

use crate::{
    expect::refused,
    world::{case, wish},
};

/// The fields that an answer calls wrong.
fn wrong<T>(outcome: Result<T, Error>) -> Result<Vec<String>> {
    let error = refused(outcome, Code::InvalidArgument, ErrorReason::FieldInvalid, &[])?;
    Ok(fields(&error))
}

fn fields(error: &StatusError) -> Vec<String> {
    error
        .field_violations
        .iter()
        .map(|violation| violation.field.clone())
        .collect()
}

#[test]
fn every_wrong_field_of_a_bind_is_named_at_once() -> Result<()> {
    case("fields", async |case| {
        let principal = case.principal("fields", &["cowboys"]).await?;
        let client = &principal.client;
        let at = |field: &str| format!("bindable_resources_request.{field}");
        let (name, identity, template) = (
            at("metadata.name"),
            at("spec.cluster_identity.identity"),
            at("spec.template_ref.name"),
        );
        let ask = |message: CreateBindableResourcesRequestRequest| client.create_bindable_resources_request(message);

        for bad in [
            "",
            "Upper",
            "under_score",
            "a.b",
            "-a",
            "a-",
            "sp ace",
            "ümlaut",
            &"x".repeat(64),
        ] {
            let error = refused(
                ask(wish(bad, "cowboys", "fields")).await,
                Code::InvalidArgument,
                ErrorReason::FieldInvalid,
                &[&name],
            )?;
            ensure!(fields(&error) == [name.clone()], "{bad:?}: {error:?}");
            let mend = if bad.is_empty() { "is required" } else { "DNS label" };
            ensure!(
                error.field_violations[0].description.contains(mend),
                "{bad:?}: {error:?}"
            );
        }
        for bad in ["", &"x".repeat(254), " padded", "line\nbreak"] {
            let found = wrong(ask(wish("fields", "cowboys", bad)).await)?;
            ensure!(
                !found.is_empty() && found.iter().all(|field| *field == identity),
                "{bad:?}: {found:?}"
            );
        }
        for bad in ["", "Upper", "a/b", "a..b", "../x", &"x".repeat(254)] {
            let found = wrong(ask(wish("fields", bad, "fields")).await)?;
            ensure!(found == [template.clone()], "{bad:?}: {found:?}");
        }
        let found = wrong(ask(CreateBindableResourcesRequestRequest::default()).await)?;
        ensure!(found == [template.clone()], "an empty request: {found:?}");

        let mut several = wish("-", "cowboys", "");
        if let Some(spec) = several
            .bindable_resources_request
            .as_mut()
            .and_then(|request| request.spec.as_mut())
        {
            spec.ttl_after_finished = Some(prost_types::Duration { seconds: -1, nanos: 0 });
            spec.compatibility = 77;
        }
        several.wait = Some(prost_types::Duration { seconds: -1, nanos: 0 });
        let found = wrong(ask(several).await)?;
        let ttl = at("spec.ttl_after_finished");
        ensure!(
            found == [name, identity, ttl, at("spec.compatibility"), "wait".to_owned()],
            "{found:?}"
        );
        case.nothing_written(&principal, "fields").await
    })
}

#[test]
fn the_other_methods_name_their_fields_too() -> Result<()> {
    case("arguments", async |case| {
        let client = case.principal("arguments", &["cowboys"]).await?.client;
        ensure!(wrong(client.get_bindable_resources_request("A", "").await)? == ["name", "cluster_identity"]);
        ensure!(wrong(client.get_export("Not A Name", "").await)? == ["contract", "name"]);
        ensure!(wrong(client.delete_export(DeleteExportRequest::default()).await)? == ["name", "uid"]);
        ensure!(wrong(client.revoke_credentials("", &"x".repeat(2000)).await)? == ["contract", "reason"]);
        let list = ListTemplatesRequest {
            page_size: -1,
            label_selector: "tier in".to_owned(),
            collection: "Wild West".to_owned(),
            ..ListTemplatesRequest::default()
        };
        ensure!(wrong(client.list_templates(list).await)? == ["page_size", "label_selector", "collection"]);
        Ok(())
    })
}

#[test]
fn tokens_of_pages_and_streams_are_for_their_own_list_alone() -> Result<()> {
    case("pages", async |case| {
        let (one, other) = (
            case.principal("pages", &["cowboys", "pages"]).await?,
            case.offer().await?,
        );
        let (client, list) = (&one.client, ListTemplatesRequest::default());
        let first = ListTemplatesRequest {
            page_size: 1,
            ..list.clone()
        };
        let page = client.call(bindery_sdk::methods::LIST_TEMPLATES, first).await?;
        let token = page.next_page_token;
        ensure!(!token.is_empty(), "cowboys and {} on one page of one", other.name);

        let invalid = ErrorReason::PageTokenInvalid;
        for bad in ["!", "AAAA", "not base64 at all"] {
            let asked = ListTemplatesRequest {
                page_token: bad.to_owned(),
                ..list.clone()
            };
            refused(
                client.list_templates(asked).await,
                Code::InvalidArgument,
                invalid,
                &["page token", "begin again"],
            )?;
        }
        let other_arguments = ListTemplatesRequest {
            page_token: token.clone(),
            label_selector: "a=b".to_owned(),
            ..list.clone()
        };
        refused(
            client.list_templates(other_arguments).await,
            Code::InvalidArgument,
            invalid,
            &["page token"],
        )?;
        let other_list = ListExportsRequest {
            page_token: token.clone(),
            ..ListExportsRequest::default()
        };
        refused(
            client.list_exports(other_list).await,
            Code::InvalidArgument,
            invalid,
            &["page token"],
        )?;
        // In its own list it works, whatever the size of the page.
        let rest = client
            .list_templates(ListTemplatesRequest {
                page_token: token,
                ..list
            })
            .await?;
        ensure!(rest.len() == 1, "{rest:?}");

        one.bind("pages", &case.identity()).await?;
        let mut stream = client.watch_exports(WatchExportsRequest {
            contract: case.contract(),
            label_selector: "=".to_owned(),
            ..WatchExportsRequest::default()
        });
        let first = stream
            .next()
            .await
            .ok_or_else(|| anyhow::anyhow!("the watch ended without a word"))?;
        ensure!(wrong(first)? == ["label_selector"]);
        Ok(())
    })
}
