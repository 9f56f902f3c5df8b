//! Defines why synk did not do what it was asked to do.

use bindery_runtime::{
    crds::InstallError,
    errors::{explain, is_unreachable},
};
use kube::core::Status;

use crate::{
    input::{self, InputErrors},
    plan::Refusal,
    problem,
    report::Report,
    wire::{SetName, Version},
};

/// The reason why synk did not do what it was asked to do. No variant contains the content of a Secret.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The input cannot be used.
    #[error(transparent)]
    Input(#[from] InputErrors),
    /// The plan is refused as a whole.
    #[error("{}", input::lines(.0))]
    Refused(Vec<Refusal>),
    /// Another apply of the set is at work.
    #[error("set {set} is being changed by {holder} since {since}: wait for it")]
    Held {
        /// The set.
        set: SetName,
        /// Who holds its Lease.
        holder: String,
        /// Since when, as the Lease says.
        since: String,
    },
    /// The Lease went to somebody else, or could not be renewed, so that work was stopped.
    #[error("the Lease of set {0} was lost, so work was stopped: apply the set again")]
    Lost(SetName),
    /// While it waited to try again, another changed the set.
    #[error(
        "another has changed set {0} since this apply began, so it was given up: apply the set again if it is to win"
    )]
    Overtaken(SetName),
    /// The admission policies of the set do not refuse what they forbid.
    #[error(
        "the admission policies of the set are not in force, and nothing that they limit was applied: {0}: apply the set again"
    )]
    Unproved(String),
    /// It was told to stop.
    #[error("stopped: what was begun on set {0} is finished by the next apply")]
    Stopped(SetName),
    /// The API server does not know what a ResourceSet is.
    #[error("the cluster does not know ResourceSets: run `synk init` once")]
    NotInstalled,
    /// ResourceSets could not be installed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The namespace is not there.
    #[error("there is no namespace {0}: create it, or add it to the set")]
    NoNamespace(String),
    /// The namespace is being deleted.
    #[error("namespace {0} is being deleted: nothing can be made in it until it is gone")]
    Terminating(String),
    /// A version of the set is being deleted, and with it all that it owns.
    #[error("set {set} is being deleted: it can be applied once {0} and what it owns are gone", set = .0.set)]
    Going(Version),
    /// There is no such set.
    #[error("there is no set {0}")]
    NoSet(SetName),
    /// The set is applied with another namespace than the one that was given.
    #[error("set {set} is in namespace {recorded}, not in {given}: leave -n out, or name that one")]
    ElsewhereApplied {
        /// The set.
        set: SetName,
        /// The namespace it is applied with.
        recorded: String,
        /// The one that was given.
        given: String,
    },
    /// There is no such version.
    #[error("there is no {version}; `synk history {set}` lists what there is", set = .version.set)]
    NoVersion {
        /// The version.
        version: Version,
    },
    /// What the plan was made of has changed.
    #[error("the saved plan does not hold any more, nothing was done:\n{}", .0.join("\n"))]
    Stale(Vec<String>),
    /// A file that should hold a saved plan, or history that was stored, cannot be read.
    #[error("{what} cannot be read: {problem}")]
    Unreadable {
        /// What.
        what: String,
        /// Why.
        problem: String,
    },
    /// All objects are applied, but the manifests could not be stored for a rollback.
    #[error("all of {version} is applied, and what left the set is deleted, but its history is not in order: {source}")]
    NotKept {
        /// The version.
        version: Version,
        /// What could not be done.
        source: Box<Self>,
    },
    /// Some objects could not be applied.
    #[error("{}", failed(.0))]
    Incomplete(Box<Report>),
    /// An object that was waited for has failed.
    #[error("{0}")]
    Unhealthy(String),
    /// Something did not get healthy, or was not gone, in time.
    #[error("timed out: {problem}")]
    TimedOut {
        /// What was not there in time.
        problem: String,
        /// Whether the API server did not answer at the end.
        unreachable: bool,
    },
    /// The API server refused something, or cannot be reached.
    #[error("cannot {what}: {}", explain(.source))]
    Api {
        /// What was tried, such as `read configmaps in namespace shop`.
        what: String,
        /// Why not.
        source: kube::Error,
    },
}

// === impl Failure ===

impl Failure {
    /// Wraps the error of a request.
    pub fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api { what, source }
    }

    /// Wraps the error of a request in a namespace that may be missing or terminating.
    pub fn api_in(namespace: &str, what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let (namespace, what) = (namespace.to_owned(), what.into());
        move |source| match &source {
            kube::Error::Api(status) if is_missing_namespace(status) => Self::NoNamespace(namespace),
            kube::Error::Api(status) if problem::is_terminating(status) => Self::Terminating(namespace),
            _ => Self::Api { what, source },
        }
    }

    /// Returns a stable reason for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Input(_) => "InvalidInput",
            Self::Refused(_) => "Refused",
            Self::Held { .. } => "Held",
            Self::Lost(_) => "LeaseLost",
            Self::Overtaken(_) => "Overtaken",
            Self::Unproved(_) => "PolicyNotInForce",
            Self::Stopped(_) => "Interrupted",
            Self::NotInstalled => "NotInstalled",
            Self::Install(_) => "NotInstallable",
            Self::NoNamespace(_) => "NamespaceNotFound",
            Self::Terminating(_) => "NamespaceTerminating",
            Self::Going(_) => "SetDeleting",
            Self::NoSet(_) | Self::NoVersion { .. } => "NotFound",
            Self::Stale(_) => "StalePlan",
            Self::Unreadable { .. } => "Unreadable",
            Self::ElsewhereApplied { .. } => "OtherNamespace",
            Self::NotKept { .. } => "HistoryNotKept",
            Self::Incomplete(_) => "Incomplete",
            Self::Unhealthy(_) => "Unhealthy",
            Self::TimedOut { .. } => "TimedOut",
            Self::Api { .. } => "ApiError",
        }
    }

    /// Whether the whole operation may succeed later although nobody changes anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Api { source, .. } => problem::is_transient(source),
            Self::Incomplete(report) => report.problems().all(|problem| problem.transient),
            Self::Lost(_) | Self::Terminating(_) | Self::Going(_) => true,
            _ => false,
        }
    }

    /// Whether the API server did not answer.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Api { source, .. } | Self::Install(InstallError::Write { source, .. }) => is_unreachable(source),
            Self::NotKept { source, .. } => source.is_unreachable(),
            Self::Incomplete(report) => report.problems().any(|problem| problem.unreachable),
            Self::TimedOut { unreachable, .. } => *unreachable,
            _ => false,
        }
    }
}

fn is_missing_namespace(status: &Status) -> bool {
    let details = status.details.as_ref();
    status.code == 404 && details.is_some_and(|details| details.kind == "namespaces")
}

fn failed(report: &Report) -> String {
    let lines: Vec<_> = report
        .objects
        .iter()
        .filter_map(|outcome| Some(format!("{}: {}", outcome.object, outcome.error.as_ref()?.message)))
        .collect();
    let version = report.version.as_ref().map(ToString::to_string).unwrap_or_default();
    format!(
        "{} of {} objects of {version} could not be applied:\n{}",
        lines.len(),
        report.objects.len(),
        lines.join("\n")
    )
}
