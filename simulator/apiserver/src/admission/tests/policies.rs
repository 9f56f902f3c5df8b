//! The shipped policies: each line of the tables in `e2e/tests/policy`, most of which suite `policy` sends to a real API server, and for
//! each part of an expression a mutant that a line of the tables notices.

use std::{collections::BTreeSet, ops::Range};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{POLICIES, Write, admit, judge_by, user};
use crate::auth::{
    RBAC,
    tests::{Store, binding, role},
};

const SERVER_ACCOUNT: Policy = Policy {
    name: "kube-bind-server",
    file: include_str!("../../../../../deploy/server/account-policy.yaml"),
    table: include_str!("../../../../../e2e/tests/policy/server.yaml"),
    author: "system:serviceaccount:kube-bind:bindery-server",
    equivalents: &[],
};
const KONNECTOR_ACCOUNT: Policy = Policy {
    name: "kube-bind-konnector-account",
    file: include_str!("../../../../../deploy/konnector/account-policy.yaml"),
    table: include_str!("../../../../../e2e/tests/policy/konnector.yaml"),
    author: KONNECTOR,
    equivalents: &[],
};
const BINDER: Policy = Policy {
    name: "kube-bind-binder",
    file: include_str!("../../../../../deploy/server/policy.yaml"),
    table: include_str!("../../../../../e2e/tests/policy/binder.yaml"),
    author: "system:serviceaccount:kube-bind-a:kube-binder",
    equivalents: &[
        (
            "matchConditions is-not-at-home: all -> true",
            "The condition saves the evaluation of what every validation admits.",
        ),
        (
            "matchConditions is-not-at-home: request.namespace + '-' -> request.namespace",
            "The condition saves the evaluation of what every validation admits.",
        ),
        (
            "matchConditions is-not-at-home: has(object.metadata.finalizers) -> true",
            "The condition saves the evaluation of what every validation admits.",
        ),
        (
            "variables name: has(oldObject.metadata.name) ? oldObject.metadata.name : '' -> oldObject.metadata.name",
            "What is deleted was stored under a name.",
        ),
        (
            "validations 3: '', -> ",
            "A request for no subresource has no such field, rather than an empty one.",
        ),
        (
            "validations 6: request.operation == 'UPDATE' -> true",
            "Before a CREATE there is no mark, and after a DELETE there is none, which the operand before admits.",
        ),
    ],
};
const REQUESTS: Policy = Policy {
    name: "kube-bind-requests",
    file: include_str!("../../../../../deploy/server/requests-policy.yaml"),
    table: include_str!("../../../../../e2e/tests/policy/requests.yaml"),
    author: "ann",
    equivalents: &[(
        "validations 8: variables.template == '' -> false",
        "An earlier validation refuses what names no template, and the first refusal is the answer.",
    )],
};
const KONNECTOR_DEFINITIONS: Policy = Policy {
    name: "kube-bind-konnector",
    file: include_str!("../../../../../deploy/konnector/policy.yaml"),
    table: include_str!("../../../../../e2e/tests/policy/konnector-definitions.yaml"),
    author: KONNECTOR,
    equivalents: &[(
        "variables offered: has(object.metadata.ownerReferences) -> true",
        "An earlier validation refuses an update that leaves no owner, and the first refusal is the answer.",
    )],
};
const KONNECTOR_CLAIMS: Policy = Policy {
    name: "kube-bind-konnector-claims",
    file: include_str!("../../../../../deploy/konnector/policy.yaml"),
    table: include_str!("../../../../../e2e/tests/policy/konnector-claims.yaml"),
    author: KONNECTOR,
    equivalents: &[(
        "variables token: request.resource.resource == 'secrets' -> true",
        "Of the resources that the policy is about, only Secrets have a field type.",
    )],
};
const KONNECTOR: &str = "system:serviceaccount:kube-bind:konnector";

/// A shipped policy, and the table of what it admits.
struct Policy {
    name: &'static str,
    /// The file that has the policy, its binding, and possibly other policies.
    file: &'static str,
    table: &'static str,
    /// Who writes, if a line does not say.
    author: &'static str,
    /// Mutants that no request shows, each with the reason.
    equivalents: &'static [(&'static str, &'static str)],
}

/// A line of a table.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "do")]
    operation: String,
    what: String,
    #[serde(rename = "in", default)]
    namespace: String,
    object: Option<Value>,
    old: Option<Value>,
    /// Who writes, if it is not the author of the table.
    by: Option<String>,
    /// Words of the refusal.
    refused: Option<String>,
}

/// An expression with one part changed.
#[derive(Debug)]
struct Mutant {
    /// Where the expression is in the policy.
    pointer: String,
    expression: String,
    /// The expression by its name or number, the part that is changed, and what takes its place.
    change: String,
}

/// A cluster with these policies and bindings, and with the namespaces and rights that the tables name.
fn cluster(documents: &[Value]) -> Store {
    let mut store = Store::default();
    for document in documents {
        let resource = match document["kind"].as_str() {
            Some("ValidatingAdmissionPolicy") => "validatingadmissionpolicies",
            _ => "validatingadmissionpolicybindings",
        };
        store.put(POLICIES, resource, document.clone());
    }
    for (name, labels) in [
        ("kube-bind-a", json!({"kube-bind.io/contract": "kube-bind-a"})),
        ("kube-bind-ab", json!({"kube-bind.io/contract": "kube-bind-ab"})),
        ("kube-bind-a-ranch", json!({"kube-bind.io/contract": "kube-bind-a"})),
        ("misled", json!({"kube-bind.io/contract": "kube-bind-a"})),
        ("wild-west", json!({"kube-bind.io/shared": "true"})),
        ("not-shared", json!({"kube-bind.io/shared": "false"})),
        ("old-west", json!({"kube-bind.io/component": "shared-namespace"})),
        ("componented", json!({"kube-bind.io/component": "other"})),
        ("kube-bind", Value::Null),
        ("kube-system", Value::Null),
        ("default", json!({"a": "b"})),
        ("gang", Value::Null),
        ("ranch", Value::Null),
    ] {
        let mut namespace = json!({"metadata": {"name": name}});
        if !labels.is_null() {
            namespace["metadata"]["labels"] = labels;
        }
        store.put("", "namespaces", namespace);
    }
    for (index, (user, namespace, rule)) in rights().into_iter().enumerate() {
        let name = format!("right-{index}");
        let (kind, roles, bindings) = match namespace {
            "" => ("ClusterRole", "clusterroles", "clusterrolebindings"),
            _ => ("Role", "roles", "rolebindings"),
        };
        store.put(RBAC, roles, role(namespace, &name, json!([rule])));
        let subject = json!({"kind": "User", "name": user});
        store.put(RBAC, bindings, binding(namespace, &name, (kind, &name), subject));
    }
    store
}

/// The rights that policies ask for: user, namespace or none, and rule.
fn rights() -> Vec<(&'static str, &'static str, Value)> {
    let rule = |verb: &str, group: &str, resource: &str, name: Option<&str>| {
        let names: Vec<_> = name.into_iter().collect();
        json!({"verbs": [verb], "apiGroups": [group], "resources": [resource], "resourceNames": names})
    };
    let bind = |name| rule("bind", "kube-bind.io", "apiserviceexporttemplates", name);
    let impersonate = |resource, name| rule("impersonate", "", resource, name);
    vec![
        (
            "system:serviceaccount:kube-bind-last:kube-binder",
            "",
            rule("overwrite", "wildwest.dev", "sheriffs", None),
        ),
        ("ann", "", bind(Some("cowboys"))),
        ("ann", "", impersonate("users", Some("bob"))),
        ("ann", "ranch", impersonate("serviceaccounts", Some("robot"))),
        ("warden", "", bind(None)),
        ("warden", "", impersonate("users", None)),
        ("people:kube-binder", "", bind(None)),
        ("system:serviceaccount:ranch:robot", "", bind(Some("cowboys"))),
    ]
}

fn group(what: &str) -> &'static str {
    match what.split('/').next().unwrap_or_default() {
        "roles" | "rolebindings" | "clusterroles" | "clusterrolebindings" => "rbac.authorization.k8s.io",
        "customresourcedefinitions" => "apiextensions.k8s.io",
        "cowboys" | "sheriffs" => "wildwest.dev",
        "leases" => "coordination.k8s.io",
        "apiserviceexports"
        | "apiserviceexportrequests"
        | "apiservicenamespaces"
        | "apiservicebindings"
        | "apiservicebindingbundles"
        | "bindableresourcesrequests" => "kube-bind.io",
        "apiservices" => "apiregistration.k8s.io",
        "snapshots" => "snapshot.kubernetes.io",
        "odd" => "k8s.io",
        "events.events.k8s.io" => "events.k8s.io",
        "selfsubjectaccessreviews" => "authorization.k8s.io",
        what if what.ends_with(".example.dev") => "example.dev",
        _ => "",
    }
}

impl Policy {
    fn documents(&self) -> Vec<Value> {
        serde_saphyr::from_multiple(self.file).unwrap()
    }

    fn lines(&self) -> Vec<Line> {
        serde_saphyr::from_str(self.table).unwrap()
    }

    /// The refusal of a line; empty if it is admitted.
    fn outcome(&self, store: &Store, line: &Line) -> String {
        let author = user(line.by.as_deref().unwrap_or(self.author), &[]);
        let operation = ["CREATE", "UPDATE", "DELETE", "CONNECT"]
            .into_iter()
            .find(|known| *known == line.operation)
            .unwrap();
        let (plural, subresource) = line.what.split_once('/').unwrap_or((&line.what, ""));
        let plural = plural.split('.').next().unwrap_or_default();
        let resource = format!("{}/{plural}/{subresource}", group(&line.what));
        let object = line.object.as_ref().or(line.old.as_ref());
        let namespace = match line.what.as_str() {
            // A Namespace is in itself.
            "namespaces" => object.and_then(|object| object["metadata"]["name"].as_str()),
            _ => Some(line.namespace.as_str()),
        };
        let write = Write {
            user: &author,
            operation,
            resource: &resource,
            namespace: namespace.unwrap_or_default(),
            object: line.object.clone(),
            old: line.old.clone(),
        };
        let judged = judge_by(&write, |request| admit(store, request));
        judged.map_or_else(|error| error.message, |_| String::new())
    }

    fn check_table(&self) {
        let store = cluster(&self.documents());
        for line in self.lines() {
            let outcome = self.outcome(&store, &line);
            match &line.refused {
                None => assert_eq!(outcome, "", "{line:?}"),
                Some(words) => assert!(
                    outcome.contains(words) && !outcome.contains("resulted in error"),
                    "{line:?} ended with {outcome:?}"
                ),
            }
        }
    }

    fn check_mutants(&self) {
        let documents = self.documents();
        let is_it = |document: &Value| {
            document["kind"] == "ValidatingAdmissionPolicy" && document["metadata"]["name"] == self.name
        };
        let place = documents.iter().position(is_it).unwrap();
        let lines = self.lines();
        let store = cluster(&documents);
        let before: Vec<_> = lines.iter().map(|line| self.outcome(&store, line)).collect();
        let mutants = mutants(&documents[place]);
        assert!(mutants.len() > 20, "only {} mutants", mutants.len());
        let mut survivors = Vec::new();
        for mutant in &mutants {
            let mut changed = documents.clone();
            *changed[place].pointer_mut(&mutant.pointer).unwrap() = json!(mutant.expression);
            let store = cluster(&changed);
            let mut judged = lines.iter().zip(&before);
            if judged.all(|(line, before)| self.outcome(&store, line) == *before) {
                survivors.push(mutant.change.as_str());
            }
        }
        let mut equivalents: Vec<_> = self.equivalents.iter().map(|(mutant, _)| *mutant).collect();
        equivalents.sort_unstable();
        survivors.sort_unstable();
        assert!(
            survivors == equivalents,
            "{} of {} mutants are not noticed:\n{}\nThese are listed as equivalent:\n{}",
            survivors.len(),
            mutants.len(),
            survivors.join("\n"),
            equivalents.join("\n")
        );
    }
}

/// A mutant of each part of each expression of a policy.
fn mutants(policy: &Value) -> Vec<Mutant> {
    let mut all = Vec::new();
    for (field, name) in [
        ("matchConditions", "expression"),
        ("variables", "expression"),
        ("validations", "expression"),
        ("validations", "messageExpression"),
    ] {
        for (index, item) in policy["spec"][field].as_array().into_iter().flatten().enumerate() {
            let Some(expression) = item[name].as_str() else {
                continue;
            };
            let mut changes = BTreeSet::new();
            alter(expression, 0..expression.len(), &mut changes);
            if field != "variables" && name == "expression" {
                changes.insert((0, expression.len(), "true".to_owned()));
            }
            let called = item["name"]
                .as_str()
                .map_or_else(|| index.to_string(), ToOwned::to_owned);
            all.extend(changes.into_iter().map(|(start, end, by)| {
                let is_all = (start, end) == (0, expression.len());
                let part = if is_all { "all" } else { &expression[start..end] };
                Mutant {
                    pointer: format!("/spec/{field}/{index}/{name}"),
                    expression: format!("{}{by}{}", &expression[..start], &expression[end..]),
                    change: format!("{field} {called}: {part} -> {by}"),
                }
            }));
        }
    }
    all
}

/// Adds the changes of an expression: an operand of `&&` becomes true, one of `||` false, a choice one of its ends, a list of several
/// items loses one, and a name or prefix loses its dash.
fn alter(text: &str, within: Range<usize>, changes: &mut BTreeSet<(usize, usize, String)>) {
    let within = trimmed(text, within);
    let choice = split(text, within.clone(), "?");
    if let [condition, rest] = choice.as_slice() {
        let ends = split(text, rest.clone(), ":");
        for end in &ends {
            changes.insert((within.start, within.end, text[trimmed(text, end.clone())].to_owned()));
            alter(text, end.clone(), changes);
        }
        return alter(text, condition.clone(), changes);
    }
    for (operator, neutral) in [("||", "false"), ("&&", "true")] {
        let operands = split(text, within.clone(), operator);
        if operands.len() > 1 {
            for operand in operands {
                let operand = trimmed(text, operand);
                changes.insert((operand.start, operand.end, neutral.to_owned()));
                alter(text, operand, changes);
            }
            return;
        }
    }
    let summands = split(text, within.clone(), "+");
    for (before, last) in summands.iter().zip(summands.iter().skip(1)) {
        let (before, last) = (trimmed(text, before.clone()), trimmed(text, last.clone()));
        if &text[last.clone()] == "'-'" {
            changes.insert((before.start, last.end, text[before].to_owned()));
        }
    }
    for (open, inner) in groups(text, within) {
        let parts = split(text, inner.clone(), ",");
        let is_list = open == '[' && parts.len() > 1;
        for (index, part) in parts.iter().enumerate() {
            if is_list {
                // With the comma before it, or after the first.
                let start = if index == 0 { part.start } else { part.start - 1 };
                let end = if index == 0 { part.end + 1 } else { part.end };
                changes.insert((start, end, String::new()));
            }
            alter(text, part.clone(), changes);
        }
    }
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + part.len() - part.trim_start().len();
    start..start + part.trim().len()
}

/// Calls back with each position of a range, the character there, and how many brackets are open before it. Strings are skipped.
fn scan(text: &str, range: Range<usize>, mut at: impl FnMut(usize, char, usize)) {
    let (mut depth, mut is_text) = (0_usize, false);
    for (offset, character) in text[range.clone()].char_indices() {
        match character {
            '\'' => is_text = !is_text,
            _ if is_text => {}
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                at(range.start + offset, character, depth);
            }
            _ => {
                at(range.start + offset, character, depth);
                depth += usize::from(matches!(character, '(' | '[' | '{'));
            }
        }
    }
}

/// Splits a range at an operator outside of brackets; of a choice only at the first.
fn split(text: &str, range: Range<usize>, operator: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    scan(text, range.clone(), |position, _, depth| {
        if depth == 0 && text[position..range.end].starts_with(operator) {
            found.push(position);
        }
    });
    if ["?", ":"].contains(&operator) {
        found.truncate(1);
    }
    let mut start = range.start;
    let mut parts = Vec::new();
    for position in found {
        parts.push(start..position);
        start = position + operator.len();
    }
    parts.push(start..range.end);
    parts
}

/// What is in the outermost brackets of a range, with the bracket.
fn groups(text: &str, range: Range<usize>) -> Vec<(char, Range<usize>)> {
    let (mut all, mut open) = (Vec::new(), None);
    scan(text, range, |position, character, depth| match character {
        '(' | '[' | '{' if depth == 0 => open = Some((character, position + 1)),
        ')' | ']' | '}' if depth == 0 => {
            if let Some((character, start)) = open.take() {
                all.push((character, start..position));
            }
        }
        _ => {}
    });
    all
}

#[test]
fn the_server_writes_what_serves_contracts_and_nothing_else() {
    SERVER_ACCOUNT.check_table();
}

#[test]
fn the_konnector_writes_of_kubernetes_what_bindings_need() {
    KONNECTOR_ACCOUNT.check_table();
}

#[test]
fn a_contract_writes_what_is_its_own_by_place_name_or_mark() {
    BINDER.check_table();
}

#[test]
fn a_request_is_made_by_its_author_for_what_that_one_may_bind() {
    REQUESTS.check_table();
}

#[test]
fn the_konnector_writes_the_definitions_of_bindings() {
    KONNECTOR_DEFINITIONS.check_table();
}

#[test]
fn the_konnector_writes_copies_of_the_provider_and_what_it_keeps() {
    KONNECTOR_CLAIMS.check_table();
}

#[test]
fn each_part_of_the_policy_on_the_account_of_the_server_is_noticed() {
    SERVER_ACCOUNT.check_mutants();
}

#[test]
fn each_part_of_the_policy_on_the_account_of_the_konnector_is_noticed() {
    KONNECTOR_ACCOUNT.check_mutants();
}

#[test]
fn each_part_of_the_policy_on_contracts_is_noticed() {
    BINDER.check_mutants();
}

#[test]
fn each_part_of_the_policy_on_requests_is_noticed() {
    REQUESTS.check_mutants();
}

#[test]
fn each_part_of_the_policy_on_definitions_is_noticed() {
    KONNECTOR_DEFINITIONS.check_mutants();
}

#[test]
fn each_part_of_the_policy_on_claimed_objects_is_noticed() {
    KONNECTOR_CLAIMS.check_mutants();
}

#[test]
fn expressions_are_taken_apart() {
    let mut changes = BTreeSet::new();
    let text = "a && (b || has(c.d)) && e in ['&&', 'g'] && !(h ? i : j) && k.startsWith(l + '-')";
    alter(text, 0..text.len(), &mut changes);
    let told: BTreeSet<_> = changes
        .iter()
        .map(|(start, end, by)| format!("{} -> {by}", &text[*start..*end]))
        .collect();
    let expect = [
        "a -> true",
        "(b || has(c.d)) -> true",
        "b -> false",
        "has(c.d) -> false",
        "e in ['&&', 'g'] -> true",
        "'&&', -> ",
        ", 'g' -> ",
        "!(h ? i : j) -> true",
        "h ? i : j -> i",
        "h ? i : j -> j",
        "k.startsWith(l + '-') -> true",
        "l + '-' -> l",
    ];
    assert_eq!(told, expect.map(str::to_owned).into());
}
