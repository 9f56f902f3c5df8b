//! `unbind`: ends a binding.

use std::{io::Write, time::Duration};

use bindery_api::{annotations, names, v1alpha2::APIServiceBinding};
use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Context;
use crate::{
    args::UnbindArgs,
    consumer::Consumer,
    errors::{Exit, Failure},
    manifests::is_ours,
    output::{Format, Show as _, joined},
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
    let secret = own_secret(&consumer, binding, &bindings, &context.steps).await?;
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

/// The Secret of a binding, if this command made it and no other binding uses it.
async fn own_secret(
    consumer: &Consumer,
    binding: &APIServiceBinding,
    all: &[APIServiceBinding],
    steps: &Steps,
) -> Result<Option<Secret>, Failure> {
    let reference = &binding.spec.kubeconfig_secret_ref;
    if is_shared(binding, all) {
        steps.note(&format!("Secret {reference} stays: other bindings use it"));
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

fn is_shared(binding: &APIServiceBinding, all: &[APIServiceBinding]) -> bool {
    let reference = &binding.spec.kubeconfig_secret_ref;
    all.iter().any(|other| {
        let used = &other.spec.kubeconfig_secret_ref;
        other.name_any() != binding.name_any() && used.name == reference.name && used.namespace == reference.namespace
    })
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
    use bindery_api::v1alpha2::{APIServiceBindingSpec, APIServiceBindingStatus, GroupResource};

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
        assert_eq!(
            all.each_ref().map(|binding| is_shared(binding, &all)),
            [false, true, true]
        );
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
