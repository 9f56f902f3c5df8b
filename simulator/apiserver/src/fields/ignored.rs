//! Fields that a write does not change, whatever it says, or that no manager owns.

use std::sync::LazyLock;

use super::{element::Element, set::Set};
use crate::kind::KindInfo;

static NOTHING: LazyLock<Set> = LazyLock::new(Set::default);
static STATUS: LazyLock<Set> = LazyLock::new(|| set(&[&["status"]]));
static SPEC: LazyLock<Set> = LazyLock::new(|| set(&[&["spec"]]));
static SPEC_AND_METADATA: LazyLock<Set> = LazyLock::new(|| set(&[&["spec"], &["metadata"]]));

/// Fields of every object that no manager owns.
pub(super) static UNOWNED: LazyLock<Set> = LazyLock::new(|| {
    set(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

fn set(paths: &[&[&str]]) -> Set {
    let mut set = Set::default();
    for path in paths {
        let path: Vec<_> = path.iter().map(|name| Element::Field((*name).to_owned())).collect();
        set.insert(&path);
    }
    set
}

/// What the API server resets in a write to this subresource.
pub(super) fn ignored(kind: &KindInfo, subresource: &str) -> &'static Set {
    match (subresource, kind.group.as_str()) {
        ("status", "apiextensions.k8s.io" | "admissionregistration.k8s.io") => &SPEC_AND_METADATA,
        ("status", _) => &SPEC,
        ("finalize", _) => &STATUS,
        ("", _) if kind.status => &STATUS,
        _ => &NOTHING,
    }
}
