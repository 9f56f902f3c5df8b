//! `renew`: new credentials for a binding or a bundle, by their owner.

use std::{fmt, io::Write, time::Duration};

use bindery_api::{
    ConditionStatus, Conditions as _,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, ClusterSecretKeyRef},
};
use bindery_proto::v1alpha2::{BindingResourceResponse, ErrorReason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{Context, apiservice::accept_kubeconfig};
use crate::{
    args::RenewArgs,
    consumer::Consumer,
    deploy::{self, InstalledBundle},
    errors::Failure,
    kubeconfig::{Credential, KubeconfigError},
    manifests::{self, Kubeconfig, is_ours},
    plan::{self, Conflict, Installed},
    provider::Provider,
    wait::Watched,
};

/// How long a renewal may take, unless a flag says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);

/// What is renewed.
struct Wanted<'a> {
    /// The export, where it is one.
    name: Option<&'a str>,
    /// Identity of the consumer cluster, where a flag says it.
    identity: Option<&'a str>,
    /// The contract, as far as it is known here.
    contract: Option<String>,
}

/// Whose credentials they are.
enum Target {
    Binding(Box<APIServiceBinding>, Box<Installed>),
    Bundle(Box<APIServiceBindingBundle>, Box<InstalledBundle>),
}

/// `kubectl bind renew NAME`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &RenewArgs) -> Result<(), Failure> {
    let start = Instant::now();
    let patience = context.settings.patience(PATIENCE);
    let provider = Provider::new(&context.settings)?;
    let consumer = Consumer::connect(&context.settings).await?;
    let target = Target::find(&consumer, args).await?;
    let reference = target.secret_ref();
    context.steps.done(&format!("{target} uses Secret {reference}"));

    let wanted = Wanted {
        name: target.export(),
        identity: args.cluster_identity.as_deref(),
        contract: target.contract(),
    };
    let answer = renewed(&provider, &consumer, &wanted, patience).await?;
    let kubeconfig = target.accept(&answer)?;
    context.steps.done(&format!(
        "the provider made credentials for contract {}",
        answer.provider_namespace
    ));

    let secret = manifests::secret(reference, Kubeconfig::Is(kubeconfig));
    let secret = new_secret(target.secret(), secret);
    consumer
        .replace_kubeconfig(&secret, &format!("Secret {reference}"))
        .await?;
    context.steps.done(&format!("changed Secret {reference}"));
    let left = args.wait.then(|| patience.saturating_sub(start.elapsed()));
    match target {
        Target::Binding(binding, _) => of_binding(context, &consumer, &binding.name_any(), left).await,
        Target::Bundle(bundle, _) => of_bundle(context, &consumer, &bundle.name_any(), left).await,
    }
}

async fn of_binding<W: Write>(
    context: &mut Context<W>,
    consumer: &Consumer,
    name: &str,
    left: Option<Duration>,
) -> Result<(), Failure> {
    let binding = match left {
        Some(left) => {
            let ready = Watched::start(consumer, name, left).ready(&context.steps).await?;
            context.steps.done(&format!("APIServiceBinding {name} is ready"));
            ready
        }
        None => consumer.binding(name).await?,
    };
    context.printer.one(&binding, Timestamp::now())
}

/// Of a bundle, its access is waited for, and not whatever else is with its bindings.
async fn of_bundle<W: Write>(
    context: &mut Context<W>,
    consumer: &Consumer,
    name: &str,
    left: Option<Duration>,
) -> Result<(), Failure> {
    if let Some(left) = left {
        let watched = Watched::bundle(consumer, name, left);
        watched.until("has no access", no_access, &context.steps).await?;
        context
            .steps
            .done(&format!("APIServiceBindingBundle {name} has access"));
    }
    let bundle = consumer.find_bundle(name).await?;
    let bundle = bundle.ok_or_else(|| Failure::NeitherBindingNorBundle(name.to_owned()))?;
    context.printer.one(&bundle, Timestamp::now())
}

/// Why a bundle does not reach its provider, in words.
fn no_access(bundle: &APIServiceBindingBundle) -> Option<String> {
    ["SecretValid", "ProviderReachable"]
        .iter()
        .find_map(|type_| match bundle.condition(type_) {
            Some(condition) if condition.status == ConditionStatus::True => None,
            Some(condition) => Some(format!("{}: {}", condition.reason, condition.message)),
            None => Some("waiting for the konnector; does it run?".to_owned()),
        })
}

impl Target {
    /// The binding of a name, else the bundle.
    async fn find(consumer: &Consumer, args: &RenewArgs) -> Result<Self, Failure> {
        let name = args.name.clone();
        let binding = if args.bundle {
            None
        } else {
            consumer.find_binding(&name).await?
        };
        if let Some(binding) = binding {
            let reference = binding.spec.kubeconfig_secret_ref.clone();
            let seen = consumer.installed(Some(binding.clone()), &name, &reference).await?;
            plan::is_to_stay(&seen)?;
            return Ok(Self::Binding(Box::new(binding), Box::new(seen)));
        }
        match consumer.find_bundle(&name).await? {
            Some(bundle) if bundle.metadata.deletion_timestamp.is_some() => {
                Err(Conflict::UnbindingBundle { bundle: name }.into())
            }
            Some(bundle) => {
                let seen = consumer.installed_bundle(Some(bundle.clone()), &name).await?;
                Ok(Self::Bundle(Box::new(bundle), Box::new(seen)))
            }
            None => Err(Failure::NeitherBindingNorBundle(name)),
        }
    }

    fn secret_ref(&self) -> &ClusterSecretKeyRef {
        match self {
            Self::Binding(binding, _) => &binding.spec.kubeconfig_secret_ref,
            Self::Bundle(bundle, _) => &bundle.spec.kubeconfig_secret_ref,
        }
    }

    fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Binding(_, seen) => seen.secret.as_ref(),
            Self::Bundle(_, seen) => seen.secret.as_ref(),
        }
    }

    fn export(&self) -> Option<&str> {
        match self {
            Self::Binding(binding, _) => Some(binding.export_name()),
            Self::Bundle(..) => None,
        }
    }

    /// The contract: as the konnector reports it, else as the kubeconfig has it.
    fn contract(&self) -> Option<String> {
        let (reported, installed) = match self {
            Self::Binding(binding, seen) => {
                let status = binding.status.as_ref();
                (
                    status.and_then(|status| status.provider_namespace.clone()),
                    &seen.credential,
                )
            }
            Self::Bundle(bundle, seen) => {
                let status = bundle.status.as_ref();
                (
                    status.and_then(|status| status.provider_namespace.clone()),
                    &seen.credential,
                )
            }
        };
        reported.or_else(|| installed.as_ref().map(|credential| credential.namespace.clone()))
    }

    /// The new kubeconfig, if it may be installed.
    fn accept(&self, answer: &BindingResourceResponse) -> Result<Vec<u8>, Failure> {
        let contract = &answer.provider_namespace;
        match self {
            Self::Binding(_, seen) => accept_kubeconfig(answer, contract, seen),
            Self::Bundle(bundle, seen) => {
                let kubeconfig = answer.kubeconfig.as_ref().ok_or(KubeconfigError::Missing)?;
                let credential = Credential::parse(&kubeconfig.kubeconfig)?.for_contract(contract)?;
                deploy::same_contract(&bundle.name_any(), seen, &credential, &kubeconfig.contract_uid)?;
                Ok(kubeconfig.kubeconfig.to_vec())
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Binding(binding, _) => write!(f, "APIServiceBinding {}", binding.name_any()),
            Self::Bundle(bundle, _) => write!(f, "APIServiceBindingBundle {}", bundle.name_any()),
        }
    }
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
    let Some(name) = wanted.name else {
        return Err(refused.map_or_else(
            || {
                Failure::Usage(
                    "the contract of the bundle is not known here: neither its status nor its Secret names it"
                        .to_owned(),
                )
            },
            Failure::from,
        ));
    };
    let identity = match wanted.identity {
        Some(identity) => identity.to_owned(),
        None => consumer.identity().await?,
    };
    match provider.request(name, &identity).await {
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

/// A Secret that somebody else made is not marked as ours: only its kubeconfig is replaced.
fn new_secret(seen: Option<&Secret>, mut secret: Secret) -> Secret {
    if seen.is_some_and(|seen| !is_ours(&seen.metadata)) {
        secret.labels_mut().clear();
    }
    secret
}

#[cfg(test)]
mod tests {
    use bindery_api::{
        conditions::{Severity, false_condition, true_condition},
        v1alpha2::APIServiceBindingBundleSpec,
    };

    use super::*;
    use crate::{
        kubeconfig::tests::{kubeconfig, parse},
        manifests::tests::manifests,
    };

    fn binding() -> (Box<APIServiceBinding>, Box<Installed>) {
        let manifests = manifests(Kubeconfig::Hidden("x"));
        let seen = Installed {
            secret: Some(manifests.secret),
            credential: parse(&kubeconfig(100, 100)).ok(),
            binding: Some(manifests.binding.clone()),
            ..Installed::default()
        };
        (Box::new(manifests.binding), Box::new(seen))
    }

    fn bundle() -> (Box<APIServiceBindingBundle>, Box<InstalledBundle>) {
        let seen = InstalledBundle {
            credential: parse(&kubeconfig(100, 100)).ok(),
            ..InstalledBundle::default()
        };
        let bundle = APIServiceBindingBundle::new("acme", APIServiceBindingBundleSpec::default());
        (Box::new(bundle), Box::new(seen))
    }

    #[test]
    fn a_secret_of_somebody_else_stays_theirs() {
        let fresh = || manifests(Kubeconfig::Hidden("x")).secret;
        assert!(is_ours(&new_secret(Some(&fresh()), fresh()).metadata));
        assert!(is_ours(&new_secret(None, fresh()).metadata));
        let mut foreign = fresh();
        foreign.metadata.labels = None;
        assert!(!is_ours(&new_secret(Some(&foreign), fresh()).metadata));
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
        let check = |target: Target, expect: Option<&str>| assert_eq!(target.contract().as_deref(), expect, "{target}");
        let (mut west, seen) = binding();
        check(Target::Binding(west.clone(), seen), Some("kube-bind-x"));
        west.status.get_or_insert_default().provider_namespace = Some("kube-bind-y".to_owned());
        check(Target::Binding(west.clone(), Box::default()), Some("kube-bind-y"));
        west.status = None;
        check(Target::Binding(west, Box::default()), None);
        let (mut acme, seen) = bundle();
        check(Target::Bundle(acme.clone(), seen), Some("kube-bind-x"));
        acme.status.get_or_insert_default().provider_namespace = Some("kube-bind-y".to_owned());
        check(Target::Bundle(acme, Box::default()), Some("kube-bind-y"));
    }

    #[test]
    fn a_binding_is_bound_again_under_the_name_of_its_export() {
        let (mut west, seen) = binding();
        west.spec.export_name = Some("cowboys".to_owned());
        assert_eq!(Target::Binding(west, seen).export(), Some("cowboys"));
        let (acme, seen) = bundle();
        assert_eq!(Target::Bundle(acme, seen).export(), None);
    }

    #[test]
    fn a_bundle_is_renewed_for_the_contract_that_it_is_pinned_to() {
        let (mut acme, mut seen) = bundle();
        let answer = |server: &str| {
            let mut document = kubeconfig(200, 200);
            document["clusters"][0]["cluster"]["server"] = server.into();
            BindingResourceResponse {
                provider_namespace: "kube-bind-x".to_owned(),
                kubeconfig: Some(bindery_proto::v1alpha2::Kubeconfig {
                    kubeconfig: document.to_string().into_bytes().into(),
                    contract_uid: "u".to_owned(),
                    ..Default::default()
                }),
                ..BindingResourceResponse::default()
            }
        };
        let same = answer("https://api.example.com:6443");
        let other = answer("https://moved.example.com");
        let target = Target::Bundle(acme.clone(), seen);
        assert!(target.accept(&same).is_ok());
        assert!(target.accept(&other).is_err());
        acme.status.get_or_insert_default().contract_uid = Some("u".to_owned());
        seen = bundle().1;
        seen.bundle = Some(*acme.clone());
        assert!(Target::Bundle(acme, seen).accept(&other).is_ok());
    }

    #[test]
    fn access_is_what_a_bundle_is_waited_for() {
        let (mut acme, _) = bundle();
        assert!(no_access(&acme).unwrap().contains("does it run?"));
        for type_ in ["SecretValid", "ProviderReachable"] {
            acme.set_condition(true_condition(type_), Timestamp::UNIX_EPOCH);
        }
        acme.set_condition(
            false_condition("Synced", Severity::Warning, "SyncErrors", ""),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(no_access(&acme), None);
        let expired = false_condition("SecretValid", Severity::Error, "CredentialExpired", "renew");
        acme.set_condition(expired, Timestamp::UNIX_EPOCH);
        assert_eq!(no_access(&acme).as_deref(), Some("CredentialExpired: renew"));
    }
}
