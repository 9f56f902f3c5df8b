//! The manifests of a set, and the requests that a bare client makes of them.

use std::{fmt::Write as _, ops::Range};

use serde_json::{Value, json};

use super::{Args, Step};

/// Label of all objects, as key and value.
pub(super) const LABEL: (&str, &str) = ("app", "bench");

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The ResourceSet that owns the objects that the bare client writes.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) namespace: String,
    pub(super) version: String,
    pub(super) uid: String,
}

/// The manifests that synk and kubectl apply, as YAML.
pub(super) fn manifests(args: &Args, step: Step) -> String {
    documents(args, step, 0..step.left(args))
}

/// The manifests that a step leaves out of [`manifests`], for `kubectl delete`.
pub(super) fn gone(args: &Args, step: Step) -> String {
    documents(args, step, step.left(args)..args.objects)
}

fn documents(args: &Args, step: Step, which: Range<u32>) -> String {
    let (key, value) = LABEL;
    let document = |index| {
        let content = content(args, step, index);
        let content = content.trim_end().replace('\n', "\n    ");
        let name = name(index);
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels:\n    {key}: {value}\ndata:\n  content: |\n    {content}\n"
        )
    };
    which.map(document).collect()
}

/// The requests that a bare client sends, one a line: the writes that synk makes for [`manifests`], or one list if the step
/// writes nothing.
pub(super) fn requests(args: &Args, step: Step, owner: &Owner) -> String {
    let collection = format!("/api/v1/namespaces/{}/configmaps", owner.namespace);
    if step == Step::Unchanged {
        return format!("GET {collection}\n");
    }
    let put = |index| {
        let body = body(args, step, owner, index);
        format!(
            "PATCH {collection}/{}?fieldManager=synk&force=true {body}\n",
            name(index)
        )
    };
    let left = step.left(args);
    let puts: String = (0..left).map(put).collect();
    let delete = |index| format!("DELETE {collection}/{}\n", name(index));
    let deletes: Vec<_> = (left..args.objects).map(delete).collect();
    if deletes.is_empty() {
        puts
    } else {
        format!("{puts}\n{}", deletes.concat())
    }
}

fn body(args: &Args, step: Step, owner: &Owner, index: u32) -> Value {
    let (key, value) = LABEL;
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name(index),
            "namespace": owner.namespace,
            "labels": {key: value},
            "ownerReferences": [{
                "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet", "name": owner.version,
                "uid": owner.uid, "blockOwnerDeletion": true,
            }],
        },
        "data": {"content": content(args, step, index)},
    });
    let applied = format!("{object}\n");
    object["metadata"]["annotations"] = json!({LAST_APPLIED: applied});
    object
}

fn name(index: u32) -> String {
    format!("item-{index:05}")
}

/// Lines of text, which differ from object to object.
fn content(args: &Args, step: Step, index: u32) -> String {
    let is_changed = index == 0 && matches!(step, Step::OneChanged | Step::HalfPruned);
    let mut text = format!("changed: {is_changed}\n");
    let mut line = 0_u64;
    while text.len() < args.size {
        line += 1;
        // Some digits that do not repeat, so that nothing compresses better than what people write.
        let digits = (u64::from(index) << 20 | line).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let _ = writeln!(text, "setting-{line}: {digits:016x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGS: Args = Args {
        objects: 5,
        size: 100,
        concurrency: 1,
        repeat: 1,
    };

    #[test]
    fn each_step_differs_from_the_one_before_as_its_name_says() {
        let of = |step| manifests(&ARGS, step);
        assert_eq!(of(Step::First), of(Step::Unchanged));
        let (before, after) = (of(Step::First), of(Step::OneChanged));
        let differ = before
            .lines()
            .zip(after.lines())
            .filter(|(before, after)| before != after);
        assert_eq!(
            differ.collect::<Vec<_>>(),
            [("    changed: false", "    changed: true")]
        );
        assert_eq!(of(Step::HalfPruned).matches("kind: ConfigMap").count(), 3);
        assert_eq!(gone(&ARGS, Step::HalfPruned).matches("kind: ConfigMap").count(), 2);
    }

    #[test]
    fn the_floor_is_the_writes_alone() {
        let owner = Owner {
            namespace: "bare-1".to_owned(),
            version: "bare-1.v1".to_owned(),
            uid: "u".to_owned(),
        };
        let count = |step| {
            let requests = requests(&ARGS, step, &owner);
            let of = |method| requests.lines().filter(|line| line.starts_with(method)).count();
            (of("GET "), of("PATCH "), of("DELETE "))
        };
        assert_eq!(count(Step::First), (0, 5, 0));
        assert_eq!(count(Step::Unchanged), (1, 0, 0));
        assert_eq!(count(Step::OneChanged), (0, 5, 0));
        assert_eq!(count(Step::HalfPruned), (0, 3, 2));
    }
}
