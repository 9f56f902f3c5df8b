//! What a sequence consists of: requests whose parts may refer to earlier answers, watches, and waits for the controllers.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::Value;

/// The requests of one seed, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) seed: u64,
    /// What the requests are about, for the report: the subjects, each with the number of its first step.
    pub(crate) subjects: Vec<(&'static str, usize)>,
    pub(crate) steps: Vec<Step>,
    /// Paths of objects and lists that are the final state: what is read after each wait for the controllers.
    pub(crate) state: BTreeSet<String>,
    /// The users beside the admin, by name, with their groups.
    pub(crate) users: BTreeMap<String, Vec<String>>,
}

impl Sequence {
    /// The subject that a step is about. The first steps are about none.
    pub(crate) fn subject(&self, step: usize) -> &'static str {
        let begun = self.subjects.iter().rev().find(|(_, first)| *first <= step);
        begun.map_or("begin", |(name, _)| *name)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A request with a whole answer.
    Call(Call),
    /// A request for a watch. The number of the step names the watch.
    Watch(Call),
    /// Compares the events of a watch so far.
    Events { watch: usize },
    /// Waits for the end of a watch, and compares its last events and how it ended.
    Ended { watch: usize },
    /// Lets the controllers do all they have to do, and compares the state.
    Settle,
    /// Lets the in-memory controllers do their work. The real ones are waited for by patient requests.
    Work,
}

/// A request. Strings in it may hold placeholders such as `${3/metadata/uid}`: the value at that path of answer 3. A string
/// that is a placeholder as a whole becomes the value itself.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) user: User,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) accept: Option<&'static str>,
    pub(crate) content_type: &'static str,
    pub(crate) body: Body,
    /// Whether the real server knows only after a moment what the answer is. Such a request is repeated until the answer is
    /// the expected one, so it must not write.
    pub(crate) is_patient: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum User {
    /// A member of `system:masters`.
    Admin,
    /// A user of the sequence.
    Named(String),
    /// Who presents the token at this place of an earlier answer.
    Token(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    None,
    /// Bytes that need not be JSON.
    Raw(String),
    Json(Value),
    /// An earlier answer, changed by a merge patch, as clients do that read before they write.
    Edited {
        answer: usize,
        edit: Value,
    },
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            user: User::Admin,
            method,
            path: path.into(),
            query: Vec::new(),
            accept: None,
            content_type: "application/json",
            body: Body::None,
            is_patient: false,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::POST, path).json(body)
    }

    pub(crate) fn put(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::PUT, path).json(body)
    }

    /// A PUT of an earlier answer with changes.
    pub(crate) fn edit(path: impl Into<String>, answer: usize, edit: Value) -> Self {
        let mut call = Self::new(Method::PUT, path);
        call.body = Body::Edited { answer, edit };
        call
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    pub(crate) fn merge(path: impl Into<String>, change: Value) -> Self {
        Self::patch(path, "application/merge-patch+json", change)
    }

    pub(crate) fn json_patch(path: impl Into<String>, operations: Value) -> Self {
        Self::patch(path, "application/json-patch+json", operations)
    }

    pub(crate) fn strategic(path: impl Into<String>, change: Value) -> Self {
        Self::patch(path, "application/strategic-merge-patch+json", change)
    }

    /// A server-side apply.
    pub(crate) fn apply(path: impl Into<String>, manager: &str, object: Value) -> Self {
        Self::patch(path, "application/apply-patch+yaml", object).query("fieldManager", manager)
    }

    pub(crate) fn patch(path: impl Into<String>, content_type: &'static str, change: Value) -> Self {
        let mut call = Self::new(Method::PATCH, path).json(change);
        call.content_type = content_type;
        call
    }

    pub(crate) fn json(mut self, body: Value) -> Self {
        self.body = Body::Json(body);
        self
    }

    pub(crate) fn query(mut self, name: &str, value: impl Into<String>) -> Self {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn by(mut self, user: &User) -> Self {
        self.user = user.clone();
        self
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = Some(accept);
        self
    }

    pub(crate) fn patient(mut self) -> Self {
        self.is_patient = true;
        self
    }
}
