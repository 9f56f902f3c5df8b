//! A sequence while it is written.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    kind::Kind,
    random::Random,
    step::{Call, Step, User},
};

/// The names of objects: few, so that requests meet the same objects.
const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) random: Random,
    /// Part of each name outside the sequence's namespaces.
    pub(crate) id: String,
    pub(crate) namespace: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) state: BTreeSet<String>,
    pub(crate) users: BTreeMap<String, Vec<String>>,
    /// By the path of an object, the answers that hold it if the requests succeeded.
    answers: BTreeMap<String, Vec<usize>>,
    fresh: usize,
}

impl Draft {
    pub(crate) fn new(seed: u64, prefix: &str) -> Self {
        let id = format!("{prefix}{seed}");
        Self {
            random: Random::new(seed),
            namespace: id.clone(),
            id,
            steps: Vec::new(),
            state: BTreeSet::new(),
            users: BTreeMap::new(),
            answers: BTreeMap::new(),
            fresh: 0,
        }
    }

    /// Adds a request and returns the number of its answer.
    pub(crate) fn call(&mut self, call: Call) -> usize {
        let number = self.steps.len();
        if let Some(path) = answered(&call) {
            self.answers.entry(path).or_default().push(number);
        }
        self.steps.push(Step::Call(call));
        number
    }

    /// Opens a watch and returns its number.
    pub(crate) fn watch(&mut self, call: Call) -> usize {
        self.steps.push(Step::Watch(call.query("watch", "true")));
        self.steps.len() - 1
    }

    pub(crate) fn events(&mut self, watch: usize) {
        self.steps.push(Step::Events { watch });
    }

    /// Waits for the end of a watch.
    pub(crate) fn ended(&mut self, watch: usize) {
        self.steps.push(Step::Ended { watch });
    }

    pub(crate) fn settle(&mut self) {
        if !matches!(self.steps.last(), Some(Step::Settle)) {
            self.steps.push(Step::Settle);
        }
    }

    /// One of few names, which an earlier request may have used.
    pub(crate) fn name(&mut self, kind: Kind) -> String {
        let name = self.random.pick(&NAMES);
        self.scoped(kind, name)
    }

    /// A name that no request has used.
    pub(crate) fn fresh(&mut self, kind: Kind) -> String {
        self.fresh += 1;
        let name = format!("n{}", self.fresh);
        self.scoped(kind, &name)
    }

    /// The name, which is that of another sequence too if the kind is not namespaced.
    pub(crate) fn scoped(&self, kind: Kind, name: &str) -> String {
        if kind.is_namespaced {
            name.to_owned()
        } else {
            format!("{}-{name}", self.id)
        }
    }

    pub(crate) fn kind(&mut self, kinds: &[Kind]) -> Kind {
        self.random.pick(kinds)
    }

    pub(crate) fn list(&self, kind: Kind) -> String {
        kind.list(&self.namespace)
    }

    pub(crate) fn path(&self, kind: Kind, name: &str) -> String {
        kind.path(&self.namespace, name)
    }

    /// A valid object, with the label by which lists of all namespaces find those of this sequence.
    pub(crate) fn object(&mut self, kind: Kind, name: &str) -> Value {
        let mut object = kind.object(name, &mut self.random);
        object["metadata"]["labels"] = json!({"sequence": self.id});
        self.watch_state(kind, name);
        object
    }

    /// Creates a valid object with more metadata, and returns the number of the answer.
    pub(crate) fn create(&mut self, kind: Kind, name: &str, metadata: &Value) -> usize {
        let mut object = self.object(kind, name);
        json_patch::merge(&mut object["metadata"], metadata);
        let call = Call::post(self.list(kind), object);
        let number = self.call(call);
        let path = self.path(kind, name);
        self.answers.entry(path).or_default().push(number);
        number
    }

    /// Has the state hold the object.
    pub(crate) fn watch_state(&mut self, kind: Kind, name: &str) {
        if kind.is_namespaced {
            self.state.insert(self.list(kind));
        } else if !name.is_empty() {
            self.state.insert(self.path(kind, name));
        }
    }

    /// An answer that may hold the object: mostly the last one, else an earlier one.
    pub(crate) fn answer(&mut self, path: &str) -> Option<usize> {
        let answers = self.answers.get(path)?;
        let last = answers.len() - 1;
        let index = if self.random.chance(75) {
            last
        } else {
            self.random.below(answers.len())
        };
        answers.get(index).copied()
    }

    /// An answer that may hold the object; reads it if there is none.
    pub(crate) fn answer_or_get(&mut self, path: &str) -> usize {
        match self.answer(path) {
            Some(answer) => answer,
            None => self.call(Call::get(path)),
        }
    }

    /// A user of this sequence with groups.
    pub(crate) fn user(&mut self, name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        self.users.insert(name.to_owned(), groups);
        User::Named(name.to_owned())
    }

    /// A ServiceAccount as a user, whether it exists or not.
    pub(crate) fn account(&mut self, namespace: &str, name: &str, groups: &[&str]) -> User {
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        let all = [&["system:serviceaccounts", of_namespace.as_str()], groups].concat();
        self.user(&format!("system:serviceaccount:{namespace}:{name}"), &all)
    }
}

/// The path of the object that the answer holds, if its name is in the path.
fn answered(call: &Call) -> Option<String> {
    let is_object = matches!(call.method.as_str(), "GET" | "PUT" | "PATCH");
    let is_dry = call.query.iter().any(|(name, _)| name == "dryRun");
    let path = call.path.strip_suffix("/status").unwrap_or(&call.path);
    (is_object && !is_dry).then(|| path.to_owned())
}
