//! Errors of the command: each has a message, an exit code and, where it helps, what to do about it.

pub(crate) mod address;
pub(crate) mod conflict;

use std::io;

use bindery_api::names::KUBE_BIND_NAMESPACE;
pub(crate) use bindery_runtime::terminal::Exit;
use bindery_runtime::{client::ClientError, crds::InstallError, errors as cluster, terminal::error_text};
use bindery_synk::{Failure as SetFailure, Report, plan::Refusal};

use crate::{
    claims,
    login::{error::LoginError, store::StoreError},
    provider::{ProviderError, kubeconfig, offer, response},
    text::joined,
};
use address::AddressProblem;
use conflict::Conflict;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line is wrong, or lacks something that the command needs.
    #[error("{0}")]
    Usage(String),
    /// The consumer cluster has no usable kubeconfig.
    #[error("{0}")]
    Kubeconfig(#[from] ClientError),
    /// The consumer cluster refused a request, or did not answer. `doing` says what was tried, such as "read Secret a".
    #[error("cannot {doing}: {}", cluster::explain(.source))]
    Cluster { doing: String, source: Box<kube::Error> },
    /// A command that works on two clusters failed on one of them.
    #[error("on the {role} (context {context}): {failure}")]
    On {
        role: &'static str,
        context: String,
        failure: Box<Self>,
    },
    /// The consumer cluster does not serve bindings.
    #[error("this cluster does not serve APIServiceBindings")]
    NoKonnector,
    /// The provider's backend refused a call, or did not answer.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// There is no login, or it cannot be used.
    #[error("{0}")]
    Login(Box<LoginError>),
    /// The user has not logged in to the server that was named.
    #[error("you have not logged in to {0}")]
    UnknownServer(String),
    /// The provider wants more installed than the bind asked for.
    #[error("refused what the provider wants installed: {0}")]
    Offer(#[from] offer::Refusal),
    /// The provider's claims have changed since they were shown.
    #[error("refused what the provider wants installed: {0}")]
    ChangedClaims(#[from] offer::ChangedClaims),
    /// The provider's kubeconfig is not safe to install, or cannot be read.
    #[error("refused the provider's kubeconfig: {0}")]
    Credential(#[from] kubeconfig::KubeconfigError),
    /// An object of the consumer cluster stands in the way.
    #[error("{0}")]
    Conflict(#[from] Conflict),
    /// An address that `dev up` needs is not found, or is none.
    #[error("{0}")]
    Address(#[from] AddressProblem),
    /// A flag names a claim that the provider does not make.
    #[error("{0}")]
    Unclaimed(#[from] claims::Unclaimed),
    /// All Secrets are claimed, and there is no terminal to ask the user on.
    #[error("{0} claims EVERY Secret of this cluster, and there is no terminal to ask for a yes")]
    NotAccepted(String),
    /// The user did not accept the claims.
    #[error("{0}: the claims were not accepted")]
    Declined(String),
    /// The object that was asked about exists on neither cluster.
    #[error("there is no {0} on this cluster, nor on a provider as far as you may read it")]
    NoObject(String),
    /// The binding does not exist.
    #[error("there is no APIServiceBinding {0:?} on this cluster")]
    NoBinding(String),
    /// Neither a binding nor a bundle of this name exists.
    #[error("there is neither an APIServiceBinding nor an APIServiceBindingBundle {0:?} on this cluster")]
    NeitherBindingNorBundle(String),
    /// The work was begun and goes on, but the wait for it is over.
    #[error("{what} after {} s: {last}", .waited.as_secs())]
    TimedOut {
        what: String,
        waited: std::time::Duration,
        last: String,
    },
    /// A CustomResourceDefinition is installed, but the API server does not serve it.
    #[error("{0}")]
    Definition(#[source] InstallError),
    /// The konnector's set could not be applied or deleted as a whole.
    #[error("{}", set_message(.0))]
    Set(Box<SetFailure>),
    /// The consumer cluster has no konnector.
    #[error("the konnector is not installed on this cluster")]
    NotInstalled,
    /// The konnector was installed by another program, so no ResourceSet lists its objects.
    #[error("the konnector of this cluster was not installed as a set, so no ResourceSet lists its objects")]
    NotDeployed,
    /// The provider's answer cannot be read, or is refused.
    #[error("{from}: {source}")]
    Answer { from: String, source: response::Unreadable },
    /// The provider does not have the Secret with its answer.
    #[error("there is no Secret {0} on the provider")]
    NoSecret(String),
    /// Some providers could not be read.
    #[error("not all could be read of {0}")]
    Incomplete(String),
    /// A list is longer than the command reads.
    #[error("there are more than {max} {resource}")]
    TooMany { resource: String, max: u32 },
    /// The user did not confirm a revocation.
    #[error("{0} were not revoked: you did not confirm it")]
    NotConfirmed(String),
    /// There is no terminal to ask the user on for the confirmation of a revocation.
    #[error("{0} were not revoked: there is no terminal to ask for a yes; add --yes")]
    NoTerminal(String),
    /// The user did not confirm the end of orphans or of released objects.
    #[error("{0} stay as they are: you did not confirm it")]
    OrphansStay(String),
    /// The user did not confirm that this cluster goes on with the contract of a binding.
    #[error("APIServiceBinding {0} waits still: you did not confirm it")]
    WaitsStill(String),
    /// There is no retained copy to restore or to discard, or the user did not confirm its end.
    #[error("{0}")]
    Retention(String),
    /// The provider has no such contract.
    #[error("namespace {0} of the provider is no contract, or does not exist")]
    NoContract(String),
    /// The namespace of a contract has another UID than the one that this cluster is bound to.
    #[error("namespace {0} of the provider is not the contract that this cluster is bound to: it has another UID")]
    OtherContract(String),
    /// An owner of the contract has bound again while its credentials were being revoked.
    #[error(
        "the revocation of contract {0} has ended: an owner of the contract bound again meanwhile; nothing was deleted"
    )]
    Reinstated(String),
    /// Neither the status of a binding or bundle nor its Secret names its contract.
    #[error("the contract of {owner} is not known: its status does not name it, and {why}")]
    UnknownContract { owner: String, why: String },
    /// Ctrl-C ended the command.
    #[error("stopped")]
    Interrupted,
    /// An object that grants a template was not written by this command.
    #[error("{0}")]
    Grant(String),
    /// The konnector's metrics cannot be read; the message says what to do.
    #[error("{0}")]
    Metrics(String),
    /// Checks of the installation failed.
    #[error("checks failed: {0}")]
    ChecksFailed(usize),
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
    /// A manifest or a result cannot be converted to or from YAML or JSON.
    #[error("cannot show the result: {0}")]
    Format(String),
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        Self::Login(Box::new(error))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        LoginError::from(error).into()
    }
}

impl From<SetFailure> for Failure {
    fn from(failure: SetFailure) -> Self {
        Self::Set(Box::new(failure))
    }
}

impl Failure {
    /// Makes the error of a request to the consumer cluster. `doing` is what was tried, such as "read Namespace kube-system".
    pub(crate) fn cluster(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        |source| Self::Cluster {
            doing,
            source: Box::new(source),
        }
    }

    /// The exit code of the failure.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Address(_) | Self::Unclaimed(_) | Self::NotAccepted(_) | Self::NoTerminal(_) => {
                Exit::Usage
            }
            Self::Answer { source, .. } => match source {
                // The file is as the provider made it.
                response::Unreadable::Credential(_) | response::Unreadable::Offer(_) => Exit::Failed,
                _ => Exit::Usage,
            },
            Self::Cluster { source, .. } => exit_of(source),
            Self::On { failure, .. } => failure.exit(),
            Self::Set(failure) => match failure.as_ref() {
                SetFailure::Api { source, .. } => exit_of(source),
                SetFailure::TimedOut { .. } => Exit::TimedOut,
                SetFailure::Stopped(_) => Exit::Interrupted,
                SetFailure::Incomplete(report) if is_forbidden(report) => Exit::Denied,
                _ => Exit::Failed,
            },
            Self::Provider(error) => error.exit(),
            Self::Login(error) => error.exit(),
            Self::NoBinding(_)
            | Self::NeitherBindingNorBundle(_)
            | Self::NoObject(_)
            | Self::NoSecret(_)
            | Self::NoContract(_)
            | Self::UnknownServer(_)
            | Self::NotInstalled => Exit::NotFound,
            Self::TimedOut { .. } => Exit::TimedOut,
            Self::Interrupted => Exit::Interrupted,
            Self::Output(error) => Exit::of_output(error),
            Self::Kubeconfig(_)
            | Self::NoKonnector
            | Self::NotDeployed
            | Self::Declined(_)
            | Self::TooMany { .. }
            | Self::Offer(_)
            | Self::ChangedClaims(_)
            | Self::Credential(_)
            | Self::Conflict(_)
            | Self::Definition(_)
            | Self::Incomplete(_)
            | Self::NotConfirmed(_)
            | Self::OrphansStay(_)
            | Self::WaitsStill(_)
            | Self::Retention(_)
            | Self::UnknownContract { .. }
            | Self::OtherContract(_)
            | Self::Reinstated(_)
            | Self::Grant(_)
            | Self::Metrics(_)
            | Self::ChecksFailed(_)
            | Self::Format(_) => Exit::Failed,
        }
    }

    /// The error with its mend, as it is printed on standard error.
    pub(crate) fn shown(&self) -> String {
        error_text(&self.to_string(), self.mend().as_deref())
    }

    /// What the user can do about the failure, where the message does not say it.
    pub(crate) fn mend(&self) -> Option<String> {
        match self {
            Self::NoKonnector => Some(
                "Install the konnector with `kubectl bind deploy`, then run this again.".to_owned(),
            ),
            Self::Cluster { source, .. } if cluster::is_forbidden(source) => Some(ASK_AN_ADMIN.to_owned()),
            Self::On { failure, .. } => match failure.as_ref() {
                // The message says where to look.
                Self::TimedOut { .. } => Some("Run this again when that is mended: it goes on where it ended.".to_owned()),
                failure => failure.mend(),
            },
            Self::Set(failure) => set_mend(failure),
            Self::NotDeployed => Some(
                "Delete what was applied, such as with `kubectl delete -f deploy/konnector`, but keep the \
                 CustomResourceDefinitions: with them, all bindings would go. Or let kubectl bind take it over with `kubectl bind deploy`, then run this again."
                    .to_owned(),
            ),
            Self::NoContract(_) => Some(
                "`kubectl get clusterbindings --all-namespaces` on the provider lists the contracts.".to_owned(),
            ),
            Self::OtherContract(_) => Some(
                "Check --provider-context and --provider-kubeconfig: they may name another provider. To revoke the contract that is \
                 there, name it with --contract NAMESPACE."
                    .to_owned(),
            ),
            Self::Reinstated(_) => Some(
                "To revoke the new credentials too, run the command again. To give the contract to another \
                 owner first, use `kubectl bind provider transfer`."
                    .to_owned(),
            ),
            Self::UnknownContract { .. } => Some("Name the contract with --contract NAMESPACE.".to_owned()),
            Self::NotInstalled => Some(
                "Nothing was deleted. With --ignore-not-found, the command succeeds.".to_owned(),
            ),
            Self::Provider(error) => error.mend(),
            Self::Login(error) => error.mend(),
            Self::UnknownServer(_) => Some("`kubectl bind server list` lists the servers that you have logged in to.".to_owned()),
            Self::Offer(_) | Self::ChangedClaims(_) | Self::Credential(_) => Some(
                "Nothing was installed on this cluster. Tell the provider's admin; you can bind again at any time."
                    .to_owned(),
            ),
            Self::Answer {
                source: response::Unreadable::Credential(_) | response::Unreadable::Offer(_),
                ..
            } => Some("Nothing was installed on this cluster. Tell the provider's admin.".to_owned()),
            Self::NoSecret(_) => Some(
                "The provider writes the Secret when the request is done: `kubectl get bindableresourcesrequests -A` on the \
                 provider shows where, and how far the request is."
                    .to_owned(),
            ),
            Self::Incomplete(_) => {
                Some("What could be read is shown. `kubectl bind status` says what is wrong with these bindings.".to_owned())
            }
            Self::NotAccepted(_) => Some(
                "Add --accept-claims to let the provider have all Secrets, or reject the claim with --reject-claim secrets."
                    .to_owned(),
            ),
            Self::Grant(_) => Some(
                "Rename or delete it on the provider's cluster if nothing needs it, or grant the right by a ClusterRoleBinding of your \
                 own."
                    .to_owned(),
            ),
            Self::Declined(_) => Some(
                "To bind without some of the claims, add --reject-claim RESOURCE for each of them.".to_owned(),
            ),
            Self::Unclaimed(_) => {
                Some("Write the resource as it is shown, such as secrets or certificates.example.com.".to_owned())
            }
            Self::NoObject(_) => Some("Look for its name and namespace: kubectl get KIND --all-namespaces.".to_owned()),
            Self::NoBinding(_) | Self::NeitherBindingNorBundle(_) => {
                Some("`kubectl bind status` lists the bindings and bundles of this cluster.".to_owned())
            }
            Self::TimedOut { .. } => {
                Some("The konnector goes on by itself: `kubectl bind status` shows how far it is.".to_owned())
            }
            _ => None,
        }
    }
}

const ASK_AN_ADMIN: &str = "\
Ask an admin of this cluster to run the command; with --dry-run, it prints what it would do.
Only a user who holds a right can give it away in a ClusterRole.";

/// The exit code for what an API server answered.
fn exit_of(error: &kube::Error) -> Exit {
    match cluster::code(error) {
        Some(401 | 403) => Exit::Denied,
        Some(404) => Exit::NotFound,
        _ => Exit::Failed,
    }
}

/// Whether an object was not applied because the user lacks a right.
fn is_forbidden(report: &Report) -> bool {
    let mut problems = report.objects.iter().filter_map(|outcome| outcome.error.as_ref());
    problems.any(|problem| problem.forbidden)
}

fn set_message(failure: &SetFailure) -> String {
    match failure {
        SetFailure::Refused(refusals) => refused(refusals),
        SetFailure::Stopped(_) => "stopped: run this again, and it goes on".to_owned(),
        other => other.to_string(),
    }
}

/// Why synk refuses to apply the set, in the words of this command.
fn refused(refusals: &[Refusal]) -> String {
    let text = |refusal: &Refusal| match refusal {
        Refusal::Owned { object, owner } => format!(
            "{object} belongs to {owner}, which kubectl bind does not apply: go on updating the konnector with what applied \
             it, or delete it there first"
        ),
        Refusal::OtherNamespace { set, recorded, .. } => {
            format!("set {set} of this cluster has namespace {recorded}: it is not that of the konnector")
        }
        other => other.to_string(),
    };
    joined(refusals.iter().map(text))
}

fn set_mend(failure: &SetFailure) -> Option<String> {
    match failure {
        SetFailure::Api { source, .. } if cluster::is_forbidden(source) => Some(ASK_AN_ADMIN.to_owned()),
        SetFailure::Incomplete(report) if is_forbidden(report) => Some(ASK_AN_ADMIN.to_owned()),
        SetFailure::Incomplete(_) => {
            Some("Run this again when that is mended: objects that are applied already stay as they are.".to_owned())
        }
        SetFailure::Held { set, .. } => Some(format!(
            "If that process is gone, but its Lease is still renewed, delete the Lease: kubectl delete lease synk-{set} -n \
             {KUBE_BIND_NAMESPACE}"
        )),
        SetFailure::TimedOut { .. } => {
            Some("The cluster goes on by itself: run this again to see whether it is done.".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
