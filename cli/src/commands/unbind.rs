//! `unbind`: ends a binding.

use std::{io::Write, time::Duration};

use bindery_api::{
    Conditions as _, annotations, names,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Context;
use crate::{
    args::UnbindArgs,
    consumer::{Consumer, bundle_of},
    errors::{Exit, Failure},
    manifests::is_ours,
    output::{Format, Show as _, joined},
    plan::Conflict,
    steps::Steps,
    wait::Watched,
};

/// How long an unbind may take, unless a flag says otherwise: every object is deleted on both sides first.
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
        // Whoever may see bindings alone can end one that no bundle has made.
        Err(failure) if failure.exit() == Exit::Denied && bundle_of(binding).is_none() => None,
        bundles => Some(bundles?),
    };
    refuse_wanted(binding, bundles.as_deref().unwrap_or_default())?;
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
    let watched = Watched::start(&consumer, &args.binding, context.settings.patience(PATIENCE));
    consumer.delete(Api::all(consumer.client()), binding).await?;
    context.steps.done(&deleting(binding));
    if args.wait {
        watched.gone(binding.metadata.uid.as_deref(), &context.steps).await?;
        context
            .steps
            .done(&format!("APIServiceBinding {} is gone", args.binding));
        clean_up(&consumer, &args.binding, secret.as_ref(), &mut context.steps).await?;
    }
    let text = format!(
        "{} {}",
        binding.reference(),
        if args.wait { "unbound" } else { "is being unbound" }
    );
    match context.printer.format() {
        Format::Json | Format::Yaml => context
            .printer
            .document(&json!({ "binding": args.binding, "unbound": args.wait })),
        Format::Name => context.printer.text(&format!("{}\n", binding.reference())),
        Format::Table | Format::Wide => context.printer.text(&format!("{text}\n")),
    }
}

fn deleting(binding: &APIServiceBinding) -> String {
    let bound: Vec<_> = binding.status.iter().flat_map(|known| &known.bound_schemas).collect();
    if bound.is_empty() {
        return format!("asked to unbind {}", binding.name_any());
    }
    format!(
        "asked to unbind {}, with all objects of {}",
        binding.name_any(),
        joined(bound)
    )
}

/// The binding of a bundle comes back, unless the bundle does not want it any more either.
fn refuse_wanted(binding: &APIServiceBinding, bundles: &[APIServiceBindingBundle]) -> Result<(), Conflict> {
    let given_up = binding
        .condition("Connected")
        .is_some_and(|connected| ["ExportRemoved", "ExportNotSelected"].contains(&connected.reason.as_str()));
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
        // Whoever may not read Secrets can end a binding all the same.
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
    // One of a bundle that is gone may be used by the next bundle of that name.
    bundle_of(binding).is_some()
        || used
            .into_iter()
            .any(|used| used.name == reference.name && used.namespace == reference.namespace)
}

/// Deletes what a bind made and nobody has deleted yet.
async fn clean_up(consumer: &Consumer, name: &str, secret: Option<&Secret>, steps: &mut Steps) -> Result<(), Failure> {
    if let Some(secret) = secret {
        let namespace = secret.namespace().unwrap_or_default();
        consumer
            .delete(Api::namespaced(consumer.client(), &namespace), secret)
            .await?;
        steps.done(&format!("Secret {namespace}/{} is gone", secret.name_any()));
    }
    // The konnector deletes them as its last step, unless it lacks the right to.
    let role_name = names::konnector_cluster_role(name);
    let grants = Api::<ClusterRoleBinding>::all(consumer.client());
    if let Some(grant) = consumer
        .find(grants.clone(), &role_name)
        .await?
        .filter(|grant| is_ours(&grant.metadata))
    {
        consumer.delete(grants, &grant).await?;
        steps.done(&format!("ClusterRoleBinding {role_name} is gone"));
    }
    let roles = Api::<ClusterRole>::all(consumer.client());
    if let Some(role) = consumer
        .find(roles.clone(), &role_name)
        .await?
        .filter(|role| is_ours(&role.metadata))
    {
        consumer.delete(roles, &role).await?;
        steps.done(&format!("ClusterRole {role_name} is gone"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bindery_api::{
        conditions::{Severity, false_condition},
        v1alpha2::{APIServiceBindingBundleSpec, APIServiceBindingSpec, APIServiceBindingStatus, GroupResource},
    };
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::Resource as _;

    use super::*;
    use crate::manifests::secret_ref;

    fn binding(name: &str, secret: &str) -> APIServiceBinding {
        let spec = APIServiceBindingSpec {
            kubeconfig_secret_ref: secret_ref(secret, "kube-bind"),
            ..APIServiceBindingSpec::default()
        };
        APIServiceBinding::new(name, spec)
    }

    #[test]
    fn a_shared_secret_is_told_from_an_own_one() {
        let all = [binding("a", "a"), binding("b", "b"), binding("c", "b")];
        let shared = |bundles: &[APIServiceBindingBundle]| all.each_ref().map(|one| is_shared(one, &all, bundles));
        assert_eq!(shared(&[]), [false, true, true]);
        let mut acme = bundle();
        acme.spec.kubeconfig_secret_ref = secret_ref("a", "kube-bind");
        assert_eq!(shared(&[acme]), [true, true, true]);
        assert!(is_shared(&of_bundle("a"), &[], &[]));
    }

    fn bundle() -> APIServiceBindingBundle {
        let mut bundle = APIServiceBindingBundle::new("acme", APIServiceBindingBundleSpec::default());
        bundle.metadata.uid = Some("u".to_owned());
        bundle
    }

    fn of_bundle(name: &str) -> APIServiceBinding {
        let mut binding = binding(name, name);
        binding.metadata.owner_references = bundle().controller_owner_ref(&()).map(|owner| vec![owner]);
        binding
    }

    #[test]
    fn the_binding_of_a_bundle_would_come_back() {
        let check = |binding: &APIServiceBinding, bundles: &[APIServiceBindingBundle], refused: bool| {
            let outcome = refuse_wanted(binding, bundles);
            assert_eq!(outcome.is_err(), refused, "{outcome:?}");
        };
        check(&of_bundle("a"), &[bundle()], true);
        check(&binding("a", "a"), &[bundle()], false);
        // Its bundle is gone, or another one has its name.
        check(&of_bundle("a"), &[], false);
        let mut other = bundle();
        other.metadata.uid = Some("v".to_owned());
        check(&of_bundle("a"), &[other], false);
        let mut going = bundle();
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        check(&of_bundle("a"), &[going], false);
        for (reason, refused) in [
            ("ExportRemoved", false),
            ("ExportNotSelected", false),
            ("ProviderUnreachable", true),
        ] {
            let mut away = of_bundle("a");
            away.set_condition(
                false_condition("Connected", Severity::Error, reason, ""),
                Timestamp::UNIX_EPOCH,
            );
            check(&away, &[bundle()], refused);
        }
    }

    #[test]
    fn says_what_is_deleted() {
        let mut bound = binding("a", "a");
        assert_eq!(deleting(&bound), "asked to unbind a");
        bound.status = Some(APIServiceBindingStatus {
            bound_schemas: vec![GroupResource::new("wildwest.dev", "cowboys")],
            ..APIServiceBindingStatus::default()
        });
        assert_eq!(
            deleting(&bound),
            "asked to unbind a, with all objects of cowboys.wildwest.dev"
        );
    }
}
