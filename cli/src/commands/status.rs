//! `status`: shows the bindings and bundles of this cluster.

use std::io::Write;

use bindery_api::v1alpha2::{APIServiceBinding, APIServiceBindingBundle};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::Context;
use crate::{
    args::StatusArgs,
    consumer::Consumer,
    errors::{Exit, Failure},
    install::owner::bundle_of,
    render::{
        output::{Format, Show, list},
        tree::{self, BindingStatus},
    },
};

/// `kubectl bind status [NAME]`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &StatusArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let (bundles, bindings) = tokio::join!(consumer.bundles(), consumer.bindings());
    let mut bindings = bindings?;
    let mut bundles = match bundles {
        // A user who may list bindings alone sees those.
        Err(failure) if failure.exit() == Exit::Denied => {
            context.steps.note(&format!("bundles are not shown: {failure}"));
            Vec::new()
        }
        bundles => bundles?,
    };
    bundles.sort_by_key(ResourceExt::name_any);
    bindings.sort_by_key(ResourceExt::name_any);
    let found = select(args.name.as_deref(), bundles, bindings)?;
    let mut statuses = Vec::with_capacity(found.bindings.len());
    for binding in found.bindings {
        let newest = consumer
            .newest_credential(&binding)
            .await
            .map_err(|problem| problem.to_string());
        let bundle = bundle_of(&binding).map(|(name, _)| name.to_owned());
        statuses.push(BindingStatus::new(binding, bundle, newest));
    }
    let printer = &mut context.printer;
    match printer.format() {
        Format::Json | Format::Yaml if found.is_one_binding => match statuses.first() {
            Some(status) => printer.document(status),
            None => Ok(()),
        },
        Format::Json | Format::Yaml => {
            let mut document = list(&statuses);
            document["bundles"] = json!(found.bundles);
            printer.document(&document)
        }
        Format::Name => printer.text(&references(&statuses, &found.bundles)),
        format => {
            let nothing = statuses.is_empty() && found.bundles.is_empty();
            if nothing {
                context.steps.note("nothing is bound on this cluster");
            }
            let now = Timestamp::now();
            if !found.bundles.is_empty() {
                printer.list(&found.bundles, now)?;
                printer.text("\n")?;
            }
            printer.text(&tree::render(&statuses, now, format == Format::Wide))
        }
    }
}

/// The bindings and bundles to show.
struct Found {
    bundles: Vec<APIServiceBindingBundle>,
    bindings: Vec<APIServiceBinding>,
    /// Whether the user named this one binding, which is printed without a list.
    is_one_binding: bool,
}

/// Selects the binding of this name, or else the bundle with its bindings; everything without a name.
fn select(
    name: Option<&str>,
    mut bundles: Vec<APIServiceBindingBundle>,
    mut bindings: Vec<APIServiceBinding>,
) -> Result<Found, Failure> {
    let mut is_one_binding = false;
    if let Some(name) = name {
        is_one_binding = bindings.iter().any(|binding| binding.name_any() == name);
        bundles.retain(|bundle| !is_one_binding && bundle.name_any() == name);
        if is_one_binding {
            bindings.retain(|binding| binding.name_any() == name);
        } else {
            let uid = bundles.first().and_then(ResourceExt::uid).unwrap_or_default();
            bindings.retain(|binding| bundle_of(binding).is_some_and(|(_, of)| of == uid));
        }
        if !is_one_binding && bundles.is_empty() {
            return Err(Failure::NeitherBindingNorBundle(name.to_owned()));
        }
    }
    Ok(Found {
        bundles,
        bindings,
        is_one_binding,
    })
}

fn references(statuses: &[BindingStatus], bundles: &[APIServiceBindingBundle]) -> String {
    let bundles = bundles.iter().map(Show::reference);
    let bindings = statuses.iter().map(|status| status.binding.reference());
    bundles.chain(bindings).map(|reference| reference + "\n").collect()
}

#[cfg(test)]
mod tests;
