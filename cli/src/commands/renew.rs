//! `renew`: new credentials for a binding or a bundle, asked for by the principal that owns the contract.

use std::{io::Write, time::Duration};

use bindery_api::v1alpha2::APIServiceBinding;
use bindery_proto::v1alpha2::{BindingResourceResponse, ClusterIdentity, ErrorReason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::Context;
use crate::{
    args::RenewArgs,
    consumer::{Consumer, wait},
    errors::Failure,
    install::{
        manifests::{self, Kubeconfig, is_ours},
        owner::CredentialOwner,
        plan::Installed,
    },
    provider::{BindRequest, Provider},
};

/// How long a renewal may take, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);

/// The contract whose credentials are renewed.
struct Renewal<'a> {
    /// The export of a binding; none for a bundle, which has many.
    export: Option<&'a str>,
    /// The identity of this cluster, where a flag says it.
    identity: Option<&'a str>,
    /// The contract namespace, as far as it is known on this cluster.
    contract: Option<&'a str>,
}

/// `kubectl bind renew NAME`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &RenewArgs) -> Result<(), Failure> {
    let start = Instant::now();
    let patience = context.settings.patience(PATIENCE);
    let provider = context.settings.provider()?;
    let consumer = Consumer::connect(&context.settings).await?;
    let owner = consumer.owner(&args.name, args.bundle).await?;
    let reference = owner.secret_ref();
    let seen = consumer.installed(Some(owner.clone()), None, reference).await?;
    seen.refuse_deleting()?;
    context.steps.done(&format!("{owner} uses Secret {reference}"));

    let renewal = Renewal::of(&owner, &seen, args);
    let answer = renewed(&provider, &consumer, &renewal, patience).await?;
    let kubeconfig = seen.accept(&answer.provider_namespace, answer.kubeconfig.as_ref())?;
    context.steps.done(&format!(
        "the provider made credentials for contract {}",
        answer.provider_namespace
    ));

    let secret = manifests::secret(reference, Kubeconfig::Document(kubeconfig));
    let secret = new_secret(seen.secret.as_ref(), secret);
    consumer
        .replace_kubeconfig(&secret, &format!("Secret {reference}"))
        .await?;
    context.steps.done(&format!("changed Secret {reference}"));
    let owner = if args.wait {
        let patience = patience.saturating_sub(start.elapsed());
        let owner = wait::renewed(&consumer, &owner, patience, &context.steps).await?;
        context.steps.done(&format!("{owner} uses the new credentials"));
        owner
    } else {
        consumer.owner(&args.name, owner.bundle().is_some()).await?
    };
    context.printer.owner(&owner, Timestamp::now())
}

impl<'a> Renewal<'a> {
    /// The contract namespace is the one that the konnector reports, or else the one in the installed kubeconfig.
    fn of(owner: &'a CredentialOwner, seen: &'a Installed, args: &'a RenewArgs) -> Self {
        let installed = seen.credential.as_ref().map(|credential| credential.namespace.as_str());
        Self {
            export: owner.binding().map(APIServiceBinding::export_name),
            identity: args.cluster_identity.as_deref(),
            contract: owner.contract().or(installed),
        }
    }
}

/// Asks the provider for new credentials. Binding again makes some too, and ends a revocation, but it takes the template as it
/// is now, so it is done only where renewing is not enough.
async fn renewed(
    provider: &Provider<'_>,
    consumer: &Consumer,
    renewal: &Renewal<'_>,
    patience: Duration,
) -> Result<BindingResourceResponse, Failure> {
    let refused = match renewal.contract {
        None => None,
        Some(contract) => match provider.renew(contract).await {
            Ok(renewed) => {
                return Ok(BindingResourceResponse {
                    provider_namespace: renewed.contract,
                    kubeconfig: Some(renewed.kubeconfig.into_message()),
                    ..BindingResourceResponse::default()
                });
            }
            Err(error) if needs_bind(error.reason()) => Some(error),
            Err(error) => return Err(error.into()),
        },
    };
    let Some(name) = renewal.export else {
        return Err(refused.map_or_else(
            || {
                Failure::Usage(
                    "the contract of the bundle is not known on this cluster: neither its status nor its Secret names it; wait until \
                     `kubectl bind status` shows its contract"
                        .to_owned(),
                )
            },
            Failure::from,
        ));
    };
    let identity = match renewal.identity {
        Some(identity) => identity.to_owned(),
        None => consumer.identity().await?,
    };
    match provider.request(name, &identity).await {
        Ok(request) => Ok(provider.bind_again(request, patience).await?.to_response()),
        Err(error) if error.reason() == Some(ErrorReason::RequestNotFound) => {
            match shared_bind(provider, renewal, name, identity).await {
                Some(bind) => Ok(provider.bind(&bind, patience, |_| ()).await?.to_response()),
                // Another principal has bound, so the first refusal is the one to mend.
                None => Err(refused.unwrap_or(error).into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// The bind that a colleague makes anew: another principal made the request, and the contract is shared with the caller. None if
/// the caller does not see the contract, or if the export is gone.
async fn shared_bind(
    provider: &Provider<'_>,
    renewal: &Renewal<'_>,
    name: &str,
    identity: String,
) -> Option<BindRequest> {
    let contract = provider.contract(renewal.contract?).await.ok()?;
    let export = contract.exports.into_iter().find(|export| export.name == name)?;
    (!export.template.is_empty() && contract.cluster_identity == identity).then(|| BindRequest {
        name: name.to_owned(),
        template: export.template,
        cluster: ClusterIdentity {
            identity,
            pretty_name: contract.cluster_pretty_name,
        },
    })
}

/// Whether a bind by the owner of the contract may end the reason why a renewal is refused.
fn needs_bind(reason: Option<ErrorReason>) -> bool {
    matches!(
        reason,
        Some(
            ErrorReason::RenewalStopped
                | ErrorReason::RenewalLocked
                | ErrorReason::ContractDenied
                | ErrorReason::MethodDenied
        )
    )
}

/// The Secret to apply. A Secret of another manager does not get our label: only its kubeconfig is replaced.
fn new_secret(seen: Option<&Secret>, mut secret: Secret) -> Secret {
    if seen.is_some_and(|seen| !is_ours(&seen.metadata)) {
        secret.labels_mut().clear();
    }
    secret
}

#[cfg(test)]
mod tests;
