//! Formats the state of a set, and the list of sets.

use std::fmt::Write as _;

use bindery_runtime::terminal::{self, printable};
use bindery_synk::{
    status::{ObjectStatus, Status, VersionStatus},
    versions::{Known, Versions},
    wire::Phase,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{document, history::phase, objects};

/// Returns the state of a set as a text and as a document.
pub(in crate::cli) fn status(status: &Status, now: Timestamp) -> (String, Map<String, Value>) {
    let mut document = document("Status", json!(status));
    document.insert("healthy".to_owned(), json!(status.is_healthy()));
    (text(status, now), document)
}

/// Returns all sets of a cluster as a table and as a document.
pub(in crate::cli) fn sets(sets: &[Versions]) -> (String, Map<String, Value>) {
    let newest: Vec<&Known> = sets.iter().filter_map(Versions::newest).collect();
    let document = document(
        "SetList",
        json!({ "sets": newest.iter().map(|known| set_document(known)).collect::<Vec<_>>() }),
    );
    if newest.is_empty() {
        return ("There are no sets.\n".to_owned(), document);
    }
    let cells = newest.iter().map(|known| {
        vec![
            known.version.set.to_string(),
            known.namespace.clone().unwrap_or_else(|| "<unknown>".to_owned()),
            known.version.to_string(),
            phase(known.phase),
            known.objects.len().to_string(),
        ]
    });
    let text = terminal::table(&["SET", "NAMESPACE", "VERSION", "PHASE", "OBJECTS"], cells, 5);
    (text, document)
}

fn set_document(known: &Known) -> Value {
    let mut document = json!({
        "set": known.version.set, "version": known.version.to_string(), "phase": known.phase,
        "objects": known.objects.len(),
    });
    if let Some(namespace) = &known.namespace {
        document["namespace"] = json!(namespace);
    }
    document
}

fn text(status: &Status, now: Timestamp) -> String {
    let namespace = status.namespace.as_deref().unwrap_or("<unknown>");
    let mut text = format!("set {}, namespace {}\n", status.set, printable(namespace));
    for version in &status.versions {
        let _ = writeln!(text, "{}", version_line(version, now));
    }
    if !status.objects.is_empty() {
        let headings = ["OBJECT", "NAMESPACE", "HEALTH", "REASON"];
        let _ = write!(
            text,
            "\n{}",
            terminal::table(&headings, status.objects.iter().map(cells), 4)
        );
    }
    let healthy = status
        .objects
        .iter()
        .filter(|object| object.health.is_healthy())
        .count();
    let _ = match status.objects.len() - healthy {
        0 => writeln!(text, "\n{}, all healthy.", objects(healthy)),
        count => writeln!(text, "\n{}, {count} not healthy.", objects(status.objects.len())),
    };
    text
}

fn version_line(version: &VersionStatus, now: Timestamp) -> String {
    let since = match (version.started, version.finished) {
        (_, Some(finished)) => format!(", {} ago", terminal::age(Some(finished), now)),
        (Some(started), None) => format!(", begun {} ago", terminal::age(Some(started), now)),
        (None, None) => String::new(),
    };
    let failed = match version.failed {
        0 => String::new(),
        count => format!(", {count} failed"),
    };
    let said = match version.phase {
        _ if version.deleting => "being deleted, with all that it owns",
        Phase::Settled => "applied",
        Phase::Failed => "not all applied",
        Phase::Pending => "not finished: another apply is at work, or it ended early; apply again",
    };
    let phase = phase(version.phase);
    format!(
        "{} {phase}{since}: {}, {said}{failed}",
        version.version,
        objects(version.objects)
    )
}

fn cells(object: &ObjectStatus) -> Vec<String> {
    vec![
        object.object.short(),
        object.object.namespace.clone().unwrap_or_else(|| "-".to_owned()),
        object.health.state().to_owned(),
        object
            .error
            .clone()
            .or_else(|| object.health.reason().map(str::to_owned))
            .unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use bindery_synk::{health::Health, wire::ResourceSet};

    use super::super::tests::object;
    use super::*;

    fn resource_set(name: &str, set: &str) -> ResourceSet {
        serde_json::from_value(json!({
            "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet",
            "metadata": {
                "name": name, "labels": {"name": set}, "annotations": {"synk.cloudrobotics.com/namespace": "shop"},
            },
            "spec": {"resources": [{"version": "v1", "kind": "ConfigMap", "items": [{"name": "a"}]}]},
            "status": {"phase": "Settled"},
        }))
        .unwrap()
    }

    #[test]
    fn sets_are_listed_by_their_newest_version() {
        let of = |set: &str, names: &[&str]| {
            let all = names.iter().map(|name| resource_set(name, set));
            Versions::of(&set.parse().unwrap(), all)
        };
        let (text, document) = sets(&[of("a", &["a.v1"]), of("web", &["web.v9", "web.v10"])]);
        assert_eq!(
            text,
            "\
SET   NAMESPACE   VERSION   PHASE     OBJECTS
a     shop        a.v1      Settled   1
web   shop        web.v10   Settled   1
"
        );
        assert_eq!(document["sets"][1]["version"], "web.v10");
        assert_eq!(sets(&[]).0, "There are no sets.\n");
    }

    #[test]
    fn a_set_is_shown_with_what_is_wrong_with_its_objects() {
        let of = |name: &str, health: Health, error: Option<&str>| ObjectStatus {
            object: object("v1", "ConfigMap", name),
            health,
            owner: None,
            error: error.map(str::to_owned),
        };
        let given = Status {
            set: "web".parse().unwrap(),
            namespace: Some("shop".to_owned()),
            versions: vec![VersionStatus {
                version: "web.v2".parse().unwrap(),
                deleting: false,
                phase: Phase::Failed,
                started: Some(Timestamp::UNIX_EPOCH),
                finished: Some(Timestamp::UNIX_EPOCH),
                objects: 3,
                failed: 1,
            }],
            objects: vec![
                of("a", Health::Healthy, None),
                of("b", Health::Progressing("1 of 2\u{1b} ready".to_owned()), None),
                of("c", Health::Missing, Some("no")),
            ],
        };
        let (text, document) = status(&given, Timestamp::from_second(300).unwrap());
        assert_eq!(
            text,
            "\
set web, namespace shop
web.v2 Failed, 5m ago: 3 objects, not all applied, 1 failed

OBJECT        NAMESPACE   HEALTH        REASON
configmap/a   shop        Healthy
configmap/b   shop        Progressing   1 of 2  ready
configmap/c   shop        Missing       no

3 objects, 2 not healthy.
"
        );
        assert_eq!(document["healthy"], false);
        assert_eq!(document["objects"][1]["health"]["state"], "Progressing");
    }
}
