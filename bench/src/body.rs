//! What benchmark objects say: a number that tells which change is seen, and filler up to a length.

use crate::resource::Resource;

/// The JSON of an object as its user creates it. At number 0 it is `size` bytes long, or as short as it can be.
pub(crate) fn object(resource: &Resource, namespace: &str, name: &str, seq: u64, size: usize) -> String {
    with_spec(resource, namespace, name, &spec(resource, namespace, name, seq, size))
}

/// The JSON of its spec, with sorted fields, as an API server writes it.
pub(crate) fn spec(resource: &Resource, namespace: &str, name: &str, seq: u64, size: usize) -> String {
    let bare = with_spec(resource, namespace, name, &said(0, 0)).len();
    said(seq, size.saturating_sub(bare))
}

/// The JSON of a status. At number 0 it is `size` bytes long, or as short as it can be.
pub(crate) fn status(seq: u64, size: usize) -> String {
    said(seq, size.saturating_sub(said(0, 0).len()))
}

fn said(seq: u64, filler: usize) -> String {
    format!(r#"{{"payload":"{:x<filler$}","seq":{seq}}}"#, "")
}

fn with_spec(resource: &Resource, namespace: &str, name: &str, spec: &str) -> String {
    let (api_version, kind) = (resource.api_version(), &resource.kind);
    format!(
        r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"name":"{name}","namespace":"{namespace}"}},"spec":{spec}}}"#
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[track_caller]
    fn check(size: usize, seq: u64, expect: usize) {
        let resource = "bench.example.com/v1/gadgets/Gadget".parse().unwrap();
        let text = object(&resource, "bench-0", "a-17", seq, size);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text.len(), expect, "{text}");
        assert_eq!(value["spec"]["seq"], seq);
        assert_eq!(value["metadata"]["name"], "a-17");
        let spec = spec(&resource, "bench-0", "a-17", seq, size);
        assert!(text.ends_with(&format!(r#""spec":{spec}}}"#)), "{text}");
    }

    #[test]
    fn an_object_is_as_long_as_wanted() {
        check(1024, 0, 1024);
        check(1024, 9, 1024);
        check(1024, 12, 1025);
        let least = r#"{"apiVersion":"bench.example.com/v1","kind":"Gadget","metadata":{"name":"a-17","namespace":"bench-0"},"spec":{"payload":"","seq":3}}"#;
        check(0, 3, least.len());
    }

    #[test]
    fn a_status_is_as_long_as_wanted() {
        for (size, seq, expect) in [(128, 5, 128), (128, 55, 129), (0, 5, r#"{"payload":"","seq":5}"#.len())] {
            let text = status(seq, size);
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((text.len(), &value["seq"]), (expect, &seq.into()));
        }
    }
}
