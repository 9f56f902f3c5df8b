//! `templates` and `collections`: show what the provider offers.

use std::{fmt::Write as _, io::Write};

use bindery_api::{
    Conditions as _, conditions,
    v1alpha2::{APIServiceExportTemplate, Collection, Isolation, Scope},
};
use bindery_proto::v1alpha2::{ListCollectionsRequest, ListTemplatesRequest, TemplateSchema};
use bindery_sdk::objects;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::Context;
use crate::{
    args::{CollectionsArgs, TemplatesArgs},
    claims,
    errors::Failure,
    render::{
        output::{Format, Show, age, joined, printable, table},
        placement,
    },
};

/// `kubectl bind templates [NAME]`
pub(crate) async fn templates<W: Write>(context: &mut Context<W>, args: &TemplatesArgs) -> Result<(), Failure> {
    let provider = context.settings.provider()?;
    let now = Timestamp::now();
    if let Some(name) = &args.name {
        let details = provider.template(name).await?;
        let template = objects::template(details.template);
        return match context.printer.format() {
            Format::Table | Format::Wide => {
                let default = match (template.spec.scope, template.spec.isolation) {
                    (Scope::Cluster, None) => provider.isolation().await,
                    _ => None,
                };
                context.printer.text(&described(&template, &details.schemas, default))
            }
            _ => context.printer.one(&template, now),
        };
    }
    let request = ListTemplatesRequest {
        label_selector: args.selector.clone().unwrap_or_default(),
        collection: args.collection.clone().unwrap_or_default(),
        ..ListTemplatesRequest::default()
    };
    let templates: Vec<_> = provider
        .templates(request)
        .await?
        .into_iter()
        .map(objects::template)
        .collect();
    if templates.is_empty() {
        context
            .steps
            .note("there are no templates that you may bind; ask the provider's admin for the right to bind one");
    }
    context.printer.list(&templates, now)
}

/// `kubectl bind collections [NAME]`
pub(crate) async fn collections<W: Write>(context: &mut Context<W>, args: &CollectionsArgs) -> Result<(), Failure> {
    let provider = context.settings.provider()?;
    let now = Timestamp::now();
    if let Some(name) = &args.name {
        let collection = objects::collection(provider.collection(name).await?);
        return context.printer.one(&collection, now);
    }
    let request = ListCollectionsRequest {
        label_selector: args.selector.clone().unwrap_or_default(),
        ..ListCollectionsRequest::default()
    };
    let collections = provider.collections(request).await?;
    let collections: Vec<_> = collections.into_iter().map(objects::collection).collect();
    if collections.is_empty() {
        context
            .steps
            .note("there are no collections with a template that you may bind");
    }
    context.printer.list(&collections, now)
}

impl Show for APIServiceExportTemplate {
    const HEADINGS: &'static [&'static str] = &[
        "NAME",
        "RESOURCES",
        "CLAIMS",
        "READY",
        "AGE",
        "SCOPE",
        "ISOLATION",
        "SCHEMA-UPDATES",
        "DESCRIPTION",
    ];
    const PLAIN: usize = 5;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.name_any(),
            joined(self.spec.resources.iter().map(|resource| &resource.group_resource)),
            joined(self.spec.permission_claims.iter().map(|claim| &claim.group_resource)),
            ready(self.condition(conditions::READY)),
            age(self.creation_timestamp().map(|time| time.0), now),
            self.spec.scope.to_string(),
            placement::isolation(&self.spec),
            self.spec.schema_update_policy.to_string(),
            self.spec.description.clone().unwrap_or_default(),
        ]
    }

    fn reference(&self) -> String {
        format!("apiserviceexporttemplate.kube-bind.io/{}", self.name_any())
    }
}

impl Show for Collection {
    const HEADINGS: &'static [&'static str] = &["NAME", "TEMPLATES", "AGE", "DESCRIPTION"];
    const PLAIN: usize = 3;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.name_any(),
            joined(self.spec.templates.iter().map(|template| &template.name)),
            age(self.creation_timestamp().map(|time| time.0), now),
            self.spec.description.clone().unwrap_or_default(),
        ]
    }

    fn reference(&self) -> String {
        format!("collection.kube-bind.io/{}", self.name_any())
    }
}

fn ready(condition: Option<&bindery_api::Condition>) -> String {
    condition.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.as_str().to_owned())
}

/// One template for people, with the kinds that a bind would add to this cluster.
fn described(template: &APIServiceExportTemplate, schemas: &[TemplateSchema], default: Option<Isolation>) -> String {
    let mut text = String::new();
    let mut line = |head: &str, value: &str| {
        let head = if head.is_empty() {
            String::new()
        } else {
            format!("{head}:")
        };
        let _ = writeln!(text, "{head:<16}{}", printable(value));
    };
    line("Name", &template.name_any());
    if let Some(description) = &template.spec.description {
        line("Description", description);
    }
    let condition = template.condition(conditions::READY);
    match condition.filter(|ready| !ready.is_true()) {
        Some(broken) => line("Ready", &format!("{}: {}", broken.status.as_str(), broken.message)),
        None => line("Ready", &ready(condition)),
    }
    line("Schema updates", template.spec.schema_update_policy.as_str());
    line("Objects stand", &placement::words(&template.spec, default));
    if let Some(warning) = placement::warning(&template.spec, default) {
        line("", warning);
    }
    for claim in &template.spec.permission_claims {
        for (index, text) in claims::explained(claim).iter().enumerate() {
            line(if index == 0 { "Claims" } else { "" }, text);
        }
    }
    if !template.spec.namespaces.is_empty() {
        line(
            "Namespaces",
            &joined(template.spec.namespaces.iter().map(|namespace| &namespace.name)),
        );
    }
    let headings = ["KIND", "RESOURCE", "SCOPE", "VERSIONS"];
    let rows = schemas.iter().map(|schema| {
        vec![
            schema.kind.clone(),
            format!("{}.{}", schema.resource, schema.group),
            schema.scope().as_crd_str().unwrap_or("Unknown").to_owned(),
            joined(&schema.versions),
        ]
    });
    text.push('\n');
    text.push_str(&table(&headings, rows, headings.len()));
    let _ = write!(
        text,
        "\nBind it with: kubectl bind apiservice {}\n",
        printable(&template.name_any())
    );
    text
}

#[cfg(test)]
mod tests;
