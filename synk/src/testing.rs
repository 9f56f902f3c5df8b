//! Objects in namespaces, kept in memory behind a client, as far as tests need an API server.

mod api;

use std::{collections::BTreeMap, sync::Arc};

use bindery_runtime::client::Clients;
use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The API server. Paths are those of requests, such as `/api/v1/namespaces/shop/secrets/a`.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<String, Value>,
    /// Writes that succeeded.
    writes: Vec<String>,
    /// How many writes may still succeed.
    left: Option<usize>,
    /// Namespaces that do not exist, and those that are terminating.
    missing: Vec<String>,
    terminating: Vec<String>,
    silent: bool,
    /// Paths of objects whose writes are refused.
    refused: Vec<String>,
    /// Requests that are answered by an error: method, beginning of the path, code.
    faults: Vec<(Method, String, u16)>,
    /// How many requests were answered.
    requests: usize,
}

type Answer = (u16, Value);

// === impl Memory ===

impl Memory {
    pub(crate) fn clients(&self) -> Clients {
        let memory = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let memory = memory.clone();
            async move {
                let (parts, body) = request.into_parts();
                if memory.0.lock().silent {
                    return Err(std::io::Error::other("nobody answers"));
                }
                let bytes = body.collect_bytes().await.expect("a whole request");
                let body = serde_json::from_slice(&bytes).unwrap_or_default();
                let path = parts.uri.path();
                let (code, answer) = memory.0.lock().answer(&parts.method, path, parts.uri.query(), body);
                let answer = Body::from(answer.to_string().into_bytes());
                Ok(Response::builder().status(code).body(answer).expect("an answer"))
            }
        });
        let client = kube::Client::new(service, "default");
        Clients::of(client)
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().objects.get(path).cloned()
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        self.0.lock().store(path, object);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().objects.remove(path);
    }

    /// The paths of all objects.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }

    /// The writes since the last call.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().writes)
    }

    /// Refuses all writes after this number, as if the process of synk had ended.
    pub(crate) fn end_after(&self, writes: Option<usize>) {
        self.0.lock().left = writes;
    }

    /// Stops answering requests, or answers them again.
    pub(crate) fn silence(&self, silent: bool) {
        self.0.lock().silent = silent;
    }

    /// Refuses writes of an object, or allows them again.
    pub(crate) fn refuse(&self, path: &str, refused: bool) {
        let mut state = self.0.lock();
        state.refused.retain(|known| known != path);
        if refused {
            state.refused.push(path.to_owned());
        }
    }

    /// Answers requests by an error if their path begins with `path`, until [`Memory::mend`].
    pub(crate) fn fault(&self, method: Method, path: &str, code: u16) {
        self.0.lock().faults.push((method, path.to_owned(), code));
    }

    pub(crate) fn mend(&self) {
        self.0.lock().faults.clear();
    }

    /// How many requests were answered since the last call.
    pub(crate) fn requests(&self) -> usize {
        std::mem::take(&mut self.0.lock().requests)
    }

    pub(crate) fn without_namespace(&self, namespace: &str) {
        self.0.lock().missing.push(namespace.to_owned());
    }

    pub(crate) fn terminate(&self, namespace: &str) {
        self.0.lock().terminating.push(namespace.to_owned());
    }
}

// === impl State ===

impl State {
    fn answer(&mut self, method: &Method, path: &str, query: Option<&str>, body: Value) -> Answer {
        self.requests += 1;
        let is_faulty = |(of, at, _): &&(Method, String, u16)| of == method && path.starts_with(at.as_str());
        if let Some((.., code)) = self.faults.iter().find(is_faulty) {
            let reason = if *code == 403 { "Forbidden" } else { "InternalError" };
            return refusal(*code, reason, path);
        }
        let query = query.unwrap_or_default();
        if *method == Method::GET {
            return api::discovery(path).unwrap_or_else(|| self.read(path, query));
        }
        if !api::is_write(method, query) {
            return self.patch(path, query, body);
        }
        match &mut self.left {
            Some(0) => return refusal(500, "InternalError", path),
            Some(left) => *left -= 1,
            None => {}
        }
        let answer = match *method {
            Method::POST => self.create(path, body),
            Method::PUT => self.replace(path, body),
            Method::PATCH => self.patch(path, query, body),
            Method::DELETE => self.delete(path, &body["preconditions"]),
            _ => refusal(405, "MethodNotAllowed", path),
        };
        if answer.0 < 300 {
            self.writes.push(format!("{method} {path}"));
        }
        answer
    }

    fn read(&self, path: &str, query: &str) -> Answer {
        if let Some(object) = self.objects.get(path) {
            return (200, object.clone());
        }
        if !api::is_collection(path) {
            return refusal(404, "NotFound", path);
        }
        let selector = |key: &str| {
            let value = query
                .split('&')
                .filter_map(|pair| pair.strip_prefix(key))
                .collect::<String>();
            value.replace("%2F", "/").replace("%3D", "=").replace("%2C", ",")
        };
        let (labels, fields) = (selector("labelSelector="), selector("fieldSelector="));
        let agrees = |wanted: &str, of: &Value| {
            let mut pairs = wanted.split(',').filter_map(|pair| pair.split_once('='));
            pairs.all(|(key, value)| of[key] == value)
        };
        let is_wanted = |object: &Value| agrees(&labels, &object["metadata"]["labels"]) && agrees(&fields, object);
        let inside = |of: &str| of.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        let items = self
            .objects
            .iter()
            .filter(|(of, object)| inside(of) && is_wanted(object));
        let items: Vec<_> = items.map(|(_, object)| object).collect();
        (
            200,
            json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items}),
        )
    }

    fn create(&mut self, path: &str, body: Value) -> Answer {
        let namespace = path.split('/').rev().nth(1).unwrap_or_default().to_owned();
        if self.missing.contains(&namespace) {
            let details = json!({"name": namespace, "kind": "namespaces"});
            return (
                404,
                json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": details}),
            );
        }
        if self.terminating.contains(&namespace) {
            let details = json!({"causes": [{"reason": "NamespaceTerminating", "message": "it is being terminated"}]});
            return (
                403,
                json!({"kind": "Status", "code": 403, "reason": "Forbidden", "details": details}),
            );
        }
        let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default());
        if self.objects.contains_key(&path) {
            return refusal(409, "AlreadyExists", &path);
        }
        (201, self.store(&path, body))
    }

    fn replace(&mut self, path: &str, body: Value) -> Answer {
        match self.objects.get(path) {
            None => refusal(404, "NotFound", path),
            Some(known) if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] => {
                refusal(409, "Conflict", path)
            }
            Some(_) => (200, self.store(path, body)),
        }
    }

    fn delete(&mut self, path: &str, preconditions: &Value) -> Answer {
        let Some(known) = self.objects.get(path) else {
            return refusal(404, "NotFound", path);
        };
        let holds = |field: &str| preconditions[field].is_null() || preconditions[field] == known["metadata"][field];
        if !holds("uid") || !holds("resourceVersion") {
            return refusal(409, "Conflict", path);
        }
        if known["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
        {
            let mut going = known.clone();
            going["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
            self.store(path, going);
        } else if let Some(gone) = self.objects.remove(path) {
            self.collect(&gone["metadata"]["uid"]);
        }
        (200, json!({"kind": "Status", "metadata": {}}))
    }

    /// Deletes what the object of this UID alone owned, as the garbage collector does.
    fn collect(&mut self, owner: &Value) {
        let is_owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["uid"] == *owner))
        };
        let all = self.objects.iter();
        let gone: Vec<_> = all
            .filter(|(_, object)| is_owned(object))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            self.delete(&path, &Value::Null);
        }
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let known = self.objects.get(path).map(|known| known["metadata"]["uid"].clone());
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(path.rsplit('/').next());
        metadata["uid"] = known.unwrap_or_else(|| json!(format!("uid-{}", self.version)));
        metadata["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        object
    }
}

fn refusal(code: u16, reason: &str, path: &str) -> Answer {
    let mut parts = path.rsplit('/');
    let details = json!({"name": parts.next(), "kind": parts.next()});
    let message = format!("{path}: {reason}");
    (
        code,
        json!({
            "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details,
        }),
    )
}
