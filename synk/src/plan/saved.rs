//! Saves a plan to a file, with everything that is needed to see whether the plan still holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Allowed, Plan, PlanInput, Prune};
use crate::{
    input::{Manifest, Origin},
    object::ObjectRef,
    wire::SetName,
};

const API_VERSION: &str = "synk.cloudrobotics.com/v1";
const KIND: &str = "Plan";

/// A saved plan, which is carried out only if it still holds. It contains the manifests, Secrets included.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    api_version: String,
    kind: String,
    /// UID of the namespace `kube-system`, which identifies the cluster.
    pub cluster: String,
    /// The set that the plan is for.
    pub set: SetName,
    /// The namespace that the set is applied with.
    pub namespace: String,
    /// The guards that the user lifted.
    pub allowed: Allowed,
    /// The highest version that existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<u64>,
    steps: Vec<SavedStep>,
    #[serde(default)]
    prune: Vec<SavedPrune>,
    #[serde(default)]
    released: Vec<SavedPrune>,
    manifests: Vec<SavedManifest>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct SavedStep {
    #[serde(flatten)]
    object: ObjectRef,
    decision: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    changes: String,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct SavedPrune {
    #[serde(flatten)]
    object: ObjectRef,
    uid: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct SavedManifest {
    origin: Origin,
    body: Map<String, Value>,
}

// === impl Saved ===

impl fmt::Debug for Saved {
    /// Prints no manifest, because it may be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.len();
        f.debug_struct("Saved")
            .field("set", &self.set)
            .field("steps", &steps)
            .finish_non_exhaustive()
    }
}

impl Saved {
    /// Makes a saved plan for this cluster.
    pub fn of(plan: &Plan, input: &PlanInput<'_>, cluster: &str) -> Self {
        let manifests = input.manifests.iter().map(|manifest| SavedManifest {
            origin: manifest.origin.clone(),
            body: manifest.body.clone(),
        });
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            cluster: cluster.to_owned(),
            set: plan.set.clone(),
            namespace: plan.namespace.clone(),
            allowed: input.allowed.clone(),
            current: plan.current,
            steps: steps(plan),
            prune: pruned(&plan.prune).into_iter().collect(),
            released: pruned(&plan.released).into_iter().collect(),
            manifests: manifests.collect(),
        }
    }

    /// Returns the content of the file. Only its owner may be able to read the file.
    pub fn text(&self) -> String {
        format!("{:#}\n", json!(self))
    }

    /// Parses the content of the file. The error says what is wrong without repeating the content.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let value: Value = serde_json::from_str(text).map_err(|_| "it is no JSON: save the plan again")?;
        if value["apiVersion"] != API_VERSION || value["kind"] != KIND {
            return Err("it is no plan of this version of synk: save it with `synk plan --out`");
        }
        // The parser's error may repeat the content of a Secret.
        let saved: Self = serde_json::from_value(value).map_err(|_| "it is not whole: save the plan again")?;
        let is_named = |manifest: &SavedManifest| ObjectRef::of(&Value::Object(manifest.body.clone())).is_some();
        if saved.manifests.iter().all(is_named) {
            Ok(saved)
        } else {
            Err("one of its manifests names no object: save the plan again")
        }
    }

    /// Returns the manifests that the plan was made of.
    pub fn manifests(&self) -> Vec<Manifest> {
        let manifests = self.manifests.iter().filter_map(|saved| {
            Some(Manifest {
                object: ObjectRef::of(&Value::Object(saved.body.clone()))?,
                body: saved.body.clone(),
                origin: saved.origin.clone(),
            })
        });
        manifests.collect()
    }

    /// Lists in sentences how a new plan from the same manifests differs. The saved plan holds if the list is empty.
    pub fn differences(&self, plan: &Plan, cluster: &str) -> Vec<String> {
        let mut all = Vec::new();
        if self.cluster != cluster {
            all.push("it was made for another cluster".to_owned());
        }
        if (&self.set, self.namespace.as_str()) != (&plan.set, plan.namespace.as_str()) {
            let (set, namespace) = (&self.set, &self.namespace);
            all.push(format!("it was made for set {set} in namespace {namespace}"));
        }
        if self.current != plan.current {
            let name = |number: Option<u64>| {
                number.map_or_else(
                    || "no version".to_owned(),
                    |number| self.set.version(number).to_string(),
                )
            };
            all.push(format!(
                "there was {}, and there is {} now",
                name(self.current),
                name(plan.current)
            ));
        }
        all.extend(self.differing_steps(plan));
        let fates = [
            (&self.prune, &plan.prune, "to be deleted"),
            (&self.released, &plan.released, "to leave the set and stay"),
        ];
        for (was, is, fate) in fates {
            let (was, is): (BTreeSet<_>, _) = (was.iter().cloned().collect(), pruned(is));
            let gone = was.difference(&is);
            all.extend(gone.map(|prune| format!("{} is not {fate} any more", prune.object)));
            all.extend(
                is.difference(&was)
                    .map(|prune| format!("{} is {fate} now", prune.object)),
            );
        }
        all
    }

    fn differing_steps(&self, plan: &Plan) -> Vec<String> {
        let now = steps(plan);
        let known: BTreeMap<_, _> = self.steps.iter().map(|step| (&step.object, step)).collect();
        let found: BTreeSet<_> = now.iter().map(|step| &step.object).collect();
        let gone = known
            .keys()
            .filter(|object| !found.contains(*object))
            .map(|object| format!("{object} is not in it any more"));
        let differing = now.iter().filter_map(|now| {
            let object = &now.object;
            let Some(was) = known.get(object) else {
                return Some(format!("{object} was not in it"));
            };
            if was.decision != now.decision {
                Some(format!(
                    "{object}: it was {}, and is {} now",
                    was.decision, now.decision
                ))
            } else if was.uid != now.uid {
                Some(format!("{object}: another object has its name now"))
            } else {
                (was.changes != now.changes).then(|| format!("{object}: other fields differ now"))
            }
        });
        gone.chain(differing).collect()
    }
}

fn steps(plan: &Plan) -> Vec<SavedStep> {
    let steps = plan.steps.iter().map(|step| SavedStep {
        object: step.object.clone(),
        decision: step.decision.name().to_owned(),
        uid: step.uid.clone(),
        changes: step.fingerprint.clone(),
    });
    steps.collect()
}

fn pruned(all: &[Prune]) -> BTreeSet<SavedPrune> {
    let pruned = all.iter().map(|prune| SavedPrune {
        object: prune.object.clone(),
        uid: prune.uid.clone(),
    });
    pruned.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{
        Decision,
        testing::{World, config_map, kinds, set},
    };

    fn saved(world: &World, plan: &Plan) -> Saved {
        let (set, kinds) = (set(), kinds());
        let saved = Saved::of(plan, &world.input(&set, &kinds), "c");
        Saved::parse(&saved.text()).unwrap()
    }

    fn world() -> World {
        let mut world = World::applied(&[config_map("a", "1"), config_map("b", "1"), config_map("c", "1")]);
        world.manifests = vec![config_map("a", "1"), config_map("b", "2"), config_map("d", "1")];
        world
    }

    #[track_caller]
    fn check(saved: &Saved, plan: &Plan, change: impl FnOnce(&mut Plan), expect: &str) {
        let mut plan = plan.clone();
        change(&mut plan);
        assert_eq!(saved.differences(&plan, "c"), [expect]);
    }

    #[test]
    fn what_is_saved_holds_until_something_differs() {
        let world = world();
        let plan = world.plan();
        let saved = saved(&world, &plan);
        assert_eq!(saved.manifests(), world.manifests);
        assert_eq!(saved.differences(&plan, "c"), Vec::<String>::new());

        let d = "configmap/d in namespace shop";
        check(
            &saved,
            &plan,
            |plan| plan.current = Some(2),
            "there was web.v1, and there is web.v2 now",
        );
        check(
            &saved,
            &plan,
            |plan| plan.current = None,
            "there was web.v1, and there is no version now",
        );
        check(
            &saved,
            &plan,
            |plan| plan.steps[2].decision = Decision::Change,
            &format!("{d}: it was create, and is change now"),
        );
        check(
            &saved,
            &plan,
            |plan| plan.steps[2].uid = Some("x".to_owned()),
            &format!("{d}: another object has its name now"),
        );
        check(
            &saved,
            &plan,
            |plan| plan.steps[2].fingerprint.push('x'),
            &format!("{d}: other fields differ now"),
        );
        check(
            &saved,
            &plan,
            |plan| drop(plan.steps.pop()),
            &format!("{d} is not in it any more"),
        );
        check(
            &saved,
            &plan,
            |plan| plan.prune.clear(),
            "configmap/c in namespace shop is not to be deleted any more",
        );
        check(
            &saved,
            &plan,
            |plan| plan.released = plan.prune.clone(),
            "configmap/c in namespace shop is to leave the set and stay now",
        );
        assert_eq!(saved.differences(&plan, "other"), ["it was made for another cluster"]);
    }

    #[test]
    fn a_plan_does_not_hold_once_the_cluster_has_changed() {
        let mut world = world();
        let saved = saved(&world, &world.plan());
        world.live(1)["data"]["key"] = json!("3");
        assert_eq!(
            saved.differences(&world.plan(), "c"),
            ["configmap/b in namespace shop: other fields differ now"]
        );
    }

    #[test]
    fn a_file_that_is_no_plan_is_told_and_not_repeated() {
        #[track_caller]
        fn check(text: &str, expect: &str) {
            let error = Saved::parse(text).err().unwrap();
            assert!(error.contains(expect) && !error.contains("hunter2"), "{error}");
        }
        check("hunter2", "it is no JSON");
        check("{\"kind\": \"Plan\"}", "no plan of this version");
        let world = world();
        let text = saved(&world, &world.plan()).text();
        check(&text.replace("\"steps\"", "\"hunter2\""), "it is not whole");
        check(
            &text.replace("\"ConfigMap\",\n        \"metadata\"", "\"\",\n        \"metadata\""),
            "names no object",
        );
    }
}
