//! `renew`: new credentials for a binding, by its owner.

use std::{io::Write, time::Duration};

use bindery_api::v1alpha2::APIServiceBinding;
use bindery_proto::v1alpha2::{BindingResourceResponse, ErrorReason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{Context, apiservice::accept_kubeconfig};
use crate::{
    args::RenewArgs,
    consumer::Consumer,
    errors::Failure,
    manifests::{self, Kubeconfig, is_ours},
    plan::{Conflict, Installed},
    provider::Provider,
    wait::Watched,
};

/// How long a renewal may take, unless a flag says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);

/// `kubectl bind renew BINDING`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &RenewArgs) -> Result<(), Failure> {
    let start = Instant::now();
    let patience = context.settings.patience(PATIENCE);
    let provider = Provider::new(&context.settings)?;
    let consumer = Consumer::connect(&context.settings).await?;
    let binding = consumer.binding(&args.binding).await?;
    if binding.metadata.deletion_timestamp.is_some() {
        return Err(Conflict::Unbinding {
            binding: args.binding.clone(),
        }
        .into());
    }
    let reference = binding.spec.kubeconfig_secret_ref.clone();
    let identity = match &args.cluster_identity {
        Some(identity) => identity.clone(),
        None => consumer.identity().await?,
    };
    let seen = consumer.installed(Some(binding), &args.binding, &reference).await?;
    context
        .steps
        .done(&format!("APIServiceBinding {} uses Secret {reference}", args.binding));

    let answer = bind_again(&provider, &seen, &args.binding, &identity, patience).await?;
    let kubeconfig = accept_kubeconfig(&answer, &answer.provider_namespace, &seen)?;
    context.steps.done(&format!(
        "the provider made credentials for contract {}",
        answer.provider_namespace
    ));

    let secret = new_secret(&seen, manifests::secret(&reference, Kubeconfig::Is(kubeconfig)));
    consumer
        .replace_kubeconfig(&secret, &format!("Secret {reference}"))
        .await?;
    context.steps.done(&format!("changed Secret {reference}"));
    let binding = if args.wait {
        let left = patience.saturating_sub(start.elapsed());
        let ready = Watched::start(&consumer, &args.binding, left)
            .ready(&context.steps)
            .await?;
        context
            .steps
            .done(&format!("APIServiceBinding {} is ready", args.binding));
        ready
    } else {
        consumer.binding(&args.binding).await?
    };
    context.printer.one(&binding, Timestamp::now())
}

/// Binds again what was bound, which also ends a revocation. A contract of which the provider knows no request, such as
/// one made by its admin, is renewed as it is.
async fn bind_again(
    provider: &Provider<'_>,
    seen: &Installed,
    name: &str,
    identity: &str,
    patience: Duration,
) -> Result<BindingResourceResponse, Failure> {
    match provider.request(name, identity).await {
        Ok(request) => Ok(provider.bind_again(request, patience).await?.response),
        Err(error) if error.is(ErrorReason::RequestNotFound) => {
            let contract = contract(seen).ok_or(error)?;
            let renewed = provider.renew(&contract).await?;
            Ok(BindingResourceResponse {
                provider_namespace: renewed.contract,
                kubeconfig: Some(renewed.kubeconfig),
                ..BindingResourceResponse::default()
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// The contract of a binding: as the konnector reports it, else as its kubeconfig has it.
fn contract(seen: &Installed) -> Option<String> {
    let reported = |binding: &APIServiceBinding| binding.status.as_ref()?.provider_namespace.clone();
    let installed = || seen.credential.as_ref().map(|credential| credential.namespace.clone());
    seen.binding.as_ref().and_then(reported).or_else(installed)
}

/// A Secret that somebody else made is not marked as ours: only its kubeconfig is replaced.
fn new_secret(seen: &Installed, mut secret: Secret) -> Secret {
    if seen.secret.as_ref().is_some_and(|seen| !is_ours(&seen.metadata)) {
        secret.labels_mut().clear();
    }
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kubeconfig::tests::{kubeconfig, parse},
        manifests::tests::manifests,
    };

    fn seen() -> Installed {
        let manifests = manifests(Kubeconfig::Hidden("x"));
        Installed {
            secret: Some(manifests.secret),
            credential: parse(&kubeconfig(100, 100)).ok(),
            binding: Some(manifests.binding),
            ..Installed::default()
        }
    }

    #[test]
    fn a_secret_of_somebody_else_stays_theirs() {
        let fresh = || manifests(Kubeconfig::Hidden("x")).secret;
        assert!(is_ours(&new_secret(&seen(), fresh()).metadata));
        assert!(is_ours(&new_secret(&Installed::default(), fresh()).metadata));
        let mut foreign = seen();
        foreign.secret.as_mut().unwrap().metadata.labels = None;
        assert!(!is_ours(&new_secret(&foreign, fresh()).metadata));
    }

    #[test]
    fn the_contract_is_the_reported_one() {
        let mut seen = seen();
        assert_eq!(contract(&seen).as_deref(), Some("kube-bind-x"));
        let status = seen.binding.as_mut().unwrap().status.get_or_insert_default();
        status.provider_namespace = Some("kube-bind-y".to_owned());
        assert_eq!(contract(&seen).as_deref(), Some("kube-bind-y"));
        assert_eq!(contract(&Installed::default()), None);
    }
}
