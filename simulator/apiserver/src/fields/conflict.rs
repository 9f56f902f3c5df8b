//! The answer to an apply that would take fields from other managers.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    managed::{ManagerId, Operation},
    set::Set,
};
use crate::status::StatusError;

/// The fields that an apply may not take, with their owners.
pub(super) fn conflict(mut conflicts: Vec<(ManagerId, Set)>) -> StatusError {
    conflicts.sort_by(|(one, _), (two, _)| one.cmp(two));
    let conflicts: Vec<_> = conflicts
        .into_iter()
        .map(|(manager, fields)| (printed(&manager), fields.paths()))
        .collect();
    let causes = conflicts.iter().flat_map(|(manager, paths)| {
        paths.iter().map(move |path| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {manager}"),
                "field": path,
            })
        })
    });
    let causes: Vec<Value> = causes.collect();
    let message = match conflicts.as_slice() {
        [(manager, paths)] if paths.len() == 1 => {
            format!(
                "Apply failed with 1 conflict: conflict with {manager}: {}",
                paths.concat()
            )
        }
        _ => {
            let lines = conflicts.iter().flat_map(|(manager, paths)| {
                let head = format!("conflicts with {manager}:");
                std::iter::once(head).chain(paths.iter().map(|path| format!("- {path}")))
            });
            let lines: Vec<_> = lines.collect();
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
        }
    };
    StatusError {
        details: json!({ "causes": causes }),
        ..StatusError::plain(409, "Conflict", message)
    }
}

fn printed(manager: &ManagerId) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        let _ = write!(text, " with subresource {:?}", manager.subresource);
    }
    if manager.operation == Operation::Update {
        let _ = write!(text, " using {}", manager.version);
    }
    text
}
