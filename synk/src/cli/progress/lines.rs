//! Formats progress events as lines. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bindery_runtime::terminal::printable;
use bindery_synk::{
    Event, ObjectRef,
    plan::{Decision, Plan},
    report::Outcome,
    wire::Action,
};

use crate::cli::render::{named, objects};

/// Formats events, and counts the objects that are done.
#[derive(Debug, Default)]
pub(super) struct Lines {
    verbose: bool,
    /// Namespace of the set, which lines leave out.
    namespace: String,
    total: u64,
    done: BTreeSet<ObjectRef>,
    /// The last error of each object that failed.
    failed: BTreeMap<ObjectRef, String>,
    waits_for: String,
    /// Address of the API server.
    server: String,
    began_again: bool,
}

/// A line of output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line about an object that succeeded.
    Object(String),
    /// A line of other news.
    News(String),
}

impl Lines {
    pub(super) fn new(verbose: bool, server: &str) -> Self {
        Self {
            verbose,
            server: server.to_owned(),
            ..Self::default()
        }
    }

    /// Whether more than one attempt was made.
    pub(super) fn began_again(&self) -> bool {
        self.began_again
    }

    /// Returns the number of objects to write.
    pub(super) fn total(&self) -> u64 {
        self.total.max(self.done())
    }

    /// Returns the number of objects that are written.
    pub(super) fn done(&self) -> u64 {
        self.done.len() as u64
    }

    /// Formats an event. Returns `None` if there is nothing to print.
    pub(super) fn tell(&mut self, event: Event<'_>) -> Option<Line> {
        match event {
            Event::Planned(plan) => {
                self.planned(plan);
                None
            }
            Event::Object(outcome) => self.object(outcome),
            Event::Pruned(object) => {
                self.done.insert(object.clone());
                Some(Line::Object(format!("{} pruned", named(object, &self.namespace))))
            }
            Event::Waiting { object, reason, count } => self.waiting(object, reason, count),
            Event::Establishing(count) => {
                let are = if count == 1 { " is" } else { "s are" };
                Some(Line::News(format!(
                    "waiting until {count} CustomResourceDefinition{are} served"
                )))
            }
            Event::Round { number, left } => Some(Line::News(format!(
                "{} failed, trying again (round {number})",
                objects(left)
            ))),
            Event::Retry {
                number,
                of,
                after,
                reason,
                unreachable,
            } => {
                self.began_again = true;
                let address = unreachable.then(|| format!("; the API server is {}", self.server));
                let address = address.unwrap_or_default();
                Some(Line::News(format!(
                    "starting over in {} s (retry {number} of {of}): {}{address}",
                    after.as_secs(),
                    printable(reason)
                )))
            }
            Event::Held { holder } => Some(Line::News(format!(
                "the set is held by {0}, looking whether {0} is alive",
                printable(holder)
            ))),
        }
    }

    fn planned(&mut self, plan: &Plan) {
        self.namespace.clone_from(&plan.namespace);
        self.done.clear();
        let doable = |decision: &Decision| !matches!(decision, Decision::Impossible { .. });
        let steps = plan.steps.iter().filter(|step| doable(&step.decision)).count();
        self.total = if plan.next.is_some() {
            (steps + plan.prune.len()) as u64
        } else {
            0
        };
    }

    fn object(&mut self, outcome: &Outcome) -> Option<Line> {
        let name = named(&outcome.object, &self.namespace);
        if let Some(problem) = &outcome.error {
            let text = format!("{name} failed: {}", printable(&problem.message));
            let told = self.failed.insert(outcome.object.clone(), text.clone());
            return (told.as_ref() != Some(&text)).then_some(Line::News(text));
        }
        self.done.insert(outcome.object.clone());
        let done = match outcome.action {
            Action::Create => "created",
            Action::Update => "changed",
            Action::Replace => "recreated",
            Action::None if self.verbose => "unchanged",
            Action::Ignored if self.verbose => "left alone",
            Action::None | Action::Ignored => return None,
        };
        Some(Line::Object(format!("{name} {done}")))
    }

    /// Formats a wait, unless the same line was printed last.
    fn waiting(&mut self, object: &ObjectRef, reason: &str, count: usize) -> Option<Line> {
        let others = match count {
            0 | 1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let text = format!(
            "waiting for {}: {}{others}",
            named(object, &self.namespace),
            printable(reason)
        );
        (text != self.waits_for).then(|| {
            self.waits_for.clone_from(&text);
            Line::News(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bindery_synk::{Gvk, report::Problem};

    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef {
            gvk: Gvk::new("v1", "ConfigMap"),
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
        }
    }

    fn outcome(name: &str, action: Action) -> Outcome {
        Outcome {
            object: object(name),
            action,
            uid: None,
            generation: None,
            error: None,
        }
    }

    fn begun(verbose: bool) -> Lines {
        let plan = Plan {
            set: "web".parse().unwrap(),
            namespace: "shop".to_owned(),
            current: None,
            next: Some(1),
            steps: Vec::new(),
            released: Vec::new(),
            prune: Vec::new(),
            refusals: Vec::new(),
        };
        let mut lines = Lines::new(verbose, "https://10.0.0.1:6443");
        assert_eq!(lines.tell(Event::Planned(&plan)), None);
        lines
    }

    #[track_caller]
    fn check(lines: &mut Lines, event: Event<'_>, expect: &str) {
        let Some(Line::Object(text) | Line::News(text)) = lines.tell(event) else {
            panic!("nothing is said of {event:?}");
        };
        assert_eq!(text, expect);
    }

    #[test]
    fn each_object_that_is_done_has_a_line() {
        let mut lines = begun(false);
        check(
            &mut lines,
            Event::Object(&outcome("web", Action::Create)),
            "configmap/web created",
        );
        check(
            &mut lines,
            Event::Object(&outcome("b", Action::Update)),
            "configmap/b changed",
        );
        check(
            &mut lines,
            Event::Object(&outcome("c", Action::Replace)),
            "configmap/c recreated",
        );
        check(&mut lines, Event::Pruned(&object("d")), "configmap/d pruned");
        assert_eq!(lines.tell(Event::Object(&outcome("e", Action::None))), None);
        assert_eq!((lines.done(), lines.total()), (5, 5));
        let mut verbose = begun(true);
        check(
            &mut verbose,
            Event::Object(&outcome("e", Action::None)),
            "configmap/e unchanged",
        );
    }

    #[test]
    fn what_failed_is_not_done_and_cannot_rewrite_the_terminal() {
        let mut lines = begun(false);
        let mut failed = outcome("web", Action::None);
        failed.object.namespace = Some("kube-system".to_owned());
        failed.error = Some(Problem {
            message: "a\nb\u{1b}".to_owned(),
            transient: true,
            forbidden: false,
            unreachable: false,
        });
        check(
            &mut lines,
            Event::Object(&failed),
            "configmap/web in namespace kube-system failed: a b ",
        );
        assert_eq!(lines.done(), 0);
        assert_eq!(lines.tell(Event::Object(&failed)), None, "the same is told once");
        failed.error = None;
        failed.action = Action::Create;
        check(
            &mut lines,
            Event::Object(&failed),
            "configmap/web in namespace kube-system created",
        );
    }

    #[test]
    fn all_else_is_said_in_a_line() {
        let mut lines = begun(false);
        check(
            &mut lines,
            Event::Establishing(1),
            "waiting until 1 CustomResourceDefinition is served",
        );
        check(
            &mut lines,
            Event::Establishing(2),
            "waiting until 2 CustomResourceDefinitions are served",
        );
        check(
            &mut lines,
            Event::Round { number: 2, left: 1 },
            "1 object failed, trying again (round 2)",
        );
        check(
            &mut lines,
            Event::Round { number: 3, left: 4 },
            "4 objects failed, trying again (round 3)",
        );
        let after = Duration::from_secs(5);
        let retry = Event::Retry {
            number: 1,
            of: 60,
            after,
            reason: "no answer",
            unreachable: false,
        };
        assert!(!lines.began_again());
        check(&mut lines, retry, "starting over in 5 s (retry 1 of 60): no answer");
        assert!(lines.began_again());
        let away = Event::Retry {
            number: 2,
            of: 60,
            after,
            reason: "cannot reach the API server: timeout",
            unreachable: true,
        };
        let expect = "starting over in 5 s (retry 2 of 60): cannot reach the API server: timeout; the API server is \
                      https://10.0.0.1:6443";
        check(&mut lines, away, expect);
        check(
            &mut lines,
            Event::Held { holder: "ann" },
            "the set is held by ann, looking whether ann is alive",
        );
    }

    #[test]
    fn what_is_waited_for_is_said_once() {
        let mut lines = begun(false);
        let object = object("a");
        let event = Event::Waiting {
            object: &object,
            reason: "1 of 2 ready",
            count: 3,
        };
        check(&mut lines, event, "waiting for configmap/a: 1 of 2 ready (and 2 more)");
        assert_eq!(lines.tell(event), None);
    }
}
