//! How an export goes: not before its objects have, and what was made for it first.

use bindery_api::{
    Condition, ConditionStatus, Conditions as _, annotations, conditions::true_condition, finalizers,
    v1alpha2::APIServiceExport,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::{remaining::Remaining, writes};

/// Holds while an export waits for its objects.
const DRAINING: &str = "Draining";

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Deletion {
    /// Others hold it.
    Nothing,
    /// Objects remain; the conditions are to be written if there are some.
    Wait(Option<Vec<Condition>>),
    Finish {
        /// Objects that remain are marked as let go.
        release: bool,
        /// Rights and requests are removed.
        take_all: bool,
        /// Removes the finalizer, as the last of all.
        patch: Value,
    },
}

/// An export that only makes room for its successor leaves everything behind.
fn is_replaced(export: &APIServiceExport) -> bool {
    is_marked(export, annotations::REPLACE)
}

fn is_marked(export: &APIServiceExport, annotation: &str) -> bool {
    export
        .annotations()
        .get(annotation)
        .is_some_and(|value| value == annotations::TRUE)
}

/// Whether the objects of an export that is being deleted are to be counted.
pub(super) fn needs_count(export: &APIServiceExport) -> bool {
    !is_replaced(export) && writes::without_finalizer(export, finalizers::EXPORT).is_some()
}

pub(super) fn plan(export: &APIServiceExport, remaining: &Remaining, now: Timestamp) -> Deletion {
    let Some(left) = writes::without_finalizer(export, finalizers::EXPORT) else {
        return Deletion::Nothing;
    };
    let forced = is_marked(export, annotations::FORCE_DELETE);
    let replaced = is_replaced(export);
    if remaining.count() > 0 && !forced && !replaced {
        let draining = Condition {
            status: ConditionStatus::True,
            reason: "ObjectsRemain".to_owned(),
            message: remaining.to_string(),
            ..true_condition(DRAINING)
        };
        let mut conditions = export.conditions().to_vec();
        let changed = conditions.set_condition(draining, now);
        return Deletion::Wait(changed.then_some(conditions));
    }
    Deletion::Finish {
        release: remaining.count() > 0,
        take_all: !replaced,
        patch: writes::finalizers_patch(export, &left),
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceExportSpec, GroupResource};
    use serde_json::json;

    use super::*;
    use crate::remaining::Object;

    fn export(marks: &[&str], finalizers: &[&str]) -> APIServiceExport {
        let mut export = APIServiceExport::new("cowboys", APIServiceExportSpec::default());
        export.metadata.uid = Some("1".to_owned());
        export.metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
        for mark in marks {
            export.annotations_mut().insert((*mark).to_owned(), "true".to_owned());
        }
        export
    }

    fn remaining(held: usize, released: usize) -> Remaining {
        let object = |index: usize| Object {
            resource: GroupResource::new("wildwest.dev", "cowboys"),
            namespace: "kube-bind-a-ranch".to_owned(),
            name: format!("cowboy-{index}"),
            released: index >= held,
        };
        Remaining {
            objects: (0..held + released).map(object).collect(),
        }
    }

    #[track_caller]
    fn check_finish(marks: &[&str], remaining: &Remaining, expect: (bool, bool)) {
        let export = export(marks, &["orphan", finalizers::EXPORT]);
        match plan(&export, remaining, Timestamp::UNIX_EPOCH) {
            Deletion::Finish {
                release,
                take_all,
                patch,
            } => {
                assert_eq!((release, take_all), expect);
                assert_eq!(patch["metadata"]["finalizers"], json!(["orphan"]));
                assert_eq!(patch["metadata"]["uid"], "1");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_export_goes_when_nothing_holds_it() {
        check_finish(&[], &remaining(0, 0), (false, true));
        check_finish(&[], &remaining(0, 2), (false, true));
        check_finish(&[annotations::FORCE_DELETE], &remaining(2, 0), (true, true));
        check_finish(&[annotations::REPLACE], &remaining(0, 0), (false, false));
        let foreign = export(&[], &["orphan"]);
        assert_eq!(
            plan(&foreign, &remaining(3, 0), Timestamp::UNIX_EPOCH),
            Deletion::Nothing
        );
    }

    #[test]
    fn objects_are_waited_for_and_said_once() {
        let mut export = export(&[], &[finalizers::EXPORT]);
        let Deletion::Wait(Some(conditions)) = plan(&export, &remaining(5, 1), Timestamp::UNIX_EPOCH) else {
            panic!("does not wait");
        };
        let draining = conditions.condition(DRAINING).unwrap();
        assert_eq!(draining.reason, "ObjectsRemain");
        assert!(
            draining
                .message
                .starts_with("5 objects remain: cowboys.wildwest.dev kube-bind-a-ranch/cowboy-0")
        );
        *export.conditions_mut() = conditions;
        assert_eq!(
            plan(&export, &remaining(5, 1), Timestamp::UNIX_EPOCH),
            Deletion::Wait(None)
        );
    }

    #[test]
    fn nothing_is_counted_for_a_successor() {
        assert!(needs_count(&export(&[], &[finalizers::EXPORT])));
        assert!(!needs_count(&export(&[annotations::REPLACE], &[finalizers::EXPORT])));
        assert!(!needs_count(&export(&[], &[])));
    }
}
