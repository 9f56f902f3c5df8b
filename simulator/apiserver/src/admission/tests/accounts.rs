//! The policies on the accounts of server and konnector: each line of the tables that suite `policy` sends to a real API server, and
//! for each part of an expression a mutant that a line of the tables notices.

use std::{collections::BTreeSet, ops::Range};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{POLICIES, Write, admit, judge_by, user};
use crate::auth::tests::Store;

const SERVER: Account = Account {
    user: "system:serviceaccount:kube-bind:bindery-server",
    policy: include_str!("../../../../../deploy/server/account-policy.yaml"),
    table: include_str!("../../../../../e2e/tests/policy/server.yaml"),
};
const KONNECTOR: Account = Account {
    user: "system:serviceaccount:kube-bind:konnector",
    policy: include_str!("../../../../../deploy/konnector/account-policy.yaml"),
    table: include_str!("../../../../../e2e/tests/policy/konnector.yaml"),
};

/// An account with the policy that limits it, and the table of what that admits.
struct Account {
    user: &'static str,
    policy: &'static str,
    table: &'static str,
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
    /// Who writes, if it is not the account.
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
    /// The part that is changed, and what takes its place.
    change: String,
}

fn cluster(policy: Value, binding: Value) -> Store {
    let mut store = Store::default();
    store.put(POLICIES, "validatingadmissionpolicies", policy);
    store.put(POLICIES, "validatingadmissionpolicybindings", binding);
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
    store
}

fn group(what: &str) -> &'static str {
    match what.split('/').next().unwrap_or_default() {
        "roles" | "rolebindings" | "clusterroles" | "clusterrolebindings" => "rbac.authorization.k8s.io",
        "customresourcedefinitions" => "apiextensions.k8s.io",
        "cowboys" | "sheriffs" => "wildwest.dev",
        "leases" => "coordination.k8s.io",
        "apiserviceexports" | "apiservicebindings" | "apiservicebindingbundles" => "kube-bind.io",
        "apiservices" => "apiregistration.k8s.io",
        "snapshots" => "snapshot.kubernetes.io",
        "odd" => "k8s.io",
        "events.events.k8s.io" => "events.k8s.io",
        "roles.example.dev" | "namespaces.example.dev" => "example.dev",
        _ => "",
    }
}

impl Account {
    fn documents(&self) -> (Value, Value) {
        let mut documents: Vec<Value> = serde_saphyr::from_multiple(self.policy).unwrap();
        let binding = documents.pop().unwrap();
        (documents.pop().unwrap(), binding)
    }

    fn lines(&self) -> Vec<Line> {
        serde_saphyr::from_str(self.table).unwrap()
    }

    /// The refusal of a line; empty if it is admitted.
    fn outcome(&self, store: &Store, line: &Line) -> String {
        let author = user(line.by.as_deref().unwrap_or(self.user), &[]);
        let operation = ["CREATE", "UPDATE", "DELETE", "CONNECT"]
            .into_iter()
            .find(|known| *known == line.operation)
            .unwrap();
        let (plural, subresource) = line.what.split_once('/').unwrap_or((&line.what, ""));
        let plural = plural.split('.').next().unwrap_or_default();
        let resource = format!("{}/{plural}/{subresource}", group(&line.what));
        let write = Write {
            user: &author,
            operation,
            resource: &resource,
            namespace: &line.namespace,
            object: line.object.clone(),
            old: line.old.clone(),
        };
        let judged = judge_by(&write, |request| admit(store, request));
        judged.map_or_else(|error| error.message, |_| String::new())
    }

    fn check_table(&self) {
        let (policy, binding) = self.documents();
        let store = cluster(policy, binding);
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
        let (policy, binding) = self.documents();
        let lines = self.lines();
        let all = |policy: Value| cluster(policy, binding.clone());
        let store = all(policy.clone());
        let before: Vec<_> = lines.iter().map(|line| self.outcome(&store, line)).collect();
        let mutants = mutants(&policy);
        assert!(mutants.len() > 20, "only {} mutants", mutants.len());
        let mut survivors = Vec::new();
        for mutant in &mutants {
            let mut changed = policy.clone();
            *changed.pointer_mut(&mutant.pointer).unwrap() = json!(mutant.expression);
            let store = all(changed);
            let mut judged = lines.iter().zip(&before);
            if judged.all(|(line, before)| self.outcome(&store, line) == *before) {
                survivors.push(format!("{}: {}", mutant.pointer, mutant.change));
            }
        }
        assert!(
            survivors.is_empty(),
            "{} of {} mutants are not noticed:\n{}",
            survivors.len(),
            mutants.len(),
            survivors.join("\n")
        );
    }
}

/// A mutant of each part of each expression of a policy.
fn mutants(policy: &Value) -> Vec<Mutant> {
    let mut all = Vec::new();
    for field in ["matchConditions", "variables", "validations"] {
        for (index, item) in policy["spec"][field].as_array().into_iter().flatten().enumerate() {
            let expression = item["expression"].as_str().unwrap();
            let mut changes = BTreeSet::new();
            alter(expression, 0..expression.len(), &mut changes);
            if field != "variables" {
                changes.insert((0, expression.len(), "true".to_owned()));
            }
            all.extend(changes.into_iter().map(|(start, end, by)| Mutant {
                pointer: format!("/spec/{field}/{index}/expression"),
                expression: format!("{}{by}{}", &expression[..start], &expression[end..]),
                change: format!("{:?} becomes {by:?}", &expression[start..end]),
            }));
        }
    }
    all
}

/// Adds the changes of an expression: an operand of `&&` becomes true, one of `||` false, a choice one of its ends, and a list that is
/// searched loses an item.
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
    for (open, inner) in groups(text, within) {
        let parts = split(text, inner.clone(), ",");
        let is_searched = open == '[' && text[..inner.start - 1].trim_end().ends_with(" in") && parts.len() > 1;
        for (index, part) in parts.iter().enumerate() {
            if is_searched {
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
    SERVER.check_table();
}

#[test]
fn the_konnector_writes_of_kubernetes_what_bindings_need() {
    KONNECTOR.check_table();
}

#[test]
fn each_part_of_the_policy_on_the_server_is_noticed() {
    SERVER.check_mutants();
}

#[test]
fn each_part_of_the_policy_on_the_konnector_is_noticed() {
    KONNECTOR.check_mutants();
}

#[test]
fn expressions_are_taken_apart() {
    let mut changes = BTreeSet::new();
    let text = "a && (b || has(c.d)) && e in ['&&', 'g'] && !(h ? i : j)";
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
    ];
    assert_eq!(told, expect.map(str::to_owned).into());
}
