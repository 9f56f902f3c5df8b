//! What a bind is about: one template, or those of a collection.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::v1alpha2::{APIServiceExportTemplateSpec, GroupResource};
use bindery_proto::v1alpha2::Collection;
use bindery_sdk::{TemplateDetails, objects};

use crate::{
    args::{BindArgs, NameKind},
    errors::{Exit, Failure},
    provider::{Provider, ProviderError},
    render::output::joined,
};

/// What to bind.
pub(super) struct Target {
    pub(super) templates: Vec<Template>,
    pub(super) is_collection: bool,
}

/// A template to bind.
pub(super) struct Template {
    pub(super) name: String,
    pub(super) spec: APIServiceExportTemplateSpec,
}

/// Finds what the user named: the template of this name, or else the collection. Where the provider has both, only `--kind`
/// decides.
pub(super) async fn find(provider: &Provider<'_>, args: &BindArgs) -> Result<Target, Failure> {
    let name = &args.template;
    let found = match args.kind {
        Some(NameKind::Template) => Found::Template(provider.template(name).await?),
        Some(NameKind::Collection) => Found::Collection(provider.collection(name).await?),
        None => {
            let (template, collection) = tokio::join!(provider.template(name), provider.collection(name));
            choose(name, template, collection)?
        }
    };
    match found {
        Found::Template(details) => Ok(Target {
            templates: vec![template(name, details)],
            is_collection: false,
        }),
        Found::Collection(collection) => {
            if args.name.is_some() {
                return Err(Failure::Usage(format!(
                    "{name} is a collection, whose bindings are named as its templates: leave out --name"
                )));
            }
            let members = collection.spec.unwrap_or_default().templates;
            let mut templates = Vec::with_capacity(members.len());
            for member in members {
                templates.push(template(&member.name, provider.template(&member.name).await?));
            }
            Ok(Target {
                templates,
                is_collection: true,
            })
        }
    }
}

fn template(name: &str, details: TemplateDetails) -> Template {
    Template {
        name: name.to_owned(),
        spec: objects::template(details.template).spec,
    }
}

/// What has the name.
#[derive(Debug)]
enum Found {
    Template(TemplateDetails),
    Collection(Collection),
}

/// Chooses between the answers about a template and a collection of this name. A provider refuses a template that does not exist in
/// the same words as one that the user may not bind.
fn choose(
    name: &str,
    template: Result<TemplateDetails, ProviderError>,
    collection: Result<Collection, ProviderError>,
) -> Result<Found, Failure> {
    let is_absent = |error: &ProviderError| matches!(error.exit(), Exit::NotFound | Exit::Denied);
    match (template, collection) {
        (Ok(_), Ok(_)) => Err(Failure::Usage(format!(
            "{name} is both a template and a collection: add --kind template or --kind collection"
        ))),
        (Ok(template), Err(error)) if is_absent(&error) => Ok(Found::Template(template)),
        (Err(error), Ok(collection)) if is_absent(&error) => Ok(Found::Collection(collection)),
        // The template's error is the one that names what to do.
        (Err(error), _) | (Ok(_), Err(error)) => Err(error.into()),
    }
}

/// Refuses templates that bring the same resource: one cluster binds a resource once.
pub(super) fn refuse_overlap<'a>(
    offers: impl IntoIterator<Item = (&'a str, &'a BTreeSet<GroupResource>)>,
) -> Result<(), Failure> {
    let mut brought: BTreeMap<&GroupResource, &str> = BTreeMap::new();
    for (template, resources) in offers {
        for resource in resources {
            if let Some(other) = brought.insert(resource, template) {
                return Err(Failure::Usage(format!(
                    "templates {} both bring {resource}: bind only one of them, by its own name",
                    joined([other, template])
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
