//! A cluster to send requests to.

use bindery_simulator_apiserver::{Answer, ApiServer, ClusterSettings, UserInfo, WatchId};
use bytes::Bytes;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// An API server, its admin, and a clock that advances by a second with each request.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) now: Timestamp,
}

pub(crate) const ADMIN: &str = "admin-token";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const COWBOYS: &str = "/apis/wildwest.dev/v1/namespaces/default/cowboys";

impl Cluster {
    /// A cluster whose controllers have done their first work.
    pub(crate) fn start() -> Self {
        let admin = UserInfo {
            name: "admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
            ..UserInfo::default()
        };
        let mut server = ApiServer::new(ClusterSettings {
            name: "test".to_owned(),
            tokens: [(ADMIN.to_owned(), admin)].into(),
            start_revision: 100,
        });
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        server.settle(now, 1000);
        Self { server, now }
    }

    pub(crate) fn with_cowboys() -> Self {
        let mut cluster = Self::start();
        cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd());
        cluster.settle();
        cluster
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            request = request.header("authorization", format!("Bearer {ADMIN}"));
        }
        let body = if body.is_null() {
            Bytes::new()
        } else {
            body.to_string().into()
        };
        let request = request.body(body).unwrap();
        self.server.handle(self.now, &request)
    }

    /// Sends a request; its code and body.
    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
        match self.send(method, path, headers, body) {
            Answer::Whole(response) => {
                let code = response.status().as_u16();
                let body = serde_json::from_slice(response.body());
                let text = || String::from_utf8_lossy(response.body()).into_owned().into();
                (code, body.unwrap_or_else(|_| text()))
            }
            Answer::Watch { .. } => panic!("{path} is a watch"),
        }
    }

    #[track_caller]
    pub(crate) fn create(&mut self, path: &str, object: &Value) -> Value {
        let (code, body) = self.ask("POST", path, &[], object);
        assert_eq!(code, 201, "{body}");
        body
    }

    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Value {
        let (code, body) = self.ask("GET", path, &[], &Value::Null);
        assert_eq!(code, 200, "{body}");
        body
    }

    pub(crate) fn code(&mut self, path: &str) -> u16 {
        self.ask("GET", path, &[], &Value::Null).0
    }

    pub(crate) fn patch(&mut self, path: &str, kind: &str, change: &Value) -> (u16, Value) {
        self.ask("PATCH", path, &[("content-type", kind)], change)
    }

    #[track_caller]
    pub(crate) fn patched(&mut self, path: &str, kind: &str, change: &Value) -> Value {
        let (code, body) = self.patch(path, kind, change);
        assert!(matches!(code, 200 | 201), "{code} {body}");
        body
    }

    #[track_caller]
    pub(crate) fn delete(&mut self, path: &str) -> Value {
        let (code, body) = self.ask("DELETE", path, &[], &Value::Null);
        assert_eq!(code, 200, "{body}");
        body
    }

    #[track_caller]
    pub(crate) fn watch(&mut self, path: &str) -> WatchId {
        match self.send("GET", path, &[], &Value::Null) {
            Answer::Watch { head, id } => {
                assert_eq!(head.status(), 200);
                id
            }
            Answer::Whole(response) => panic!("{path}: {:?}", response.body()),
        }
    }

    /// The events of a watch, as `TYPE name`.
    pub(crate) fn events(&mut self, id: WatchId) -> Vec<String> {
        let events = self.server.watch_events(id);
        let events = events.iter().map(|line| serde_json::from_slice::<Value>(line).unwrap());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .map(|event| {
                format!(
                    "{} {}",
                    text(&event["type"]),
                    text(&event["object"]["metadata"]["name"])
                )
            })
            .collect()
    }

    pub(crate) fn settle(&mut self) {
        assert!(
            self.server.settle(self.now, 1000) < 1000,
            "{:?}",
            self.server.background()
        );
    }

    pub(crate) fn chores(&self) -> Vec<String> {
        self.server.background().iter().map(ToString::to_string).collect()
    }
}

pub(crate) fn crd() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["intent"],
        "properties": {
            "intent": {"type": "string", "minLength": 1},
            "horses": {"type": "integer", "minimum": 0, "default": 1},
            "kind": {"type": "string", "enum": ["good", "bad"]},
            "hat": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "a hat stays"}]},
            "bag": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": spec,
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    });
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "cowboys.wildwest.dev"},
        "spec": {
            "group": "wildwest.dev",
            "scope": "Namespaced",
            "names": {"plural": "cowboys", "kind": "Cowboy"},
            "versions": [version("v1alpha1", false), version("v1", true)],
        },
    })
}

pub(crate) fn cowboy(name: &str) -> Value {
    json!({
        "apiVersion": "wildwest.dev/v1",
        "kind": "Cowboy",
        "metadata": {"name": name},
        "spec": {"intent": "ride"},
    })
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}
