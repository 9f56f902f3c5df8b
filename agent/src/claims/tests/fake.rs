//! A fake API server in memory, with what these tests need of one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_runtime::client::Clients;
use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::watch, time::sleep};

/// A fake cluster: objects, their history, and what its clients wrote.
#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<Place, Value>,
    history: Vec<(u64, &'static str, Place, Value)>,
    writes: Vec<String>,
    /// Watches that are open, by the path of the collection.
    watches: BTreeMap<String, usize>,
    /// Plurals whose requests are refused.
    forbidden: Vec<String>,
    /// The only namespaces whose requests are not refused, by plural.
    allowed: BTreeMap<String, Vec<String>>,
    refuses_deletes: bool,
    /// The plural that each API root serves, for APIs that were installed by a CRD.
    served: BTreeMap<String, String>,
}

/// Where an object is: the root of its API, its plural, its namespace and its name, each empty for any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    root: String,
    plural: String,
    namespace: String,
    name: String,
}

type Answer = (u16, String);

// === impl Place ===

impl Place {
    fn parse(path: &str) -> Self {
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let (root, rest) = parts.split_at(if parts[0] == "api" { 2 } else { 3.min(parts.len()) });
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        Self {
            root: root.join("/"),
            plural: part(0),
            namespace: namespace.to_owned(),
            name: part(1),
        }
    }

    fn holds(&self, object: &Self) -> bool {
        self.root == object.root
            && self.plural == object.plural
            && (self.namespace.is_empty() || self.namespace == object.namespace)
    }
}

// === impl Fake ===

impl Fake {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            changed: watch::Sender::new(0),
        }
    }

    pub(crate) fn clients(&self) -> Clients {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                let (status, body) = fake.answer(request).await;
                Response::builder().status(status).body(Body::from(body.into_bytes()))
            }
        });
        let client = kube::Client::new(service, "default");
        Clients::of(client)
    }

    /// Writes an object as its user does.
    pub(crate) fn put(&self, path: &str, object: &Value) -> Value {
        self.state
            .lock()
            .store(&Place::parse(path), object.clone(), &self.changed)
    }

    /// Deletes an object as its user does.
    pub(crate) fn remove(&self, path: &str) {
        self.state.lock().remove(&Place::parse(path), &self.changed);
    }

    /// Removes an object without an event, so that no watch shows its end.
    pub(crate) fn lose(&self, path: &str) {
        self.state.lock().objects.remove(&Place::parse(path));
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().objects.get(&Place::parse(path)).cloned()
    }

    pub(crate) fn forbid(&self, plural: &str) {
        self.state.lock().forbidden.push(plural.to_owned());
    }

    /// Refuses requests of a plural outside of these namespaces. Watches that are open stay.
    pub(crate) fn allow_only(&self, plural: &str, namespaces: &[&str]) {
        let namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
        self.state.lock().allowed.insert(plural.to_owned(), namespaces);
    }

    /// Sets whether deletes of clients are refused.
    pub(crate) fn forbid_deletes(&self, refuses: bool) {
        self.state.lock().refuses_deletes = refuses;
    }

    /// Serves, from now on, a resource under a root such as `apis/wildwest.dev/v1`.
    pub(crate) fn serve(&self, root: &str, plural: &str) {
        self.state.lock().served.insert(root.to_owned(), plural.to_owned());
    }

    /// Stops serving the resource of a root, and ends its watches.
    pub(crate) fn unserve(&self, root: &str) {
        let mut state = self.state.lock();
        state.served.remove(root);
        state.version += 1;
        self.changed.send_replace(state.version);
    }

    /// Returns what clients wrote since the last call.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().writes)
    }

    /// The number of open watches of a collection.
    pub(crate) fn watches(&self, path: &str) -> usize {
        self.state.lock().watches.get(path).copied().unwrap_or_default()
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let place = Place::parse(parts.uri.path());
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let is_allowed = |namespaces: &Vec<String>| namespaces.contains(&place.namespace);
        let is_outside = !self.state.lock().allowed.get(&place.plural).is_none_or(is_allowed);
        if is_outside || self.state.lock().forbidden.contains(&place.plural) {
            return refusal(403, "Forbidden", &place, &format!("{} is forbidden", place.plural));
        }
        if let Some(answer) = self.state.lock().discover(parts.uri.path().trim_start_matches('/')) {
            return answer;
        }
        if parts.method == Method::GET && place.name.is_empty() {
            if !query.contains("watch=1") {
                return self.state.lock().list(&place, &labels(&query));
            }
            let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
            let _open = Open::new(self, parts.uri.path());
            return self
                .follow(&place, from.and_then(|from| from.parse().ok()).unwrap_or(0))
                .await;
        }
        let bytes = body.collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let mut state = self.state.lock();
        if parts.method == Method::GET {
            return match state.objects.get(&place) {
                Some(object) => (200, object.to_string()),
                None => not_found(&place),
            };
        }
        state.writes.push(format!("{} {}", parts.method, parts.uri.path()));
        match parts.method {
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let place = Place { name, ..place };
                if state.objects.contains_key(&place) {
                    return refusal(409, "AlreadyExists", &place, "it exists");
                }
                let mut body = body;
                if place.plural == "apiservicenamespaces" {
                    let namespace = format!("{}-{}", place.namespace, place.name);
                    body["status"] = json!({"namespace": namespace, "sharedNamespace": place.name});
                }
                (201, state.store(&place, body, &self.changed).to_string())
            }
            Method::PATCH => state.patch(&place, body, &self.changed),
            Method::DELETE if state.refuses_deletes => refusal(403, "Forbidden", &place, "deletes are forbidden"),
            Method::DELETE => {
                let uid = state
                    .objects
                    .get(&place)
                    .map(|object| object["metadata"]["uid"].clone());
                match uid {
                    None => not_found(&place),
                    Some(uid) if uid != body["preconditions"]["uid"] => refusal(409, "Conflict", &place, "another UID"),
                    Some(_) => {
                        state.remove(&place, &self.changed);
                        (200, json!({"kind": "Status", "metadata": {}}).to_string())
                    }
                }
            }
            _ => (405, String::new()),
        }
    }

    /// Waits until something happened since a version, and returns it as a watch would.
    async fn follow(&self, place: &Place, from: u64) -> Answer {
        let mut changed = self.changed.subscribe();
        loop {
            let lines: String = {
                let state = self.state.lock();
                if !state.serves(place) {
                    return not_found(place);
                }
                let events = state
                    .history
                    .iter()
                    .filter(|(at, _, of, _)| *at > from && place.holds(of));
                events
                    .map(|(_, kind, _, object)| json!({"type": kind, "object": object}).to_string() + "\n")
                    .collect()
            };
            if !lines.is_empty() {
                return (200, lines);
            }
            if changed.changed().await.is_err() {
                return (500, String::new());
            }
        }
    }
}

// === impl State ===

impl State {
    fn store(&mut self, place: &Place, mut object: Value, changed: &watch::Sender<u64>) -> Value {
        self.version += 1;
        let known = self.objects.get(place);
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        let uid = known.map_or_else(
            || json!(format!("uid-{}", self.version)),
            |known| known["metadata"]["uid"].clone(),
        );
        let meta = &mut object["metadata"];
        meta["name"] = json!(place.name);
        if !place.namespace.is_empty() {
            meta["namespace"] = json!(place.namespace);
        }
        meta["uid"] = uid;
        meta["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(place.clone(), object.clone());
        self.tell(kind, place, &object, changed);
        object
    }

    fn remove(&mut self, place: &Place, changed: &watch::Sender<u64>) {
        if let Some(mut object) = self.objects.remove(place) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.tell("DELETED", place, &object, changed);
        }
    }

    fn tell(&mut self, kind: &'static str, place: &Place, object: &Value, changed: &watch::Sender<u64>) {
        self.history.push((self.version, kind, place.clone(), object.clone()));
        changed.send_replace(self.version);
    }

    fn serves(&self, place: &Place) -> bool {
        !place.root.starts_with("apis/wildwest.dev") || self.served.contains_key(&place.root)
    }

    /// Answers a discovery request; `None` for any other request.
    fn discover(&self, path: &str) -> Option<Answer> {
        let place = Place::parse(path);
        if place.plural.is_empty() && path.starts_with("apis/") {
            if let Some(plural) = self.served.get(path) {
                let one = json!({"name": plural, "kind": "Horse", "namespaced": true, "singularName": "", "verbs": []});
                return Some((200, json!({"groupVersion": path, "resources": [one]}).to_string()));
            }
            let roots = self.served.keys().filter_map(|root| root.strip_prefix("apis/"));
            let versions = roots.filter(|root| root.starts_with(path.trim_start_matches("apis/")));
            let versions: Vec<_> = versions
                .filter_map(|root| Some(json!({"groupVersion": root, "version": root.split_once('/')?.1})))
                .collect();
            let group = json!({"name": path.trim_start_matches("apis/"), "versions": versions});
            return Some((200, group.to_string()));
        }
        (!self.serves(&place)).then(|| not_found(&place))
    }

    fn list(&self, place: &Place, labels: &[(String, String)]) -> Answer {
        let items = self.objects.iter().filter(|(of, object)| {
            let of_object = &object["metadata"]["labels"];
            place.holds(of) && labels.iter().all(|(key, value)| of_object[key] == **value)
        });
        let items: Vec<_> = items.map(|(_, object)| object).collect();
        (
            200,
            json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items}).to_string(),
        )
    }

    fn patch(&mut self, place: &Place, body: Value, changed: &watch::Sender<u64>) -> Answer {
        let known = self.objects.get(place).cloned();
        if place.plural == "apiservicenamespaces" {
            let Some(mut known) = known else {
                return not_found(place);
            };
            known["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"].clone();
            return (200, self.store(place, known, changed).to_string());
        }
        let wanted_uid = &body["metadata"]["uid"];
        match &known {
            Some(_) if wanted_uid.is_null() => return refusal(409, "Conflict", place, "it exists"),
            Some(known) if known["metadata"]["uid"] != *wanted_uid => {
                return refusal(409, "Conflict", place, "another UID");
            }
            Some(known) if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] => {
                return refusal(409, "Conflict", place, "another version");
            }
            None if !wanted_uid.is_null() => return refusal(409, "Conflict", place, "there is none"),
            Some(known) => {
                let is_locked = known["immutable"] == json!(true) && known["data"] != body["data"];
                if is_locked || known["type"] != body["type"] {
                    return refusal(422, "Invalid", place, "field is immutable");
                }
            }
            None => {}
        }
        let namespace = Place::parse(&format!("/api/v1/namespaces/{}", place.namespace));
        if !self.objects.contains_key(&namespace) && place.namespace == "west" {
            return refusal(404, "NotFound", &namespace, "namespaces \"west\" not found");
        }
        (200, self.store(place, body, changed).to_string())
    }
}

/// A watch that is open until dropped.
struct Open {
    fake: Fake,
    path: String,
}

impl Open {
    fn new(fake: &Fake, path: &str) -> Self {
        *fake.state.lock().watches.entry(path.to_owned()).or_default() += 1;
        Self {
            fake: fake.clone(),
            path: path.to_owned(),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *self.fake.state.lock().watches.entry(self.path.clone()).or_default() -= 1;
    }
}

/// The labels that a query selects by.
fn labels(query: &str) -> Vec<(String, String)> {
    let selector = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector="));
    let text = selector
        .unwrap_or_default()
        .replace("%3D", "=")
        .replace("%2C", ",")
        .replace("%2F", "/");
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn refusal(code: u16, reason: &str, place: &Place, message: &str) -> Answer {
    let status = json!({
        "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message,
        "details": {"name": place.name, "kind": place.plural},
    });
    (code, status.to_string())
}

fn not_found(place: &Place) -> Answer {
    refusal(404, "NotFound", place, "not found")
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        for _ in 0..3000 {
            if holds() {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("{what} does not come to pass ({place})");
    }
}
