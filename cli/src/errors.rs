//! What can go wrong, the exit code of each, and what mends it.

use std::io;

use bindery_api::names::KUBE_BIND_NAMESPACE;
pub(crate) use bindery_runtime::terminal::Exit;
use bindery_runtime::{client::ClientError, crds::InstallError, errors as cluster, terminal::error_text};
use bindery_synk::{Failure as SetFailure, Report};

use crate::{claims, deploy, kubeconfig, offer, plan, provider::ProviderError};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line is wrong, or something it needs is missing.
    #[error("{0}")]
    Usage(String),
    /// The consumer cluster has no usable kubeconfig.
    #[error("{0}")]
    Kubeconfig(#[from] ClientError),
    /// The consumer cluster refused, or could not be asked.
    #[error("cannot {doing}: {}", cluster::explain(.source))]
    Cluster { doing: String, source: Box<kube::Error> },
    /// The consumer cluster does not serve bindings.
    #[error("this cluster does not serve APIServiceBindings")]
    NoKonnector,
    /// The provider refused, or could not be asked.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// What the provider wants installed is more than was asked for.
    #[error("refused what the provider wants installed: {0}")]
    Offer(#[from] offer::Refusal),
    /// The provider's kubeconfig is dangerous, or no kubeconfig.
    #[error("refused the provider's kubeconfig: {0}")]
    Credential(#[from] kubeconfig::KubeconfigError),
    /// What is installed already stands in the way.
    #[error("{0}")]
    Conflict(#[from] plan::Conflict),
    /// A claim is named that nobody makes.
    #[error("{0}")]
    Unclaimed(#[from] claims::Unclaimed),
    /// All Secrets are claimed, and nobody said yes.
    #[error("{0} claims EVERY Secret of this cluster, and nobody is here to say yes to that")]
    NotAccepted(String),
    /// Somebody said no.
    #[error("{0}: the claims were not accepted")]
    Declined(String),
    /// An object is nowhere.
    #[error("there is no {0}, neither on this cluster nor, as far as can be seen, on a provider")]
    NoObject(String),
    /// There is no such binding.
    #[error("there is no APIServiceBinding {0:?} on this cluster")]
    NoBinding(String),
    /// There is no such binding, and no bundle either.
    #[error("there is neither an APIServiceBinding nor an APIServiceBindingBundle {0:?} on this cluster")]
    NeitherBindingNorBundle(String),
    /// It was begun, and is not finished.
    #[error("{what} after {} s: {last}", .waited.as_secs())]
    TimedOut {
        what: String,
        waited: std::time::Duration,
        last: String,
    },
    /// A definition is installed and not served.
    #[error("{0}")]
    Definition(#[source] InstallError),
    /// What the konnector takes could not be applied, or not be taken away, as a whole.
    #[error("{}", of_set(.0))]
    Set(Box<SetFailure>),
    /// There is no konnector.
    #[error("the konnector is not installed on this cluster")]
    NotInstalled,
    /// The konnector is there, and nobody has noted what belongs to it.
    #[error("the konnector of this cluster was not installed as a set, so that nothing says what belongs to it")]
    NotDeployed,
    /// What is to be bound cannot be read from where it is said to lie.
    #[error("{from}: {source}")]
    Answer { from: String, source: deploy::Unreadable },
    /// The provider has no such Secret.
    #[error("there is no Secret {0} on the provider")]
    NoSecret(String),
    /// Not everything could be looked at.
    #[error("not all could be seen of {0}")]
    Incomplete(String),
    /// A list is longer than is read for this.
    #[error("there are more than {max} {resource}")]
    TooMany { resource: String, max: u32 },
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
    /// The result cannot be put into YAML or JSON.
    #[error("cannot show the result: {0}")]
    Format(String),
}

impl From<SetFailure> for Failure {
    fn from(failure: SetFailure) -> Self {
        Self::Set(Box::new(failure))
    }
}

impl Failure {
    /// The cluster's refusal, with what was tried in words such as "read Namespace kube-system".
    pub(crate) fn cluster(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        |source| Self::Cluster {
            doing,
            source: Box::new(source),
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Unclaimed(_) | Self::NotAccepted(_) => Exit::Usage,
            Self::Answer { source, .. } => match source {
                // What lies there is what the provider made of it.
                deploy::Unreadable::Credential(_) | deploy::Unreadable::Offer(_) => Exit::Failed,
                _ => Exit::Usage,
            },
            Self::Cluster { source, .. } => of_answer(source),
            Self::Set(failure) => match failure.as_ref() {
                SetFailure::Api { source, .. } => of_answer(source),
                SetFailure::TimedOut(_) => Exit::TimedOut,
                SetFailure::Stopped(_) => Exit::Interrupted,
                SetFailure::Incomplete(report) if is_forbidden(report) => Exit::Denied,
                _ => Exit::Failed,
            },
            Self::Provider(error) => error.exit(),
            Self::NoBinding(_)
            | Self::NeitherBindingNorBundle(_)
            | Self::NoObject(_)
            | Self::NoSecret(_)
            | Self::NotInstalled => Exit::NotFound,
            Self::TimedOut { .. } => Exit::TimedOut,
            Self::Output(error) => Exit::of_output(error),
            Self::Kubeconfig(_)
            | Self::NoKonnector
            | Self::NotDeployed
            | Self::Declined(_)
            | Self::TooMany { .. }
            | Self::Offer(_)
            | Self::Credential(_)
            | Self::Conflict(_)
            | Self::Definition(_)
            | Self::Incomplete(_)
            | Self::Format(_) => Exit::Failed,
        }
    }

    /// The error with its mend, as it is printed on standard error.
    pub(crate) fn shown(&self) -> String {
        error_text(&self.to_string(), self.mend().as_deref())
    }

    /// What to do about it, where that is more than the message says.
    pub(crate) fn mend(&self) -> Option<String> {
        match self {
            Self::NoKonnector => Some(
                "Install the konnector with `kubectl bind deploy`, then run this again.".to_owned(),
            ),
            Self::Cluster { source, .. } if cluster::is_forbidden(source) => Some(ASK_AN_ADMIN.to_owned()),
            Self::Set(failure) => of_set_mend(failure),
            Self::NotDeployed => Some(
                "Delete what was applied, such as `kubectl delete -f deploy/konnector`, but keep the definitions, with which all \
                 bindings would go; or have kubectl bind take it over first: `kubectl bind deploy`, then this again."
                    .to_owned(),
            ),
            Self::NotInstalled => Some(
                "Nothing was deleted. With --ignore-not-found that is a success.".to_owned(),
            ),
            Self::Provider(error) => error.mend(),
            Self::Offer(_) | Self::Credential(_) => Some(
                "Nothing of it was installed on this cluster. Tell the provider's admin; binding again is safe."
                    .to_owned(),
            ),
            Self::Answer {
                source: deploy::Unreadable::Credential(_) | deploy::Unreadable::Offer(_),
                ..
            } => Some("Nothing of it was installed on this cluster. Tell the provider's admin.".to_owned()),
            Self::NoSecret(_) => Some(
                "The provider writes it when the request is done: `kubectl get bindableresourcesrequests -A` on the provider \
                 shows where, and how far it is."
                    .to_owned(),
            ),
            Self::Incomplete(_) => {
                Some("What was seen is shown. `kubectl bind status` says what is with these bindings.".to_owned())
            }
            Self::NotAccepted(_) => Some(
                "Add --accept-claims if the provider is to have them all, or reject that claim: --reject-claim secrets when \
                 binding."
                    .to_owned(),
            ),
            Self::Declined(_) => Some(
                "To bind without some of them, add --reject-claim RESOURCE for each that is not to take effect.".to_owned(),
            ),
            Self::Unclaimed(_) => {
                Some("Write the resource as it is shown, such as secrets or certificates.example.com.".to_owned())
            }
            Self::NoObject(_) => Some("Look for its name and namespace: kubectl get KIND --all-namespaces.".to_owned()),
            Self::NoBinding(_) | Self::NeitherBindingNorBundle(_) => {
                Some("`kubectl bind status` lists the bindings and bundles of this cluster.".to_owned())
            }
            Self::TimedOut { .. } => {
                Some("It goes on by itself: `kubectl bind status` shows how far it is.".to_owned())
            }
            _ => None,
        }
    }
}

const ASK_AN_ADMIN: &str = "\
Ask an admin of this cluster to run the command; what it would do it prints with --dry-run.
Nobody can hand out rights in a ClusterRole that they do not hold.";

/// Of what an API server answered.
fn of_answer(error: &kube::Error) -> Exit {
    match cluster::code(error) {
        Some(401 | 403) => Exit::Denied,
        Some(404) => Exit::NotFound,
        _ => Exit::Failed,
    }
}

/// Whether whoever runs this lacks a right.
fn is_forbidden(report: &Report) -> bool {
    let mut problems = report.objects.iter().filter_map(|outcome| outcome.error.as_ref());
    problems.any(|problem| problem.forbidden)
}

fn of_set(failure: &SetFailure) -> String {
    match failure {
        SetFailure::Refused(refusals) => deploy::refused(refusals),
        SetFailure::Stopped(_) => "stopped: run this again, and it goes on".to_owned(),
        other => other.to_string(),
    }
}

fn of_set_mend(failure: &SetFailure) -> Option<String> {
    match failure {
        SetFailure::Api { source, .. } if cluster::is_forbidden(source) => Some(ASK_AN_ADMIN.to_owned()),
        SetFailure::Incomplete(report) if is_forbidden(report) => Some(ASK_AN_ADMIN.to_owned()),
        SetFailure::Incomplete(_) => {
            Some("Run this again when that is mended: what is done is not done twice.".to_owned())
        }
        SetFailure::Held { set, .. } => Some(format!(
            "If that process is gone for good and its Lease is renewed all the same, end it: kubectl delete lease synk-{set} -n \
             {KUBE_BIND_NAMESPACE}"
        )),
        SetFailure::TimedOut(_) => Some("It goes on by itself: run this again to see whether it is done.".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bindery_synk::{
        Gvk, ObjectRef,
        report::{Outcome, Problem},
        wire::Action,
    };
    use kube::core::Status;

    use super::*;

    fn refusal(code: u16) -> Failure {
        let status = Status::failure("no", "Reason").with_code(code);
        Failure::cluster("read Namespace kube-system")(kube::Error::Api(Box::new(status)))
    }

    #[track_caller]
    fn check(failure: &Failure, expect: Exit) {
        assert_eq!(failure.exit(), expect, "{failure}");
    }

    #[test]
    fn each_failure_has_its_exit_code() {
        check(&Failure::Usage("no backend".to_owned()), Exit::Usage);
        check(&refusal(401), Exit::Denied);
        check(&refusal(403), Exit::Denied);
        check(&refusal(404), Exit::NotFound);
        check(&refusal(409), Exit::Failed);
        check(&refusal(503), Exit::Failed);
        check(&Failure::NoKonnector, Exit::Failed);
        check(&Failure::NoBinding("cowboys".to_owned()), Exit::NotFound);
        check(&Failure::NeitherBindingNorBundle("acme".to_owned()), Exit::NotFound);
        check(&Failure::NoSecret("team-a/x".to_owned()), Exit::NotFound);
        check(&Failure::Incomplete("the objects of x".to_owned()), Exit::Failed);
        let answer = |source: deploy::Unreadable| Failure::Answer {
            from: "x.yaml".to_owned(),
            source,
        };
        check(&Failure::NotInstalled, Exit::NotFound);
        check(&Failure::NotDeployed, Exit::Failed);
        check(&SetFailure::TimedOut("x".to_owned()).into(), Exit::TimedOut);
        let stopped = SetFailure::Stopped("konnector".parse().unwrap());
        check(&stopped.into(), Exit::Interrupted);
        check(&SetFailure::NotInstalled.into(), Exit::Failed);
        let status = Status::failure("no", "Reason").with_code(403);
        let source = kube::Error::Api(Box::new(status));
        check(&SetFailure::api("write clusterroles")(source).into(), Exit::Denied);
        check(&answer(deploy::Unreadable::NoRequests), Exit::Usage);
        check(&answer(offer::Refusal::Empty.into()), Exit::Failed);
        check(&Failure::NoObject("Cowboy west/billy".to_owned()), Exit::NotFound);
        check(&Failure::NotAccepted("template cowboys".to_owned()), Exit::Usage);
        check(&Failure::Declined("nothing was bound".to_owned()), Exit::Failed);
        let timed_out = Failure::TimedOut {
            what: "APIServiceBinding cowboys is not ready".to_owned(),
            waited: std::time::Duration::from_secs(5),
            last: "SecretValid=False".to_owned(),
        };
        check(&timed_out, Exit::TimedOut);
        check(&Failure::Output(io::ErrorKind::BrokenPipe.into()), Exit::Done);
        check(&Failure::Output(io::ErrorKind::StorageFull.into()), Exit::Failed);
    }

    #[test]
    fn a_right_that_is_missing_is_told_of_a_set_too() {
        let failure = |code: u16| {
            let status = Status::failure("no", "Reason").with_code(code);
            let object = ObjectRef {
                gvk: Gvk::new("v1", "Secret"),
                namespace: None,
                name: "a".to_owned(),
            };
            let error = Problem::of(&object, &kube::Error::Api(Box::new(status)));
            let outcome = Outcome {
                object,
                action: Action::None,
                uid: None,
                generation: None,
                error: Some(error),
            };
            let report = Report {
                version: None,
                changed: true,
                objects: vec![outcome],
                pruned: Vec::new(),
            };
            Failure::from(SetFailure::Incomplete(Box::new(report)))
        };
        check(&failure(403), Exit::Denied);
        assert!(failure(403).mend().unwrap().contains("admin"));
        check(&failure(422), Exit::Failed);
        assert!(failure(422).mend().unwrap().contains("Run this again"));
    }

    #[test]
    fn a_failure_names_the_object_and_the_mend() {
        let shown = refusal(403).shown();
        assert!(
            shown.starts_with("error: cannot read Namespace kube-system: no\n\n"),
            "{shown}"
        );
        assert!(shown.contains("--dry-run"), "{shown}");
    }
}
