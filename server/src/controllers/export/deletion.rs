//! How an export goes. Whoever deletes it lets its objects go: calls refuse to delete one that has objects left, and a
//! konnector stops at the first sight of the deletion, so that waiting for its objects would never end.

use bindery_api::{annotations, finalizers, meta, v1alpha2::APIServiceExport};
use serde_json::Value;

use crate::writes;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Deletion {
    /// Rights, objects that are left and requests are seen to; not for one that only makes room for its successor.
    pub(super) take_all: bool,
    /// Removes the finalizer, as the last of all.
    pub(super) patch: Value,
}

/// What is left to do, unless only others hold the export.
pub(super) fn plan(export: &APIServiceExport) -> Option<Deletion> {
    let left = writes::without_finalizer(export, finalizers::EXPORT)?;
    Some(Deletion {
        take_all: !is_replaced(export),
        patch: writes::finalizers_patch(export, &left),
    })
}

/// Whether an export makes room for its successor, which takes over everything.
pub(super) fn is_replaced(export: &APIServiceExport) -> bool {
    meta::is_annotated(&export.metadata, annotations::REPLACE)
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceExportSpec;
    use serde_json::json;

    use kube::ResourceExt as _;

    use super::*;

    #[track_caller]
    fn check(mark: Option<&str>, finalizers: &[&str], expect: Option<bool>) {
        let mut export = APIServiceExport::new("cowboys", APIServiceExportSpec::default());
        export.metadata.uid = Some("1".to_owned());
        export.metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
        if let Some(value) = mark {
            let marks = export.annotations_mut();
            marks.insert(annotations::REPLACE.to_owned(), value.to_owned());
        }
        let deletion = plan(&export);
        assert_eq!(deletion.as_ref().map(|deletion| deletion.take_all), expect);
        if let Some(Deletion { patch, .. }) = deletion {
            assert_eq!(patch["metadata"]["finalizers"], json!(["orphan"]));
            assert_eq!(patch["metadata"]["uid"], "1");
        }
    }

    #[test]
    fn an_export_takes_along_what_was_made_for_it_unless_it_is_replaced() {
        let ours = ["orphan", finalizers::EXPORT];
        check(None, &ours, Some(true));
        check(Some("true"), &ours, Some(false));
        check(Some("false"), &ours, Some(true));
        check(None, &["orphan"], None);
    }
}
