//! Defines the failures of the command, with exit code and mend.

use std::{borrow::Cow, io, path::PathBuf};

pub(super) use bindery_runtime::terminal::Exit;
use bindery_runtime::{client::ClientError, errors as cluster};
use bindery_synk::{Failure as Refused, Version};

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The command line is wrong. The parser has reported it already.
    #[error("{0}")]
    Usage(String),
    /// The cluster cannot be reached.
    #[error("{0}")]
    Connection(#[from] ClientError),
    /// A file with credentials or a CA cannot be used.
    #[error("cannot use {}: {problem}", path.display())]
    Credential { path: PathBuf, problem: String },
    /// The library refused.
    #[error(transparent)]
    Synk(#[from] Box<Refused>),
    /// The library refused a later attempt.
    #[error("{0}")]
    Again(Box<Refused>),
    /// The API server did not answer.
    #[error("{failure}\nthe API server is {server}")]
    Unreached { server: String, failure: Box<Self> },
    /// The plan contains objects that cannot be applied.
    #[error("{0} of the objects cannot be applied")]
    Impossible(usize),
    /// A saved plan is for another set or namespace.
    #[error("{}: {problem}", path.display())]
    OtherPlan { path: PathBuf, problem: String },
    /// The manifests of a version are not kept.
    #[error("the manifests of {0} are not kept")]
    NotKept(Version),
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The user pressed Ctrl-C.
    #[error("interrupted: {0}")]
    Interrupted(&'static str),
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Setup(String),
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Output(#[source] io::Error),
}

// === impl Failure ===

impl From<Refused> for Failure {
    fn from(failure: Refused) -> Self {
        Self::Synk(Box::new(failure))
    }
}

impl Failure {
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Interrupted(_) => Exit::Interrupted,
            Self::Synk(failure) if matches!(**failure, Refused::Stopped(_)) => Exit::Interrupted,
            Self::Unreached { failure, .. } => failure.exit(),
            Self::Output(error) => Exit::of_output(error),
            _ => Exit::Failed,
        }
    }

    /// Returns a stable reason for programs.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Usage(_) => "Usage",
            Self::Connection(_) | Self::Credential { .. } => "NoConnection",
            Self::Synk(failure) | Self::Again(failure) => failure.reason(),
            Self::Unreached { failure, .. } => failure.reason(),
            Self::Impossible(_) => "Impossible",
            Self::OtherPlan { .. } => "OtherPlan",
            Self::NotKept(_) => "NotFound",
            Self::File { .. } => "File",
            Self::Interrupted(_) => "Interrupted",
            Self::Setup(_) => "Setup",
            Self::Output(_) => "Output",
        }
    }

    /// Returns what to do, if that is more than the message says.
    pub(super) fn mend(&self) -> Option<Cow<'static, str>> {
        let mend = match self {
            Self::Connection(_) => "Name the cluster by --kubeconfig, --context or --server, as with kubectl.",
            Self::NotKept(_) => "`synk history NAME` shows which versions can be rolled back to.",
            Self::Again(_) => "What the attempts before this one wrote is there: `synk status NAME` shows it.",
            Self::Synk(failure) => return mend_of(failure),
            Self::Unreached { failure, .. } => return failure.mend(),
            _ => return None,
        };
        Some(mend.into())
    }

    /// Adds the address of the API server to the error, if the server did not answer.
    pub(super) fn at(self, server: &str) -> Self {
        if matches!(&self, Self::Synk(failure) | Self::Again(failure) if failure.is_unreachable()) {
            let (server, failure) = (server.to_owned(), Box::new(self));
            return Self::Unreached { server, failure };
        }
        self
    }
}

fn mend_of(failure: &Refused) -> Option<Cow<'static, str>> {
    match failure {
        Refused::Held { set, .. } => Some(
            format!(
                "A holder that is gone is passed 15 s after it was last heard of. One that is alive and stuck, you may end \
                 by kubectl delete lease synk-{set} -n NAMESPACE."
            )
            .into(),
        ),
        failure => mend(failure).map(Cow::Borrowed),
    }
}

fn mend(failure: &Refused) -> Option<&'static str> {
    match failure {
        Refused::Input(_) | Refused::Refused(_) => Some("Nothing was written."),
        Refused::Incomplete(report) => Some(incomplete(report)),
        Refused::Stale(_) => Some("Make a new plan: synk plan NAME -f … --out FILE."),
        Refused::NoSet(_) => Some("`synk status` lists all sets of the cluster."),
        Refused::TimedOut { .. } => Some("What was begun goes on by itself: `synk status NAME` shows how far it is."),
        Refused::Api { source, .. } => api(source),
        _ => None,
    }
}

fn incomplete(report: &bindery_synk::Report) -> &'static str {
    if report.problems().all(|problem| problem.transient) {
        "The rest is applied, and nothing was pruned. Errors of this kind pass: apply it again."
    } else {
        "The rest is applied, and nothing was pruned. Mend what is named, then apply it again."
    }
}

fn api(error: &kube::Error) -> Option<&'static str> {
    match cluster::code(error) {
        Some(401) => Some(
            "The API server does not accept your credentials: log in again, or choose others by --context or --user.",
        ),
        Some(403) => Some("Ask an admin of the cluster for the right to do so."),
        Some(_) => None,
        None => Some("If this is the wrong cluster, name another by --kubeconfig, --context or --server."),
    }
}

#[cfg(test)]
mod tests {
    use bindery_synk::plan::Refusal;
    use kube::core::Status;

    use super::*;

    fn version() -> Version {
        "web.v2".parse().unwrap()
    }

    #[track_caller]
    fn check(failure: impl Into<Failure>, exit: Exit, reason: &str) {
        let failure = failure.into();
        assert_eq!((failure.exit(), failure.reason()), (exit, reason), "{failure}");
    }

    #[test]
    fn each_failure_has_its_exit_code() {
        check(Failure::Usage("x".to_owned()), Exit::Usage, "Usage");
        check(Refused::NotInstalled, Exit::Failed, "NotInstalled");
        check(Refused::NoVersion { version: version() }, Exit::Failed, "NotFound");
        let set = version().set;
        check(
            Refused::Refused(vec![Refusal::Empty { set, live: 3 }]),
            Exit::Failed,
            "Refused",
        );
        check(Failure::NotKept(version()), Exit::Failed, "NotFound");
        check(Failure::Impossible(1), Exit::Failed, "Impossible");
        check(Failure::Interrupted("x"), Exit::Interrupted, "Interrupted");
        check(Refused::Stopped(version().set), Exit::Interrupted, "Interrupted");
        check(Failure::Output(io::ErrorKind::BrokenPipe.into()), Exit::Done, "Output");
        check(
            Failure::Output(io::ErrorKind::StorageFull.into()),
            Exit::Failed,
            "Output",
        );
    }

    #[test]
    fn a_refusal_of_the_cluster_names_the_mend() {
        let refusal = |code| {
            let status = Status::failure("no", "Reason").with_code(code);
            let failure = Refused::api("read configmaps")(kube::Error::Api(Box::new(status)));
            Failure::from(failure).mend()
        };
        assert!(refusal(403).unwrap().contains("admin"));
        assert!(refusal(401).unwrap().contains("log in"));
        assert_eq!(refusal(422), None);
    }

    #[test]
    fn where_no_answer_came_is_the_address_told() {
        let at = |source| Failure::from(Refused::api("list ResourceSets")(source)).at("https://10.0.0.1:6443");
        let failure = at(kube::Error::Service("refused".into()));
        assert!(
            failure.to_string().ends_with("the API server is https://10.0.0.1:6443"),
            "{failure}"
        );
        assert_eq!((failure.exit(), failure.reason()), (Exit::Failed, "ApiError"));
        assert!(failure.mend().unwrap().contains("--context"));
        let answered = at(kube::Error::Api(Box::new(
            Status::failure("no", "Reason").with_code(403),
        )));
        assert_eq!(answered.to_string(), "cannot list ResourceSets: no");
    }

    #[test]
    fn a_lease_that_nobody_gives_back_can_be_ended() {
        let failure = Failure::from(Refused::Held {
            set: version().set,
            holder: "ann".to_owned(),
            since: "noon".to_owned(),
        });
        assert!(failure.mend().unwrap().contains("delete lease synk-web "));
    }
}
