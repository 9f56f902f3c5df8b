//! JSON of any form that several objects can share.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// JSON of any form. Clones share it; a clone that is changed gets a copy of its own.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(from = "Value")]
pub struct SharedValue(Arc<Value>);

impl SharedValue {
    /// Whether no clone shares the value.
    pub fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Serialize for SharedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl From<Value> for SharedValue {
    fn from(value: Value) -> Self {
        Self(Arc::new(value))
    }
}

impl Deref for SharedValue {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl DerefMut for SharedValue {
    fn deref_mut(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_changed_clone_leaves_the_others_as_they_are() {
        let one = SharedValue::from(json!({"type": "object"}));
        let mut other = one.clone();
        assert!(!one.is_unshared());
        other["type"] = json!("string");
        assert!(one.is_unshared());
        assert_eq!((&one["type"], &other["type"]), (&json!("object"), &json!("string")));
    }

    #[test]
    fn it_is_read_and_written_as_the_bare_json() {
        let json = json!({"type": "object"});
        let read: SharedValue = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(json!(read), json);
    }
}
