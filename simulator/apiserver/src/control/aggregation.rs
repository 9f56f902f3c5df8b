//! The controller of aggregated ClusterRoles.

use jiff::Timestamp;
use serde_json::Value;

use super::Control;
use crate::{ApiServer, Chore, ObjectKey, handle::Call, selector::selects, store::Store};

const GROUP: &str = "rbac.authorization.k8s.io";
const RESOURCE: &str = "clusterroles";

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GROUP, RESOURCE, "", name)
}

/// The rules that an aggregated role should have; `None` if the role is not aggregated.
fn rules(store: &Store, name: &str, role: &Value) -> Option<Value> {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors")?.as_array()?;
    let mut rules: Vec<&Value> = Vec::new();
    for selector in selectors {
        for (key, stored) in store.of(GROUP, RESOURCE, None) {
            if key.name == name || !selects(selector, &stored.value) {
                continue;
            }
            for rule in stored.value["rules"].as_array().into_iter().flatten() {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    Some(if rules.is_empty() {
        Value::Null
    } else {
        rules.into_iter().cloned().collect()
    })
}

impl Control {
    /// Decides anew which aggregated roles have not the rules that they should have.
    pub(super) fn enqueue_aggregations(&mut self, store: &Store) {
        for (key, stored) in store.of(GROUP, RESOURCE, None) {
            if stored.value.get("aggregationRule").is_some() {
                let is_due = rules(store, &key.name, &stored.value).is_some_and(|rules| rules != stored.value["rules"]);
                self.set(Chore::Aggregate(key.name.clone()), is_due);
            }
        }
        let is_absent = |name: &str| {
            let role = store.get(&key(name));
            role.is_none_or(|role| role.value.get("aggregationRule").is_none())
        };
        self.chores
            .retain(|chore| !matches!(chore, Chore::Aggregate(name) if is_absent(name)));
    }
}

pub(super) fn aggregate(server: &mut ApiServer, now: Timestamp, name: &str) {
    let (Some(endpoint), Some(stored)) = (
        server.endpoints.get(GROUP, "v1", RESOURCE).cloned(),
        server.store.get(&key(name)).cloned(),
    ) else {
        return;
    };
    let Some(rules) = rules(&server.store, name, &stored.value) else {
        return;
    };
    let mut role = Value::clone(&stored.value);
    role["rules"] = rules;
    let call = Call::of_controller("clusterrole-aggregation-controller", now, &endpoint, "", name);
    // The chore stays due, and is tried again.
    let _ = server.replace(&call, &endpoint, &stored, role, false, true);
}
