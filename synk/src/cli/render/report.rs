//! Formats the outcome of an apply or a delete.

use std::fmt::Write as _;

use bindery_synk::{ObjectRef, Report, SetName, delete::Deleted, report::Outcome, wire::Action};
use serde_json::{Map, Value, json};

use super::{about, counted, document, named, objects};

/// Number of objects by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summary {
    created: usize,
    changed: usize,
    recreated: usize,
    unchanged: usize,
    ignored: usize,
    failed: usize,
    pruned: usize,
}

/// Returns a report as a text and as a document.
pub(in crate::cli) fn report(set: &SetName, report: &Report) -> (String, Map<String, Value>) {
    let summary = Summary::of(report);
    (text(set, report, summary), as_document(set, report, summary))
}

/// Returns the outcome of a deletion as a text and as a document.
pub(in crate::cli) fn deleted(name: &str, deleted: &Deleted, waited: bool) -> (String, Map<String, Value>) {
    let gone = if waited { "is deleted" } else { "is being deleted" };
    let mut text = match deleted.versions.as_slice() {
        [] => format!("{name}: there is nothing to delete\n"),
        _ => format!("{name} {gone}\n"),
    };
    if !deleted.kept.is_empty() {
        let _ = writeln!(
            text,
            "{} kept, as all objects of {} would go too:",
            match deleted.kept.len() {
                1 => "1 CustomResourceDefinition".to_owned(),
                count => format!("{count} CustomResourceDefinitions"),
            },
            if deleted.kept.len() == 1 {
                "its kind"
            } else {
                "their kinds"
            },
        );
        for object in &deleted.kept {
            let _ = writeln!(text, "  {}", named(object, ""));
        }
    }
    let versions: Vec<_> = deleted.versions.iter().map(ToString::to_string).collect();
    let document = document(
        "DeleteReport",
        json!({ "name": name, "versions": versions, "gone": waited, "kept": deleted.kept }),
    );
    (text, document)
}

/// Returns the outcome of `synk init` as a text and as a document.
pub(in crate::cli) fn init(changed: bool) -> (String, Map<String, Value>) {
    let done = if changed {
        "are installed"
    } else {
        "were installed already"
    };
    let text = format!("ResourceSets {done}: sets can be applied to this cluster\n");
    (text, document("InitReport", json!({ "changed": changed })))
}

/// Returns the version of this command as a text and as a document.
pub(in crate::cli) fn version() -> (String, Map<String, Value>) {
    let version = env!("CARGO_PKG_VERSION");
    let document = document("VersionReport", json!({ "version": version }));
    (format!("synk {version}\n"), document)
}

impl Summary {
    fn of(report: &Report) -> Self {
        let done = |action: Action| {
            let is = |outcome: &&Outcome| outcome.error.is_none() && outcome.action == action;
            report.objects.iter().filter(is).count()
        };
        Self {
            created: done(Action::Create),
            changed: done(Action::Update),
            recreated: done(Action::Replace),
            unchanged: done(Action::None),
            ignored: done(Action::Ignored),
            failed: report.problems().count(),
            pruned: report.pruned.len(),
        }
    }
}

fn text(set: &SetName, report: &Report, summary: Summary) -> String {
    let counts = counted(&[
        (summary.created, "created"),
        (summary.changed, "changed"),
        (summary.recreated, "recreated"),
        (summary.unchanged, "unchanged"),
        (summary.ignored, "left alone"),
        (summary.failed, "failed"),
        (summary.pruned, "pruned"),
    ]);
    let name = report
        .version
        .as_ref()
        .map_or_else(|| set.to_string(), ToString::to_string);
    if report.changed {
        let counts = if counts.is_empty() {
            "no objects".to_owned()
        } else {
            counts
        };
        let done = if summary.failed > 0 { "not finished" } else { "applied" };
        format!("{name} {done}: {counts}\n")
    } else {
        format!("{name}: nothing to do, {} unchanged\n", objects(report.objects.len()))
    }
}

fn as_document(set: &SetName, report: &Report, summary: Summary) -> Map<String, Value> {
    document(
        "ApplyReport",
        json!({
            "set": set,
            "version": report.version.as_ref().map(ToString::to_string),
            "changed": report.changed,
            "summary": {
                "created": summary.created,
                "changed": summary.changed,
                "recreated": summary.recreated,
                "unchanged": summary.unchanged,
                "ignored": summary.ignored,
                "failed": summary.failed,
                "pruned": summary.pruned,
            },
            "objects": report.objects.iter().map(outcome_document).collect::<Vec<_>>(),
            "pruned": report.pruned.iter().collect::<Vec<&ObjectRef>>(),
        }),
    )
}

fn outcome_document(outcome: &Outcome) -> Value {
    let mut more = json!({ "action": outcome.action });
    if let Some(uid) = &outcome.uid {
        more["uid"] = json!(uid);
    }
    if let Some(generation) = outcome.generation {
        more["generation"] = json!(generation);
    }
    if let Some(problem) = &outcome.error {
        more["error"] = json!({ "message": problem.message, "transient": problem.transient });
    }
    about(&outcome.object, more)
}

#[cfg(test)]
mod tests {
    use bindery_synk::report::Problem;

    use super::super::tests::object;
    use super::*;

    fn outcome(name: &str, action: Action, error: Option<&str>) -> Outcome {
        Outcome {
            object: object("v1", "ConfigMap", name),
            action,
            uid: Some("u".to_owned()),
            generation: None,
            error: error.map(|message| Problem {
                message: message.to_owned(),
                transient: false,
                forbidden: false,
                unreachable: false,
            }),
        }
    }

    fn of(changed: bool, objects: Vec<Outcome>) -> Report {
        Report {
            version: Some("web.v2".parse().unwrap()),
            changed,
            objects,
            pruned: Vec::new(),
        }
    }

    #[track_caller]
    fn check(given: &Report, expect: &str) {
        assert_eq!(report(&"web".parse().unwrap(), given).0, expect);
    }

    #[test]
    fn one_line_says_what_was_done() {
        let mut all = of(
            true,
            vec![
                outcome("a", Action::Create, None),
                outcome("b", Action::Update, None),
                outcome("c", Action::None, None),
                outcome("d", Action::Replace, None),
            ],
        );
        all.pruned = vec![object("v1", "ConfigMap", "e")];
        check(
            &all,
            "web.v2 applied: 1 created, 1 changed, 1 recreated, 1 unchanged, 1 pruned\n",
        );
        check(&of(true, Vec::new()), "web.v2 applied: no objects\n");
        let still = of(false, vec![outcome("a", Action::None, None)]);
        check(&still, "web.v2: nothing to do, 1 object unchanged\n");
        let failed = of(
            true,
            vec![
                outcome("a", Action::Create, None),
                outcome("b", Action::None, Some("no")),
            ],
        );
        check(&failed, "web.v2 not finished: 1 created, 1 failed\n");
    }

    #[test]
    fn a_program_reads_each_object() {
        let failed = of(true, vec![outcome("b", Action::None, Some("no"))]);
        let document = Value::Object(report(&"web".parse().unwrap(), &failed).1);
        assert_eq!(document["version"], "web.v2");
        assert_eq!(document["summary"]["failed"], 1);
        assert_eq!(
            document["objects"],
            json!([{
                "version": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "b", "action": "None", "uid": "u",
                "error": { "message": "no", "transient": false },
            }])
        );
    }

    #[test]
    fn what_stays_after_a_delete_is_named() {
        let mut definition = object(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "widgets.example.com",
        );
        definition.namespace = None;
        let all = Deleted {
            versions: vec!["web.v2".parse().unwrap()],
            kept: vec![definition],
        };
        let (text, document) = deleted("web", &all, true);
        assert_eq!(
            text,
            "web is deleted\n1 CustomResourceDefinition kept, as all objects of its kind would go too:\n  \
             customresourcedefinition.apiextensions.k8s.io/widgets.example.com\n"
        );
        assert_eq!(document["versions"], json!(["web.v2"]));
        let none = Deleted {
            versions: Vec::new(),
            kept: Vec::new(),
        };
        assert_eq!(deleted("web", &none, true).0, "web: there is nothing to delete\n");
    }
}
