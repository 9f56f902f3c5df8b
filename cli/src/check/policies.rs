//! Judges ValidatingAdmissionPolicies: whether they exist, are bound, and deny what they have to deny.

use serde_json::{Map, Value};

use super::{
    Check,
    facts::{Fact, PolicyAnswer, PolicyFacts},
    finding::Findings,
};

/// What an API server fills in for a field: a policy that has it is not altered.
fn default_of(field: &str) -> Option<Value> {
    match field {
        "matchPolicy" => Some("Equivalent".into()),
        "namespaceSelector" | "objectSelector" => Some(Value::Object(Map::new())),
        "scope" => Some("*".into()),
        "failurePolicy" => Some("Fail".into()),
        _ => None,
    }
}

/// The checks of the policies of one program, and what puts the policies back.
pub(super) struct PolicyChecks<'a> {
    pub(super) present: Check,
    pub(super) bound: Check,
    pub(super) in_force: Check,
    pub(super) mend: &'a str,
    /// How kubectl reaches the cluster.
    pub(super) flags: &'a str,
    /// What to do instead if the program is of another release than this command.
    pub(super) other_release: Option<&'a str>,
    /// The right that a user needs for the probe.
    pub(super) probe_right: &'a str,
}

pub(super) fn judge(policies: &[PolicyFacts], checks: &PolicyChecks<'_>, found: &mut Findings) {
    for policy in policies {
        object(
            checks.present,
            ("ValidatingAdmissionPolicy", &policy.name),
            &policy.policy,
            &policy.shipped.policy,
            checks,
            found,
        );
    }
    for policy in policies {
        object(
            checks.bound,
            ("ValidatingAdmissionPolicyBinding", &policy.name),
            &policy.binding,
            &policy.shipped.binding,
            checks,
            found,
        );
    }
    for policy in policies {
        probe(policy, checks, found);
    }
}

fn object(
    check: Check,
    (kind, name): (&str, &str),
    live: &Fact<Option<Value>>,
    shipped: &Value,
    checks: &PolicyChecks<'_>,
    found: &mut Findings,
) {
    let named = format!("{kind} {name}");
    match live {
        Err(unread) => {
            let right = "get validatingadmissionpolicies and validatingadmissionpolicybindings";
            found.unread(check, &format!("read {named}"), unread, right);
        }
        Ok(None) => found.differs(
            check,
            format!("{named} does not exist"),
            checks.mend,
            checks.other_release,
        ),
        Ok(Some(live)) => match difference("spec", &shipped["spec"], &live["spec"]) {
            None => found.passed(check, format!("{named} is the one of this release")),
            Some(field) => found.differs(
                check,
                format!("{named} is not the one of this release: {field} differs"),
                // To apply it again may only add to what others put into it.
                format!(
                    "kubectl{} delete {} {name}, then {}",
                    checks.flags,
                    kind.to_lowercase(),
                    checks.mend
                ),
                checks.other_release,
            ),
        },
    }
}

fn probe(policy: &PolicyFacts, checks: &PolicyChecks<'_>, found: &mut Findings) {
    let (check, name) = (checks.in_force, &policy.name);
    let exists = |object: &Fact<Option<Value>>| !matches!(object, Ok(None));
    if !exists(&policy.policy) || !exists(&policy.binding) {
        return found.skip(check, format!("not tried: policy {name} or its binding does not exist"));
    }
    match &policy.probe {
        None => found.skip(
            check,
            format!("policy {name} is not tried: there is no contract to try it for"),
        ),
        Some(Err(unread)) => found.unread(check, &format!("try policy {name}"), unread, checks.probe_right),
        Some(Ok(PolicyAnswer::Denied)) => found.passed(check, format!("policy {name} denies what it has to deny")),
        Some(Ok(PolicyAnswer::Admitted)) => found.fail(
            check,
            format!("policy {name} did not deny a request that it has to deny"),
            format!(
                "an API server takes up to some seconds to use a policy; if this stays so, {}",
                checks.mend
            ),
        ),
        Some(Ok(PolicyAnswer::Untried(why))) => found.skip(check, format!("policy {name} is not tried: {why}")),
    }
}

/// The path of the first field in which a live object differs from the shipped one, defaults of the API server apart.
fn difference(path: &str, shipped: &Value, live: &Value) -> Option<String> {
    match (shipped, live) {
        (Value::Object(shipped), Value::Object(live)) => of_objects(path, shipped, live),
        (Value::Array(shipped), Value::Array(live)) if shipped.len() == live.len() => {
            let mut items = shipped.iter().zip(live).enumerate();
            items.find_map(|(index, (shipped, live))| difference(&format!("{path}[{index}]"), shipped, live))
        }
        _ if shipped == live => None,
        _ => Some(path.to_owned()),
    }
}

fn of_objects(path: &str, shipped: &Map<String, Value>, live: &Map<String, Value>) -> Option<String> {
    let known = shipped.iter().find_map(|(field, shipped)| {
        let path = format!("{path}.{field}");
        match live.get(field) {
            Some(live) => difference(&path, shipped, live),
            None if is_default(field, shipped) => None,
            None => Some(path),
        }
    });
    known.or_else(|| {
        let mut others = live.iter().filter(|(field, _)| !shipped.contains_key(*field));
        let other = others.find(|(field, value)| !is_default(field, value))?;
        Some(format!("{path}.{}", other.0))
    })
}

fn is_default(field: &str, value: &Value) -> bool {
    default_of(field).is_some_and(|default| default == *value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(live: &Value, expect: Option<&str>) {
        let shipped =
            json!({"failurePolicy": "Fail", "rules": [{"groups": ["a"]}], "validations": [{"expression": "x"}]});
        assert_eq!(difference("spec", &shipped, live).as_deref(), expect, "{live}");
    }

    #[test]
    fn only_what_an_api_server_fills_in_may_differ() {
        let live = |patch: Value| {
            let mut live = json!({"failurePolicy": "Fail", "rules": [{"groups": ["a"], "scope": "*"}], "validations": [{"expression": "x"}]});
            for (field, value) in patch.as_object().unwrap() {
                live[field] = value.clone();
            }
            live
        };
        check(&live(json!({})), None);
        check(&live(json!({"objectSelector": {}})), None);
        check(&live(json!({"failurePolicy": "Ignore"})), Some("spec.failurePolicy"));
        check(&live(json!({"rules": []})), Some("spec.rules"));
        check(
            &live(json!({"rules": [{"groups": ["b"]}]})),
            Some("spec.rules[0].groups[0]"),
        );
        check(
            &live(json!({"rules": [{"groups": ["a"], "scope": "Cluster"}]})),
            Some("spec.rules[0].scope"),
        );
        check(
            &live(json!({"excludeResourceRules": [{}]})),
            Some("spec.excludeResourceRules"),
        );
        check(
            &live(json!({"objectSelector": {"matchLabels": {"a": "b"}}})),
            Some("spec.objectSelector"),
        );
        check(&Value::Null, Some("spec"));
    }
}
