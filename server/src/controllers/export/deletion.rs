//! Plans the end of an export. It never waits for the export's objects: calls refuse to delete an export that has objects,
//! and a konnector stops as soon as it sees the deletion, so that the objects would never go.

use bindery_api::{annotations, finalizers, meta, v1alpha2::APIServiceExport};

use crate::writes::{self, Write};

/// What is left to do for an export that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Deletion {
    /// Whether rights, schemas and requests of the export go, and its objects are released. An export that only makes room
    /// for its successor leaves them all to that.
    pub(super) take_all: bool,
    /// Removes the finalizer, after everything else.
    pub(super) remove_finalizer: Write,
}

/// What is left to do; `None` if the export no longer has the server's finalizer.
pub(super) fn plan(export: &APIServiceExport) -> Option<Deletion> {
    let remaining = writes::without_finalizer(export, finalizers::EXPORT)?;
    Some(Deletion {
        take_all: !is_replaced(export),
        remove_finalizer: Write::finalizers("the export left nothing behind", export, &remaining),
    })
}

/// Whether an export makes room for its successor, which takes over all that was made for it.
pub(super) fn is_replaced(export: &APIServiceExport) -> bool {
    meta::is_annotated(&export.metadata, annotations::REPLACE)
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceExportSpec;
    use kube::ResourceExt as _;
    use serde_json::json;

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
        if let Some(Deletion { remove_finalizer, .. }) = deletion {
            let patch = remove_finalizer.patch_of::<APIServiceExport>().unwrap();
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
