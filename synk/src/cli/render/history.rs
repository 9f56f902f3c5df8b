//! Formats the history of a set.

use std::collections::BTreeSet;

use bindery_runtime::terminal;
use bindery_synk::{SetName, history::Stored, versions::Versions, wire::Phase};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::document;

/// One version that exists, or whose manifests are kept.
struct Row {
    number: u64,
    phase: Option<Phase>,
    time: Option<Timestamp>,
    objects: Option<usize>,
    rollback: &'static str,
}

/// Returns the history of a set as a text and as a document.
pub(in crate::cli) fn history(
    set: &SetName,
    versions: &Versions,
    stored: &[Stored],
    now: Timestamp,
) -> (String, Map<String, Value>) {
    let rows = rows(versions, stored);
    let cells = rows.iter().map(|row| {
        vec![
            set.version(row.number).to_string(),
            row.phase.map_or_else(|| "-".to_owned(), phase),
            row.time
                .map_or_else(|| "-".to_owned(), |time| terminal::age(Some(time), now)),
            row.objects
                .map_or_else(|| "-".to_owned(), |objects| objects.to_string()),
            row.rollback.to_owned(),
        ]
    });
    let text = terminal::table(&["VERSION", "PHASE", "AGE", "OBJECTS", "ROLLBACK"], cells, 5);
    let versions: Vec<_> = rows.iter().map(|row| row_document(set, row)).collect();
    (text, document("History", json!({ "set": set, "versions": versions })))
}

/// Returns the name of a phase.
pub(super) fn phase(phase: Phase) -> String {
    json!(phase).as_str().unwrap_or_default().to_owned()
}

/// Returns the rows, newest version first.
fn rows(versions: &Versions, stored: &[Stored]) -> Vec<Row> {
    let numbers = versions.iter().map(|known| known.version.number);
    let numbers: BTreeSet<_> = numbers
        .chain(stored.iter().map(|stored| stored.version.number))
        .collect();
    let row = |number: u64| {
        let known = versions.get(number);
        let stored = stored.iter().find(|stored| stored.version.number == number);
        Row {
            number,
            phase: known.map(|known| known.phase),
            time: stored.and_then(|stored| stored.time),
            objects: stored
                .and_then(|stored| stored.objects)
                .or_else(|| known.map(|known| known.objects.len())),
            rollback: match stored {
                Some(stored) if stored.whole => "yes",
                Some(_) => "damaged",
                None => "no",
            },
        }
    };
    numbers.into_iter().rev().map(row).collect()
}

fn row_document(set: &SetName, row: &Row) -> Value {
    let mut document = json!({ "version": set.version(row.number).to_string(), "rollback": row.rollback == "yes" });
    if let Some(phase) = row.phase {
        document["phase"] = json!(phase);
    }
    if let Some(time) = row.time {
        document["time"] = json!(time);
    }
    if let Some(objects) = row.objects {
        document["objects"] = json!(objects);
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_and_that_were_stand_together() {
        let set: SetName = "web".parse().unwrap();
        let live = serde_json::from_value(json!({
            "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet",
            "metadata": {"name": "web.v3", "labels": {"name": "web"}},
            "spec": {"resources": [{"version": "v1", "kind": "ConfigMap", "items": [{"name": "a"}]}]},
            "status": {"phase": "Settled"},
        }))
        .unwrap();
        let stored = |number, whole| Stored {
            version: set.version(number),
            time: (number > 1).then_some(Timestamp::UNIX_EPOCH),
            objects: Some(7),
            whole,
        };
        let versions = Versions::of(&set, [live]);
        let now = Timestamp::from_second(300).unwrap();
        let (text, document) = history(&set, &versions, &[stored(2, true), stored(1, false)], now);
        assert_eq!(
            text,
            "\
VERSION   PHASE     AGE   OBJECTS   ROLLBACK
web.v3    Settled   -     1         no
web.v2    -         5m    7         yes
web.v1    -         -     7         damaged
"
        );
        assert_eq!(
            document["versions"][0],
            json!({ "version": "web.v3", "phase": "Settled", "objects": 1, "rollback": false })
        );
        assert_eq!(document["versions"][1]["time"], "1970-01-01T00:00:00Z");
    }
}
