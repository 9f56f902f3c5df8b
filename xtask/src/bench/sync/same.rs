//! Checks that contestants write the same objects: one that left out work would look fast.

use anyhow::{Result, ensure};
use bindery_api::{annotations, names::provider_namespace};
use kube::{Api, ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use super::{api::BenchApi, stage::Stage};

/// Content of one object and its copy, without the fields that differ from run to run, such as UIDs and times.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Written {
    object: Value,
    copy: Value,
}

impl Stage {
    /// Reads an object of the first namespace, and its copy.
    pub(super) async fn written(&self, name: &str) -> Result<Written> {
        let namespace = "bench-0";
        let place = provider_namespace(&self.contract, namespace);
        let resource = BenchApi::Gadgets.resource();
        let ours = Api::<DynamicObject>::namespaced_with(self.consumer.plane.client(), namespace, &resource);
        let copies = Api::<DynamicObject>::namespaced_with(self.provider.plane.client(), &place, &resource);
        let (object, copy) = tokio::try_join!(ours.get(name), copies.get(name))?;
        Written::of(&object, &copy)
    }
}

impl Written {
    fn of(object: &DynamicObject, copy: &DynamicObject) -> Result<Self> {
        let uids = [object.uid(), copy.uid()].map(Option::unwrap_or_default);
        let said = |object: &DynamicObject| {
            let mut value = serde_json::to_value(object)?;
            for server_made in ["uid", "resourceVersion", "creationTimestamp"] {
                value["metadata"][server_made] = Value::Null;
            }
            if let Some(managers) = value["metadata"]["managedFields"].as_array_mut() {
                for fields in managers.iter_mut() {
                    fields["time"] = Value::Null;
                }
                // They are in the order of their times, to the second.
                managers.sort_by_key(Value::to_string);
            }
            // One is made of UIDs too, and the other names the holder.
            for stood_for in [annotations::PROJECTION_HASH, annotations::SOURCE_GENERATION] {
                if let Some(mark) = value["metadata"]["annotations"].get_mut(stood_for) {
                    *mark = mark.as_str().map(str::len).into();
                }
            }
            let text = value.to_string();
            let text = text.replace(&uids[0], "").replace(&uids[1], "");
            serde_json::from_str::<Value>(&text)
        };
        Ok(Self {
            object: said(object)?,
            copy: said(copy)?,
        })
    }

    /// Fails if two contestants did not write the same in a phase.
    pub(super) fn check_same(by_contestant: &[Vec<Self>]) -> Result<()> {
        for pair in by_contestant.windows(2) {
            for (one, other) in pair[0].iter().zip(&pair[1]) {
                ensure!(
                    one == other,
                    "contestants write different things:\n{:#}\n{:#}\nand\n{:#}\n{:#}",
                    one.object,
                    one.copy,
                    other.object,
                    other.copy
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(uid: &str, of: &str, hash: &str, seq: u32) -> DynamicObject {
        let by = |manager| json!({"manager": manager, "time": format!("2026-01-01T00:00:0{}Z", uid.len())});
        let (a, b) = (by("a"), by("b"));
        let value = json!({
            "apiVersion": "bench.bindery.dev/v1", "kind": "Gadget",
            "metadata": {
                "name": "item-0", "uid": uid, "resourceVersion": uid,
                "annotations": {annotations::CONSUMER_UID: of, annotations::PROJECTION_HASH: hash},
                // Whoever wrote in an earlier second comes first.
                "managedFields": if uid.starts_with("u2") { json!([b, a]) } else { json!([a, b]) },
            },
            "spec": {"seq": seq},
        });
        serde_json::from_value(value).unwrap()
    }

    fn written(uid: &str, hash: &str, seq: u32) -> Written {
        let other = format!("{uid}-copy");
        Written::of(&object(uid, "", "", seq), &object(&other, uid, hash, seq)).unwrap()
    }

    #[test]
    fn all_counts_but_what_differs_each_time() {
        let one = written("u1", "abc", 1);
        let check = |other| Written::check_same(&[vec![one.clone()], vec![other]]);
        check(written("u2", "xyz", 1)).unwrap();
        for other in [written("u2", "xyz", 2), written("u2", "xy", 1)] {
            let failed = check(other).unwrap_err().to_string();
            assert!(failed.contains("different"), "{failed}");
        }
    }
}
