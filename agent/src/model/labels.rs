//! Labels and annotations of objects, stored compactly.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

/// The labels or the annotations of an object, sorted by key, in no more room than they need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(Box<[(Box<str>, Box<str>)]>);

// === impl Marks ===

impl Marks {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Marks {
    /// Of two pairs with the same key, the later one counts.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let pairs = pairs.into_iter().map(|(key, value)| (key.into(), value.into()));
        let mut pairs: Vec<(Box<str>, Box<str>)> = pairs.collect();
        // API servers send them in this order.
        if !pairs.is_sorted_by(|one, next| one.0 < next.0) {
            pairs.reverse();
            pairs.sort_by(|one, other| one.0.cmp(&other.0));
            pairs.dedup_by(|next, one| next.0 == one.0);
        }
        Self(pairs.into_boxed_slice())
    }
}

impl<'de> Deserialize<'de> for Marks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MarksVisitor(PhantomData))
    }
}

struct MarksVisitor(PhantomData<fn() -> Marks>);

impl<'de> Visitor<'de> for MarksVisitor {
    type Value = Marks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels or annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Marks, A::Error> {
        let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs.into_iter().collect())
    }
}

#[cfg(test)]
impl serde::Serialize for Marks {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// For any document, the result is what a plain map would hold.
        #[test]
        fn holds_what_a_plain_map_holds(pairs in prop::collection::vec(("[a-e]{0,2}", "[x-z]{0,2}"), 0..8), asked in "[a-e]{0,2}") {
            let text: Vec<_> = pairs.iter().map(|(key, value)| format!("{key:?}:{value:?}")).collect();
            let text = format!("{{{}}}", text.join(","));
            let (marks, plain): (Marks, BTreeMap<String, String>) =
                (serde_json::from_str(&text).unwrap(), serde_json::from_str(&text).unwrap());
            let all: Vec<_> = plain.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            prop_assert_eq!(marks.iter().collect::<Vec<_>>(), all);
            prop_assert_eq!(marks.get(&asked), plain.get(&asked).map(String::as_str));
            prop_assert_eq!(marks, pairs.into_iter().collect());
        }
    }
}
