//! Formats a plan.

use std::fmt::Write as _;

use bindery_runtime::terminal::printable;
use bindery_synk::plan::{Decision, FieldChange, Plan, Step};
use serde_json::{Map, Value, json};

use super::{Style, about, counted, document, named, objects};

/// Greatest length of a printed value. Longer values are shortened.
const VALUE_LENGTH_MAX: usize = 60;
/// Greatest number of printed fields per object. Further fields are only counted.
const FIELDS_MAX: usize = 12;

/// Number of objects by decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summary {
    create: usize,
    change: usize,
    recreate: usize,
    prune: usize,
    unchanged: usize,
    ignored: usize,
    impossible: usize,
}

/// Returns a plan as a text and as a document.
pub(in crate::cli) fn plan(plan: &Plan, style: Style) -> (String, Map<String, Value>) {
    (text(plan, style), as_document(plan))
}

impl Summary {
    fn of(plan: &Plan) -> Self {
        let count = |is: fn(&Decision) -> bool| plan.steps.iter().filter(|step| is(&step.decision)).count();
        Self {
            create: count(|decision| matches!(decision, Decision::Create)),
            change: count(|decision| matches!(decision, Decision::Change | Decision::Unsure)),
            recreate: count(|decision| matches!(decision, Decision::Recreate)),
            prune: plan.prune.len(),
            unchanged: count(|decision| matches!(decision, Decision::Unchanged)),
            ignored: count(|decision| matches!(decision, Decision::Ignored)),
            impossible: count(|decision| matches!(decision, Decision::Impossible { .. })),
        }
    }

    fn differs(self) -> bool {
        self.create + self.change + self.recreate + self.prune + self.impossible > 0
    }

    fn text(self) -> String {
        counted(&[
            (self.create, "to create"),
            (self.change, "to change"),
            (self.recreate, "to recreate"),
            (self.prune, "to prune"),
            (self.impossible, "cannot be applied"),
            (self.unchanged, "unchanged"),
            (self.ignored, "ignored"),
        ])
    }
}

fn text(plan: &Plan, style: Style) -> String {
    let mut text = String::new();
    let summary = Summary::of(plan);
    for step in &plan.steps {
        if style.verbose || step.decision != Decision::Unchanged {
            write_step(&mut text, step, &plan.namespace, style);
        }
    }
    for prune in &plan.prune {
        let _ = writeln!(
            text,
            "{} {}",
            style.paint(31, "-"),
            named(&prune.object, &plan.namespace)
        );
    }
    for left in &plan.released {
        let line = "leaves the set and stays: objects of the set live in it";
        let _ = writeln!(text, "= {} {line}", named(&left.object, &plan.namespace));
    }
    if !style.verbose && summary.unchanged > 0 && summary.differs() {
        let line = format!("= {} unchanged", objects(summary.unchanged));
        let _ = writeln!(text, "{}", style.paint(2, &line));
    }
    let rule = if text.is_empty() { "" } else { "\n" };
    format!("{}\n\n{text}{rule}{}\n", heading(plan), closing(plan, summary))
}

fn heading(plan: &Plan) -> String {
    let set = &plan.set;
    let versions = match (plan.current, plan.next) {
        (None, Some(next)) => format!("{} is new", set.version(next)),
        (Some(current), Some(next)) => format!("{} -> {}", set.version(current), set.version(next)),
        (Some(current), None) => set.version(current).to_string(),
        (None, None) => "there is no version".to_owned(),
    };
    format!("set {set}, namespace {}: {versions}", printable(&plan.namespace))
}

fn closing(plan: &Plan, summary: Summary) -> String {
    if plan.next.is_none() {
        return format!(
            "Nothing to do, {} unchanged.",
            objects(summary.unchanged + summary.ignored)
        );
    }
    if !summary.differs() {
        let why = "a new version is due all the same: the last one was not finished, or lists something else";
        return format!("{} unchanged; {why}.", objects(summary.unchanged + summary.ignored));
    }
    format!("{}.", summary.text())
}

fn write_step(text: &mut String, step: &Step, namespace: &str, style: Style) {
    let (sign, colour) = match step.decision {
        Decision::Create => ("+", 32),
        Decision::Change | Decision::Unsure => ("~", 33),
        Decision::Recreate => ("±", 35),
        Decision::Unchanged | Decision::Ignored => ("=", 2),
        Decision::Impossible { .. } => ("!", 31),
    };
    let name = named(&step.object, namespace);
    let _ = write!(text, "{} {name}", style.paint(colour, sign));
    let note = match &step.decision {
        Decision::Recreate => "  (is deleted and made anew: this cannot be changed)",
        Decision::Unsure => "  (may change)",
        Decision::Ignored => "  (left alone: it has the annotation synk.cloudrobotics.com/ignore)",
        _ => "",
    };
    let _ = writeln!(text, "{note}");
    if style.verbose || matches!(step.decision, Decision::Impossible { .. }) {
        let _ = writeln!(text, "    {}", style.paint(2, &printable(&step.origin.to_string())));
    }
    if let Decision::Impossible { problem, .. } = &step.decision {
        let _ = writeln!(text, "    {}", printable(problem));
    }
    // A new object has no earlier value to compare with.
    if !matches!(step.decision, Decision::Create) {
        write_changes(text, &step.changes, style);
    }
}

fn write_changes(text: &mut String, changes: &[FieldChange], style: Style) {
    let shown = if style.verbose { changes.len() } else { FIELDS_MAX };
    for change in changes.iter().take(shown) {
        let path = printable(&change.path);
        let values = if change.hidden {
            "(hidden)".to_owned()
        } else {
            format!(
                "{} -> {}",
                value(change.from.as_ref(), style),
                value(change.to.as_ref(), style)
            )
        };
        let _ = writeln!(text, "    {path}: {values}");
    }
    if changes.len() > shown {
        let _ = writeln!(text, "    … and {} more fields, which -v shows", changes.len() - shown);
    }
}

fn value(value: Option<&Value>, style: Style) -> String {
    let Some(value) = value else {
        return "(none)".to_owned();
    };
    let text = printable(&value.to_string());
    if style.verbose || text.chars().count() <= VALUE_LENGTH_MAX {
        return text;
    }
    let short: String = text.chars().take(VALUE_LENGTH_MAX).collect();
    format!("{short}…")
}

fn as_document(plan: &Plan) -> Map<String, Value> {
    let version = |number: Option<u64>| number.map(|number| plan.set.version(number).to_string());
    let summary = Summary::of(plan);
    document(
        "PlanReport",
        json!({
            "set": plan.set,
            "namespace": plan.namespace,
            "current": version(plan.current),
            "next": version(plan.next),
            "pending": plan.next.is_some(),
            "summary": {
                "create": summary.create,
                "change": summary.change,
                "recreate": summary.recreate,
                "prune": summary.prune,
                "unchanged": summary.unchanged,
                "ignored": summary.ignored,
                "impossible": summary.impossible,
            },
            "objects": plan.steps.iter().map(step_document).collect::<Vec<_>>(),
            "pruned": plan.prune.iter().map(|prune| about(&prune.object, json!({ "uid": prune.uid }))).collect::<Vec<_>>(),
            "released": plan.released.iter().map(|left| about(&left.object, json!({ "uid": left.uid }))).collect::<Vec<_>>(),
            "refusals": plan.refusals.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
    )
}

fn step_document(step: &Step) -> Value {
    let decision = match &step.decision {
        Decision::Create => "create",
        Decision::Change => "change",
        Decision::Recreate => "recreate",
        Decision::Unchanged => "unchanged",
        Decision::Ignored => "ignored",
        Decision::Unsure => "unsure",
        Decision::Impossible { .. } => "impossible",
    };
    let mut document = about(&step.object, json!({ "decision": decision, "changes": step.changes }));
    if let Decision::Impossible { problem, transient } = &step.decision {
        document["problem"] = json!({ "message": problem, "transient": transient });
    }
    document
}

#[cfg(test)]
mod tests {
    use super::super::tests::{object, plan as empty, step};
    use super::*;

    fn change(path: &str, from: Value, to: Value) -> FieldChange {
        FieldChange {
            path: path.to_owned(),
            from: Some(from).filter(|value| !value.is_null()),
            to: Some(to).filter(|value| !value.is_null()),
            hidden: false,
        }
    }

    fn mixed() -> Plan {
        let mut changed = step("apps/v1", "Deployment", "web", Decision::Change);
        changed.changes = vec![
            change("spec.replicas", json!(2), json!(3)),
            change("spec.paused", Value::Null, json!(true)),
            change("metadata.labels.tier", json!("gold"), Value::Null),
        ];
        let mut secret = step("v1", "Secret", "login", Decision::Change);
        secret.changes = vec![FieldChange {
            path: "data.password".to_owned(),
            from: None,
            to: None,
            hidden: true,
        }];
        let mut foreign = step("v1", "ConfigMap", "extension", Decision::Unchanged);
        foreign.object.namespace = Some("kube-system".to_owned());
        Plan {
            current: Some(3),
            next: Some(4),
            steps: vec![
                step("v1", "ConfigMap", "new", Decision::Create),
                changed,
                secret,
                step("batch/v1", "Job", "migrate", Decision::Recreate),
                step("v1", "ConfigMap", "same", Decision::Unchanged),
                foreign,
                step("v1", "ConfigMap", "mine", Decision::Ignored),
            ],
            prune: vec![bindery_synk::plan::Prune {
                object: object("v1", "ConfigMap", "old"),
                uid: "u".to_owned(),
            }],
            released: vec![bindery_synk::plan::Prune {
                object: bindery_synk::ObjectRef {
                    namespace: None,
                    ..object("v1", "Namespace", "shop")
                },
                uid: "n".to_owned(),
            }],
            ..empty()
        }
    }

    #[track_caller]
    fn check(plan: &Plan, verbose: bool, expect: &str) {
        let style = Style {
            verbose,
            colours: false,
        };
        assert_eq!(text(plan, style), expect);
    }

    #[test]
    fn each_object_that_differs_has_a_sign_and_its_fields() {
        check(
            &mixed(),
            false,
            "\
set web, namespace shop: web.v3 -> web.v4

+ configmap/new
~ deployment.apps/web
    spec.replicas: 2 -> 3
    spec.paused: (none) -> true
    metadata.labels.tier: \"gold\" -> (none)
~ secret/login
    data.password: (hidden)
± job.batch/migrate  (is deleted and made anew: this cannot be changed)
= configmap/mine  (left alone: it has the annotation synk.cloudrobotics.com/ignore)
- configmap/old
= namespace/shop leaves the set and stays: objects of the set live in it
= 2 objects unchanged

1 to create, 2 to change, 1 to recreate, 1 to prune, 2 unchanged, 1 ignored.
",
        );
    }

    #[test]
    fn all_of_it_is_shown_to_who_asks() {
        let plan = Plan {
            prune: Vec::new(),
            released: Vec::new(),
            steps: mixed().steps.split_off(4),
            ..mixed()
        };
        check(
            &plan,
            true,
            "\
set web, namespace shop: web.v3 -> web.v4

= configmap/same
    web.yaml, document 1, line 1
= configmap/extension in namespace kube-system
    web.yaml, document 1, line 1
= configmap/mine  (left alone: it has the annotation synk.cloudrobotics.com/ignore)
    web.yaml, document 1, line 1

3 objects unchanged; a new version is due all the same: the last one was not finished, or lists something else.
",
        );
    }

    #[test]
    fn nothing_to_do_is_said_in_a_word() {
        let plan = Plan {
            current: Some(3),
            steps: vec![step("v1", "ConfigMap", "a", Decision::Unchanged)],
            ..empty()
        };
        check(
            &plan,
            false,
            "set web, namespace shop: web.v3\n\nNothing to do, 1 object unchanged.\n",
        );
    }

    #[test]
    fn what_cannot_be_applied_says_why_and_where_it_stands() {
        let problem = "no kind Widget\u{1b}[2J is served".to_owned();
        let plan = Plan {
            next: Some(1),
            steps: vec![step(
                "example.com/v1",
                "Widget",
                "a",
                Decision::Impossible {
                    problem,
                    transient: true,
                },
            )],
            ..empty()
        };
        check(
            &plan,
            false,
            "\
set web, namespace shop: web.v1 is new

! widget.example.com/a
    web.yaml, document 1, line 1
    no kind Widget [2J is served

1 cannot be applied.
",
        );
    }

    #[test]
    fn long_values_and_long_lists_are_shortened() {
        let mut long = step("v1", "ConfigMap", "a", Decision::Change);
        long.changes = vec![change("data.a", json!("x".repeat(200)), json!("a\nb\u{9b}"))];
        long.changes
            .extend((0..20).map(|number| change(&format!("data.k{number}"), json!(1), json!(2))));
        let plan = Plan {
            next: Some(1),
            steps: vec![long],
            ..empty()
        };
        let brief = text(&plan, Style::default());
        let first = format!("    data.a: \"{}… -> \"a\\nb \"\n", "x".repeat(59));
        assert!(brief.contains(&first), "{brief}");
        assert!(
            brief.contains("    data.k10: 1 -> 2\n    … and 9 more fields, which -v shows\n"),
            "{brief}"
        );
        let style = Style {
            verbose: true,
            colours: false,
        };
        assert!(text(&plan, style).contains(&"x".repeat(200)));
    }

    #[test]
    fn signs_are_coloured_where_colours_are() {
        let style = Style {
            verbose: false,
            colours: true,
        };
        assert!(text(&mixed(), style).contains("\u{1b}[32m+\u{1b}[0m configmap/new\n"));
    }

    #[test]
    fn a_program_reads_the_same() {
        let document = Value::Object(as_document(&mixed()));
        assert_eq!(
            (&document["next"], &document["pending"]),
            (&json!("web.v4"), &json!(true))
        );
        assert_eq!(
            document["summary"],
            json!({
                "create": 1, "change": 2, "recreate": 1, "prune": 1, "unchanged": 2, "ignored": 1, "impossible": 0,
            })
        );
        assert_eq!(
            document["objects"][2],
            json!({
                "version": "v1", "kind": "Secret", "namespace": "shop", "name": "login", "decision": "change",
                "changes": [{ "path": "data.password", "hidden": true }],
            })
        );
        assert_eq!(document["pruned"][0]["name"], "old");
    }
}
