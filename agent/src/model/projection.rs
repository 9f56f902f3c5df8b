//! The projection of an object, which is copied to the other cluster: all but what belongs to one cluster alone.

use std::{fmt, str::FromStr};

use bindery_api::{annotations, hash::add_part};
use serde_json::{Map, Value, value::RawValue};
use sha2::{Digest as _, Sha256};

use crate::model::{labels::Marks, object::Object};

/// A 128-bit fingerprint of content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 16]);

/// The value of the annotation `kube-bind.io/projection-hash` on provider objects: which content was last written, and
/// whether a foreign change of it has been written back once already. Thanks to it, a restart needs no writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastProjection {
    pub fingerprint: Fingerprint,
    pub corrected: bool,
}

/// The key of the annotation that records what a contract wrote last to an object that several contracts write.
pub(crate) fn key_of(contract: &str) -> String {
    format!("{}/{contract}", annotations::PROJECTION_OF)
}

/// The contract whose last write the annotation of this key records; `None` for any other annotation.
pub(crate) fn contract_of(key: &str) -> Option<&str> {
    key.strip_prefix(annotations::PROJECTION_OF)?.strip_prefix('/')
}

/// The labels or annotations that are copied.
pub(crate) fn carried(all: &Marks) -> impl Iterator<Item = (&str, &str)> {
    all.iter().filter(|(key, _)| annotations::is_copied(key))
}

/// Fingerprint of all that is copied. Labels and annotations that are not copied make no difference.
pub(crate) fn fingerprint(object: &Object) -> Fingerprint {
    let mut hash = Sha256::new();
    let mut part = |kind: u8, key: &str, value: &str| {
        // Lengths keep ("a", "bc") apart from ("ab", "c").
        hash.update([kind]);
        add_part(&mut hash, key);
        add_part(&mut hash, value);
    };
    for (key, text) in &object.body {
        part(b'b', key, text.get());
    }
    for (key, value) in carried(&object.meta.labels) {
        part(b'l', key, value);
    }
    for (key, value) in carried(&object.meta.annotations) {
        part(b'a', key, value);
    }
    Fingerprint::of_digest(&hash.finalize())
}

/// Fingerprint of a status; `None` if there is no status.
pub(crate) fn status_fingerprint(status: Option<&RawValue>) -> Option<Fingerprint> {
    status.map(|status| Fingerprint::of_digest(&Sha256::digest(status.get())))
}

/// True if a copy holds the whole content of its source. It may hold more.
pub(crate) fn holds(copy: &Object, source: &Object) -> bool {
    let body = source.body.iter().all(|(key, wanted)| {
        let actual = copy.body.iter().find(|(other, _)| other == key).map(|(_, text)| text);
        actual.is_some_and(|actual| actual.get() == wanted.get())
            || bindery_runtime::json::contains(&value(actual.map(|text| &**text)), &value(Some(wanted)))
    });
    let pairs = |wanted: &Marks, actual: &Marks| carried(wanted).all(|(key, value)| actual.get(key) == Some(value));
    body && pairs(&source.meta.labels, &copy.meta.labels) && pairs(&source.meta.annotations, &copy.meta.annotations)
}

fn value(text: Option<&RawValue>) -> Value {
    // Text that an API server sent as part of a larger document parses; an empty object stands for none.
    text.and_then(|text| serde_json::from_str(text.get()).ok())
        .unwrap_or_else(|| Value::Object(Map::new()))
}

// === impl Fingerprint ===

impl Fingerprint {
    fn of_digest(digest: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl LastProjection ===

impl fmt::Display for LastProjection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.fingerprint, if self.corrected { "+" } else { "" })
    }
}

impl FromStr for LastProjection {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (hex, corrected) = text.strip_suffix('+').map_or((text, false), |hex| (hex, true));
        if hex.len() != 32 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(pair).map_err(|_| ())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ())?;
        }
        let fingerprint = Fingerprint(bytes);
        Ok(Self { fingerprint, corrected })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> Object {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn the_fingerprint_covers_all_that_goes_up_and_nothing_else() {
        let base = json!({"metadata": {"name": "a", "resourceVersion": "1", "labels": {"l": "1"}}, "spec": {"x": 1}});
        let with = |path: &str, value: Value| {
            let mut changed = base.clone();
            *changed.pointer_mut(path).unwrap() = value;
            fingerprint(&object(&changed))
        };
        let print = fingerprint(&object(&base));
        assert_eq!(with("/metadata/resourceVersion", json!("2")), print);
        assert_eq!(
            with("/metadata/labels", json!({"l": "1", "kubernetes.io/x": "y"})),
            print
        );
        assert_ne!(with("/metadata/labels", json!({"l": "2"})), print);
        assert_ne!(with("/spec", json!({"x": 2})), print);
        let mut status = base.clone();
        status["status"] = json!({"y": 1});
        assert_eq!(fingerprint(&object(&status)), print);
    }

    #[test]
    fn the_trace_of_a_change_is_no_part_of_what_is_copied() {
        let source =
            json!({"metadata": {"name": "a", "resourceVersion": "1", "annotations": {"a": "b"}}, "spec": {"x": 1}});
        let mut copy = source.clone();
        copy["metadata"]["annotations"][annotations::TRACEPARENT] = json!("00-1-2-01");
        let (source, copy) = (object(&source), object(&copy));
        assert_eq!(fingerprint(&source), fingerprint(&copy));
        assert!(holds(&copy, &source) && holds(&source, &copy));
    }

    #[test]
    fn what_the_provider_added_is_no_drift() {
        let consumer =
            object(&json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "1"}, "spec": {"x": {"y": 1}}}));
        let check =
            |provider: Value, expect: bool| assert_eq!(holds(&object(&provider), &consumer), expect, "{provider}");
        check(
            json!({"metadata": {"labels": {"a": "b", "c": "d"}, "resourceVersion": "9"}, "spec": {"x": {"y": 1, "z": 2}, "w": 0}}),
            true,
        );
        check(
            json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "9"}, "spec": {"x": {"y": 2}}}),
            false,
        );
        check(
            json!({"metadata": {"resourceVersion": "9"}, "spec": {"x": {"y": 1}}}),
            false,
        );
        check(
            json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "9"}}),
            false,
        );
    }

    proptest! {
        #[test]
        fn the_memory_survives_its_annotation(bytes: [u8; 16], corrected: bool) {
            let last = LastProjection { fingerprint: Fingerprint(bytes), corrected };
            prop_assert_eq!(last.to_string().parse(), Ok(last));
        }

        /// The hash may be in capitals, which it is not when written again.
        #[test]
        fn any_annotation_value_that_is_read_is_written_the_same(text in "[0-9a-fA-F]{31,33}\\+{0,2}|.{0,40}") {
            let digits = text.strip_suffix('+').unwrap_or(&text);
            let is_hash = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let written = text.parse::<LastProjection>().map(|last| last.to_string());
            prop_assert_eq!(written.ok(), is_hash.then(|| text.to_lowercase()));
        }
    }
}
