//! Patches of the three kinds that change a document without field managers.

mod merge;
mod strategic;

use json_patch::PatchOperation;
use serde_json::Value;

pub(crate) use self::{
    merge::merge,
    strategic::{drop_directives, strategic},
};
use crate::status::StatusError;

/// A patch with more operations is refused.
const OPERATIONS_MAX: usize = 10_000;

/// Applies a JSON patch (RFC 6902). A test that fails is answered with 422, a patch that cannot be read with 400.
pub(crate) fn json(target: &Value, patch: &Value) -> Result<Value, StatusError> {
    let operations: Vec<PatchOperation> = serde::Deserialize::deserialize(patch).map_err(|error| match patch {
        // What is no known operation does not fit any object.
        Value::Array(_) => unprocessable(),
        _ => StatusError::bad_request(format!("error decoding patch: {error}")),
    })?;
    if operations.len() > OPERATIONS_MAX {
        let message = format!(
            "Request entity is too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        );
        return Err(StatusError::plain(413, "RequestEntityTooLarge", message));
    }
    let mut patched = target.clone();
    for operation in &operations {
        if is_absent_as_tested(&patched, operation) {
            continue;
        }
        let operation = &added_if_absent(&patched, operation);
        json_patch::patch_unsafe(&mut patched, std::slice::from_ref(operation)).map_err(|_| unprocessable())?;
    }
    Ok(patched)
}

/// If the operation tests for null what is not there. The library of Kubernetes lets that pass.
fn is_absent_as_tested(target: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else {
        return false;
    };
    let parent = test.path.split_back().map(|(parent, _)| parent);
    test.value.is_null()
        && target.pointer(test.path.as_str()).is_none()
        && parent.is_some_and(|parent| target.pointer(parent.as_str()).is_some_and(Value::is_object))
}

fn parent_of<'a>(target: &'a Value, path: &json_patch::jsonptr::PointerBuf) -> Option<&'a Value> {
    let (parent, _) = path.split_back()?;
    target.pointer(parent.as_str())
}

/// In the library of Kubernetes, a replacement of what an object lacks adds it, and a copy of it adds null.
fn added_if_absent(target: &Value, operation: &PatchOperation) -> PatchOperation {
    if let PatchOperation::Copy(copy) = operation
        && target.pointer(copy.from.as_str()).is_none()
        && parent_of(target, &copy.from).is_some_and(Value::is_object)
    {
        return PatchOperation::Add(json_patch::AddOperation {
            path: copy.path.clone(),
            value: Value::Null,
        });
    }
    let PatchOperation::Replace(replace) = operation else {
        return operation.clone();
    };
    let parent = parent_of(target, &replace.path);
    if target.pointer(replace.path.as_str()).is_none() && parent.is_some_and(Value::is_object) {
        return PatchOperation::Add(json_patch::AddOperation {
            path: replace.path.clone(),
            value: replace.value.clone(),
        });
    }
    operation.clone()
}

/// 422: the patch does not fit the object.
fn unprocessable() -> StatusError {
    StatusError {
        details: serde_json::json!({}),
        ..StatusError::plain(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
    }
}

#[cfg(test)]
mod tests;
