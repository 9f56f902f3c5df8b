//! The problems of an engine's objects and watches, and the messages about them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use bindery_api::conditions::CONTRACT_UNVERIFIED;
use bindery_runtime::{cache::ObjectKey, errors};

/// The objects and watches of an engine that have a problem.
#[derive(Debug, Default)]
pub(crate) struct Issues {
    by_key: HashMap<ObjectKey, Issue>,
    watch: HashMap<Watched, Failure>,
}

/// Why a watch fails.
#[derive(Clone, Debug)]
struct Failure {
    message: String,
    is_forbidden: bool,
    /// How many failures in a row were such.
    count: u32,
}

/// Why an engine or a claim is not in sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The stable reason of the condition.
    pub reason: &'static str,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The kind of the cause, on which retries, conditions and advice depend.
    pub cause: Cause,
    /// The consumer namespace of the watch or object that fails; `None` if it is in none.
    pub namespace: Option<Arc<str>>,
}

/// What is wrong with one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    pub reason: &'static str,
    pub message: String,
    /// Whether the object is tried again as soon as a cluster is reachable again.
    pub transient: bool,
    pub cause: Cause,
}

/// The kind of a problem's cause, on which retries and conditions depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The consumer's API server refused a request, because the konnector lacks a right.
    ConsumerForbids,
    /// The provider's API server refused a request, because the konnector lacks a right.
    ProviderForbids,
    /// A cluster cannot be watched, for another reason than a missing right.
    Unreachable,
    /// A cluster refuses the object until the object or its schema changes.
    Invalid,
    /// The source of a copy is missing although its deletion was not seen.
    Orphan,
    /// Anything else.
    Other,
}

/// A watch of an engine, or its request for a provider namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watched {
    /// The watch of this consumer namespace, or with `None` of the whole consumer.
    Consumer(Option<Arc<str>>),
    /// The watch of this provider namespace; empty for the cluster-wide watch.
    Provider(Arc<str>),
    /// The request for the provider namespace of this consumer namespace.
    Place(Arc<str>),
}

/// The pause before an invalid object is tried again. Only a change of the object or its schema helps, and a change of the
/// object comes as an event.
pub(crate) const INVALID_RETRY: Duration = Duration::from_mins(5);

/// At most this many reasons are told why objects are not in sync.
const REASONS_TOLD_MAX: usize = 4;

/// A right counts as missing after this many refusals in a row: an API server that starts may not know any role for a moment.
const FORBIDDEN_MIN: u32 = 3;

impl Issues {
    /// Notes the issue of an object, or that it has none. Returns true if it is worth an event: new and not transient.
    pub(crate) fn set(&mut self, key: &ObjectKey, issue: Option<&Issue>) -> bool {
        let Some(issue) = issue else {
            self.by_key.remove(key);
            return false;
        };
        let before = self.by_key.insert(key.clone(), issue.clone());
        !issue.transient && before.as_ref() != Some(issue)
    }

    /// Notes the state of a watch. Returns true if it works again after a failure.
    pub(crate) fn set_watch(&mut self, watched: Watched, failure: Option<&kube::Error>) -> bool {
        match failure {
            Some(error) => {
                let is_forbidden = errors::is_forbidden(error);
                let before = self.watch.get(&watched);
                let before = before.filter(|before| before.is_forbidden == is_forbidden);
                let failure = Failure {
                    message: errors::explain(error),
                    is_forbidden,
                    count: before.map_or(1, |before| before.count.saturating_add(1)),
                };
                self.watch.insert(watched, failure);
                false
            }
            None => self.watch.remove(&watched).is_some(),
        }
    }

    /// Forgets the failures of the consumer's watches that are none of these any more, by their namespaces.
    pub(crate) fn retain_consumer_watches(&mut self, watches: &BTreeSet<Option<Arc<str>>>) {
        self.watch.retain(|watched, _| match watched {
            Watched::Consumer(namespace) => watches.contains(namespace),
            Watched::Provider(_) | Watched::Place(_) => true,
        });
    }

    /// The objects to try again because a cluster answers again.
    pub(crate) fn transient(&self) -> Vec<ObjectKey> {
        let issues = self.by_key.iter().filter(|(_, issue)| issue.transient);
        issues.map(|(key, _)| key.clone()).collect()
    }

    /// True if the object has an issue.
    pub(crate) fn is_noted(&self, key: &ObjectKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// The number of objects that failed. An orphan did not fail: it waits for the user.
    pub(crate) fn count(&self) -> usize {
        self.failed().count()
    }

    fn failed(&self) -> impl Iterator<Item = (&ObjectKey, &Issue)> {
        self.by_key.iter().filter(|(_, issue)| issue.cause != Cause::Orphan)
    }

    /// The watch of all objects of a cluster that fails for a missing right. The rights in a single provider namespace come and go with
    /// it.
    pub(crate) fn forbidden_watch(&self) -> Option<Problem> {
        let forbidden = self.watch.iter().filter(|(watched, failure)| {
            let is_of_all = match watched {
                Watched::Consumer(_) => true,
                Watched::Provider(namespace) => namespace.is_empty(),
                Watched::Place(_) => false,
            };
            is_of_all && failure.is_forbidden && failure.count >= FORBIDDEN_MIN
        });
        let problems = forbidden.map(|(watched, failure)| failure.problem(watched));
        problems.min_by(|one, other| one.message.cmp(&other.message))
    }

    /// The most important problem: a failing watch, or else the issues of objects.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let watches = self.watch.iter().map(|(watched, failure)| failure.problem(watched));
        let first = watches.min_by(|one, other| one.message.cmp(&other.message));
        first.or_else(|| self.problem_of_objects())
    }

    /// The issues of the objects that failed, as one problem. Its message tells of each reason the first object by name, since a reason that
    /// many objects have must not hide another one. It has no numbers: it would change with each object.
    fn problem_of_objects(&self) -> Option<Problem> {
        let mut firsts: BTreeMap<&str, (&ObjectKey, &Issue, bool)> = BTreeMap::new();
        for (key, issue) in self.failed() {
            let first = firsts.entry(issue.reason).or_insert((key, issue, false));
            first.2 |= first.0 != key;
            if key < first.0 {
                (first.0, first.1) = (key, issue);
            }
        }
        let mut firsts: Vec<_> = firsts.into_values().collect();
        firsts.sort_by_key(|(key, ..)| *key);
        let told = firsts.iter().take(REASONS_TOLD_MAX).map(|(key, issue, has_others)| {
            let others = if *has_others { " (and others)" } else { "" };
            format!("{key}{others}: {}", issue.message)
        });
        let mut message = told.collect::<Vec<_>>().join("; ");
        if firsts.len() > REASONS_TOLD_MAX {
            message += "; and others, for other reasons";
        }
        let (key, issue, _) = firsts.first()?;
        Some(Problem {
            reason: issue.reason,
            message,
            cause: issue.cause,
            namespace: Some(Arc::clone(&key.namespace)).filter(|namespace| !namespace.is_empty()),
        })
    }
}

// === impl Failure ===

impl Failure {
    /// The problem that a failing watch is.
    fn problem(&self, watched: &Watched) -> Problem {
        let (reason, cause) = match (self.is_forbidden, watched) {
            (true, Watched::Consumer(_)) => ("Forbidden", Cause::ConsumerForbids),
            (true, Watched::Provider(_) | Watched::Place(_)) => ("Forbidden", Cause::ProviderForbids),
            (false, _) => ("Unreachable", Cause::Unreachable),
        };
        Problem {
            reason,
            message: format!("cannot {watched}: {}", self.message),
            cause,
            namespace: watched.consumer_namespace().cloned(),
        }
    }
}

// === impl Watched ===

impl Watched {
    /// Whether it is a watch of the consumer.
    pub(crate) fn is_consumer(&self) -> bool {
        matches!(self, Self::Consumer(_))
    }

    fn consumer_namespace(&self) -> Option<&Arc<str>> {
        match self {
            Self::Consumer(namespace) => namespace.as_ref(),
            Self::Provider(_) | Self::Place(_) => None,
        }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumer(None) => f.write_str("watch the consumer"),
            Self::Consumer(Some(namespace)) => write!(f, "watch namespace {namespace} of the consumer"),
            Self::Provider(namespace) if namespace.is_empty() => f.write_str("watch the provider"),
            Self::Provider(namespace) => write!(f, "watch namespace {namespace} of the provider"),
            Self::Place(namespace) => write!(f, "get a provider namespace for namespace {namespace}"),
        }
    }
}

// === impl Issue ===

impl Issue {
    /// The issue of an object that a plan leaves alone.
    pub(crate) fn blocked(reason: &'static str, message: &impl ToString) -> Self {
        Self {
            reason,
            message: message.to_string(),
            transient: false,
            cause: Cause::Other,
        }
    }

    /// The issue of an object whose namespace gets no provider namespace. `refusal` is the backend's reason.
    pub(crate) fn of_refusal(refusal: &str) -> Self {
        Self {
            reason: "NoProviderNamespace",
            message: format!("the object's namespace gets none on the provider: {refusal}"),
            transient: false,
            cause: Cause::Other,
        }
    }

    /// The issue of an object whose deletion waits until the konnector may read what tells one contract from another.
    pub(crate) fn withheld() -> Self {
        Self {
            reason: CONTRACT_UNVERIFIED,
            message: "nothing is deleted while the contract cannot be verified; condition ProviderAccessComplete of the binding says why"
                .to_owned(),
            transient: false,
            cause: Cause::Other,
        }
    }

    /// The issue of an object after the consumer's or the provider's cluster refused a request, or did not answer it.
    pub(crate) fn of_error(error: &kube::Error, is_on_consumer: bool) -> Self {
        let (reason, cause) = match errors::code(error) {
            Some(403) if is_on_consumer => ("Forbidden", Cause::ConsumerForbids),
            Some(403) => ("Forbidden", Cause::ProviderForbids),
            _ if is_too_large(error) => ("TooLarge", Cause::Invalid),
            Some(400 | 422) => ("Invalid", Cause::Invalid),
            _ => ("SyncFailed", Cause::Other),
        };
        let side = if is_on_consumer { "consumer" } else { "provider" };
        Self {
            reason,
            message: format!("the {side} refused: {}", errors::explain(error)),
            transient: cause != Cause::Invalid
                && (errors::is_transient(error) || errors::code(error).is_none_or(|code| code == 409 || code == 404)),
            cause,
        }
    }
}

/// Whether the object is too large for the API server or its storage.
fn is_too_large(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    status.code == 413 || (status.code == 500 && status.message.contains("request is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_is_told_once() {
        let mut issues = Issues::default();
        let key = ObjectKey::new("ns", "a");
        let issue = Issue::blocked("Conflict", &"somebody else's");
        assert!(issues.set(&key, Some(&issue)));
        assert!(!issues.set(&key, Some(&issue)));
        assert!(issues.set(&key, Some(&Issue::blocked("ProviderOverrides", &"changed there"))));
        assert_eq!(issues.count(), 1);
        issues.set(&key, None);
        assert!(issues.set(&key, Some(&issue)), "told again after it was well");
    }

    #[test]
    fn an_orphan_is_told_and_did_not_fail() {
        let mut issues = Issues::default();
        let orphan = Issue {
            cause: Cause::Orphan,
            ..Issue::blocked("Orphaned", &"kept")
        };
        assert!(issues.set(&ObjectKey::new("ns", "a"), Some(&orphan)));
        assert!(issues.is_noted(&ObjectKey::new("ns", "a")));
        assert_eq!((issues.count(), issues.problem()), (0, None));
    }

    #[test]
    fn no_reason_hides_another_one() {
        let mut issues = Issues::default();
        let mut set = |name: &str, reason, message: &str| {
            issues.set(&ObjectKey::new("ns", name), Some(&Issue::blocked(reason, &message)));
            issues
                .problem()
                .map(|problem| (problem.reason, problem.message))
                .unwrap()
        };
        assert_eq!(set("c", "Conflict", "taken"), ("Conflict", "ns/c: taken".to_owned()));
        assert_eq!(
            set("d", "OlderSource", "accept it"),
            ("Conflict", "ns/c: taken; ns/d: accept it".to_owned())
        );
        assert_eq!(
            set("a", "OlderSource", "accept this"),
            ("OlderSource", "ns/a (and others): accept this; ns/c: taken".to_owned())
        );
        set("e", "Invalid", "too long");
        set("f", "TooLarge", "too large");
        let (_, message) = set("g", "Forbidden", "no");
        assert!(
            message.contains("too large") && message.ends_with("; and others, for other reasons"),
            "{message}"
        );
    }

    #[test]
    fn an_unreachable_cluster_comes_before_any_object() {
        let mut issues = Issues::default();
        issues.set(
            &ObjectKey::new("ns", "a"),
            Some(&Issue::blocked("Conflict", &"somebody else's")),
        );
        assert!(issues.problem().unwrap().message.starts_with("ns/a: "));
        let gone = kube::Error::Api(kube::core::Status::failure("gone", "Gone").with_code(403).boxed());
        issues.set_watch(Watched::Consumer(None), Some(&gone));
        let problem = issues.problem().unwrap();
        assert_eq!(problem.message, "cannot watch the consumer: gone");
        assert_eq!(problem.cause, Cause::ConsumerForbids);
        assert!(issues.set_watch(Watched::Consumer(None), None));
        assert!(!issues.set_watch(Watched::Consumer(None), None));
    }

    #[test]
    fn a_watch_of_all_objects_that_lacks_a_right_is_told_by_itself() {
        let error = |code| kube::Error::Api(kube::core::Status::failure("no", "No").with_code(code).boxed());
        for (watched, code, expect) in [
            (Watched::Consumer(None), 403, Some(Cause::ConsumerForbids)),
            (
                Watched::Consumer(Some("west".into())),
                403,
                Some(Cause::ConsumerForbids),
            ),
            (Watched::Provider("".into()), 403, Some(Cause::ProviderForbids)),
            (Watched::Consumer(None), 503, None),
            (Watched::Provider("kube-bind-x-ranch".into()), 403, None),
            (Watched::Place("ranch".into()), 403, None),
        ] {
            let mut issues = Issues::default();
            issues.set_watch(watched.clone(), Some(&error(503)));
            for _ in 1..FORBIDDEN_MIN {
                issues.set_watch(watched.clone(), Some(&error(code)));
                assert_eq!(issues.forbidden_watch(), None, "it may be there again soon");
            }
            issues.set_watch(watched.clone(), Some(&error(code)));
            let cause = issues.forbidden_watch().map(|problem| problem.cause);
            assert_eq!(cause, expect, "{watched:?} {code}");
            issues.set_watch(watched, None);
            assert_eq!(issues.forbidden_watch(), None);
        }
    }
}
