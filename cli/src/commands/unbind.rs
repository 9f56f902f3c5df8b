//! `unbind`: ends a binding with its objects on this cluster, and those of the provider if the user wants that.

mod fate;

use std::{io::Write, time::Duration};

use bindery_api::{
    Conditions as _, annotations,
    conditions::{CONNECTED, EXPORT_NOT_SELECTED, EXPORT_REMOVED},
    names,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, GroupResource},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Context;
use crate::{
    args::UnbindArgs,
    consumer::{Consumer, wait::Watched},
    errors::{Exit, Failure, conflict::Conflict},
    install::{manifests::is_ours, owner::bundle_of},
    render::{
        output::{Format, Show as _, joined},
        steps::Steps,
    },
};
use fate::Fate;

/// How long an unbind may take, unless `--timeout` says otherwise. Every object ends first.
const PATIENCE: Duration = Duration::from_mins(5);

/// `kubectl bind unbind BINDING`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &UnbindArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let bindings = consumer.bindings().await?;
    let Some(binding) = bindings.iter().find(|binding| binding.name_any() == args.binding) else {
        return if args.ignore_not_found {
            Ok(())
        } else {
            Err(Failure::NoBinding(args.binding.clone()))
        };
    };
    let bundles = match consumer.bundles().await {
        // A user who may list bindings alone can end a binding that no bundle made.
        Err(failure) if failure.exit() == Exit::Denied && bundle_of(binding).is_none() => None,
        bundles => Some(bundles?),
    };
    refuse_rebound(binding, bundles.as_deref().unwrap_or_default())?;
    let bound: Vec<_> = binding.status.iter().flat_map(|known| &known.bound_schemas).collect();
    let objects = count(&consumer, &bound).await?;
    let fate = match fate::fate(binding.spec.deletion_policy, args) {
        Some(fate) => fate,
        None => fate::ask(&args.binding, objects)?,
    };
    let secret = if let Some(bundles) = &bundles {
        own_secret(&consumer, binding, (&bindings, bundles), &context.steps).await?
    } else {
        context
            .steps
            .note("the Secret stays: a bundle may use it, and you may not see bundles");
        None
    };
    if let Some(secret) = &secret {
        consumer.tie(secret, binding).await?;
    }
    if args.force {
        consumer
            .annotate(binding, annotations::FORCE_UNBIND, annotations::TRUE)
            .await?;
    }
    if !args.force && !fate.is_said_by(binding.spec.deletion_policy) {
        consumer.set_deletion_policy(binding, fate.policy()).await?;
    }
    let watched =
        Watched::<APIServiceBinding>::start(&consumer, "", &args.binding, context.settings.patience(PATIENCE));
    consumer.delete(Api::all(consumer.client()), binding).await?;
    context.steps.done(&deleting(&args.binding, &bound, objects, fate));
    if args.wait {
        watched.gone(binding.metadata.uid.as_deref(), &context.steps).await?;
        let gone = format!(
            "APIServiceBinding {} is gone; the contract stays with the provider, for its owner's next bind",
            args.binding
        );
        context.steps.done(&gone);
        clean_up(&consumer, &args.binding, secret.as_ref(), &mut context.steps).await?;
    }
    let text = format!(
        "{} {}",
        binding.reference(),
        if args.wait { "unbound" } else { "is being unbound" }
    );
    match context.printer.format() {
        Format::Json | Format::Yaml => context.printer.document(&json!({
            "binding": args.binding, "unbound": args.wait, "objects": objects, "providerObjects": fate.as_str(),
        })),
        Format::Name => context.printer.text(&format!("{}\n", binding.reference())),
        Format::Table | Format::Wide => context.printer.text(&format!("{text}\n")),
    }
}

/// Counts the objects of these resources; `None` if the user may not list them all.
async fn count(consumer: &Consumer, bound: &[&GroupResource]) -> Result<Option<u64>, Failure> {
    let mut sum = 0;
    for resource in bound {
        match consumer.count(resource).await {
            Ok(objects) => sum += objects,
            Err(failure) if failure.exit() == Exit::Denied => return Ok(None),
            Err(failure) => return Err(failure),
        }
    }
    Ok(Some(sum))
}

fn deleting(binding: &str, bound: &[&GroupResource], objects: Option<u64>, fate: Fate) -> String {
    if bound.is_empty() {
        return format!("asked to unbind {binding}");
    }
    let fate = match fate {
        Fate::Kept => "the provider keeps its copies, marked as released",
        Fate::Deleted => "the provider's copies are deleted too",
    };
    format!(
        "asked to unbind {binding}, with {} of {}; {fate}",
        fate::counted(objects),
        joined(bound.iter().copied())
    )
}

/// Refuses the binding of a bundle, which would bind again, unless the bundle does not select the export any more.
fn refuse_rebound(binding: &APIServiceBinding, bundles: &[APIServiceBindingBundle]) -> Result<(), Conflict> {
    let given_up = binding
        .condition(CONNECTED)
        .is_some_and(|connected| [EXPORT_REMOVED, EXPORT_NOT_SELECTED].contains(&connected.reason.as_str()));
    let Some((name, uid)) = bundle_of(binding).filter(|_| !given_up && binding.metadata.deletion_timestamp.is_none())
    else {
        return Ok(());
    };
    let is_at_work = |bundle: &&APIServiceBindingBundle| {
        bundle.metadata.uid.as_deref() == Some(uid) && bundle.metadata.deletion_timestamp.is_none()
    };
    match bundles.iter().find(is_at_work) {
        None => Ok(()),
        Some(_) => Err(Conflict::OfBundle {
            binding: binding.name_any(),
            bundle: name.to_owned(),
            export: binding.export_name().to_owned(),
        }),
    }
}

/// The Secret of a binding, if this command made it and no other binding and no bundle uses it.
async fn own_secret(
    consumer: &Consumer,
    binding: &APIServiceBinding,
    (all, bundles): (&[APIServiceBinding], &[APIServiceBindingBundle]),
    steps: &Steps,
) -> Result<Option<Secret>, Failure> {
    let reference = &binding.spec.kubeconfig_secret_ref;
    if is_shared(binding, all, bundles) {
        steps.note(&format!("Secret {reference} stays: other bindings or a bundle use it"));
        return Ok(None);
    }
    match consumer.secret(reference).await {
        Ok(secret) => Ok(secret.filter(|secret| is_ours(&secret.metadata))),
        // A user who may not read Secrets can still end a binding.
        Err(failure) if failure.exit() == Exit::Denied => {
            steps.note(&format!("Secret {reference} stays: {failure}"));
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

fn is_shared(binding: &APIServiceBinding, all: &[APIServiceBinding], bundles: &[APIServiceBindingBundle]) -> bool {
    let reference = &binding.spec.kubeconfig_secret_ref;
    let others = all.iter().filter(|other| other.name_any() != binding.name_any());
    let used = others
        .map(|other| &other.spec.kubeconfig_secret_ref)
        .chain(bundles.iter().map(|bundle| &bundle.spec.kubeconfig_secret_ref));
    // The Secret of a bundle that is gone may be used by the next bundle of that name.
    bundle_of(binding).is_some()
        || used
            .into_iter()
            .any(|used| used.name == reference.name && used.namespace == reference.namespace)
}

/// Deletes the Secret and the role of the binding, if they still exist.
async fn clean_up(consumer: &Consumer, name: &str, secret: Option<&Secret>, steps: &mut Steps) -> Result<(), Failure> {
    if let Some(secret) = secret {
        let namespace = secret.namespace().unwrap_or_default();
        consumer
            .delete(Api::namespaced(consumer.client(), &namespace), secret)
            .await?;
        steps.done(&format!("Secret {namespace}/{} is gone", secret.name_any()));
    }
    // The konnector deletes them as its last step, unless it lacks the right to.
    for role in consumer
        .roles(name)
        .await?
        .iter()
        .filter(|role| is_ours(&role.metadata))
    {
        consumer.delete_role(role).await?;
        steps.done(&format!(
            "Role {}/{} is gone",
            role.namespace().unwrap_or_default(),
            role.name_any()
        ));
    }
    let role = names::konnector_cluster_role(name);
    for kind in consumer.delete_rights(&role, is_ours).await? {
        steps.done(&format!("{kind} {role} is gone"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
