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

/// What is renewed.
struct Wanted<'a> {
    /// The binding.
    name: &'a str,
    /// Identity of the consumer cluster, where a flag says it.
    identity: Option<&'a str>,
    /// The contract, as far as it is known here.
    contract: Option<String>,
}

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
    let seen = consumer.installed(Some(binding), &args.binding, &reference).await?;
    context
        .steps
        .done(&format!("APIServiceBinding {} uses Secret {reference}", args.binding));

    let wanted = Wanted {
        name: &args.binding,
        identity: args.cluster_identity.as_deref(),
        contract: contract(&seen),
    };
    let answer = renewed(&provider, &consumer, &wanted, patience).await?;
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

/// New credentials. Binding again makes some too, and ends a revocation, but takes what the template has become, so that
/// it is done only where renewing is not enough.
async fn renewed(
    provider: &Provider<'_>,
    consumer: &Consumer,
    wanted: &Wanted<'_>,
    patience: Duration,
) -> Result<BindingResourceResponse, Failure> {
    let refused = match &wanted.contract {
        None => None,
        Some(contract) => match provider.renew(contract).await {
            Ok(renewed) => {
                return Ok(BindingResourceResponse {
                    provider_namespace: renewed.contract,
                    kubeconfig: Some(renewed.kubeconfig),
                    ..BindingResourceResponse::default()
                });
            }
            Err(error) if needs_bind(error.reason()) => Some(error),
            Err(error) => return Err(error.into()),
        },
    };
    let identity = match wanted.identity {
        Some(identity) => identity.to_owned(),
        None => consumer.identity().await?,
    };
    match provider.request(wanted.name, &identity).await {
        Ok(request) => Ok(provider.bind_again(request, patience).await?.response),
        // It was not this principal that bound, so that what was said first is to be mended.
        Err(error) if error.reason() == Some(ErrorReason::RequestNotFound) => Err(refused.unwrap_or(error).into()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a renewal is refused for what a bind by the owner may end.
fn needs_bind(reason: Option<ErrorReason>) -> bool {
    matches!(
        reason,
        Some(ErrorReason::RenewalStopped | ErrorReason::ContractDenied | ErrorReason::MethodDenied)
    )
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
    fn nothing_is_bound_again_where_renewing_is_enough_or_binding_no_help() {
        for reason in ErrorReason::all() {
            let expect = ["RENEWAL_STOPPED", "CONTRACT_DENIED", "METHOD_DENIED"].contains(&reason.reason_str());
            assert_eq!(needs_bind(Some(reason)), expect, "{}", reason.reason_str());
        }
        assert!(!needs_bind(None));
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
