//! Answers requests: who asks, whether that is allowed, and what it leads to.

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use serde_json::Value;

use crate::{
    Actor, Answer, ApiServer, UserInfo, WatchId,
    auth::{self, Attributes},
    discovery,
    endpoint::Endpoint,
    present,
    request::{self, Parameters, RequestInfo},
    server::Author,
    status::{About, StatusError},
    store::Stored,
};

mod collection;
mod create;
mod delete;
mod list;
mod reviews;
mod unknown;
mod update;
mod watching;

pub(crate) use delete::DeleteOptions;

/// A request that was let in.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) now: Timestamp,
    pub(crate) user: UserInfo,
    pub(crate) author: Author,
    pub(crate) manager: String,
    pub(crate) parameters: Parameters,
    pub(crate) info: RequestInfo,
    pub(crate) metadata_only: bool,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
    /// Warnings for the client, also of a request that fails in the end.
    pub(crate) warned: RefCell<Vec<String>>,
    /// If admission judges the write. The CRD finalizer goes past it.
    pub(crate) admitted: bool,
}

/// What a request leads to.
#[derive(Debug)]
pub(crate) enum Reply {
    Object(u16, Arc<Stored>, Arc<Endpoint>),
    Json(u16, Value),
    Text(u16, &'static str, String),
    Watch(WatchId),
}

/// A reply, and warnings for the client.
pub(crate) struct Replied {
    pub(crate) reply: Reply,
    pub(crate) warnings: Vec<String>,
}

impl From<Reply> for Replied {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            warnings: Vec::new(),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, StatusError>;

const JSON: &str = "application/json";

/// Answers a request.
pub(crate) fn answer(server: &mut ApiServer, now: Timestamp, request: &Request<Bytes>) -> Answer {
    let parameters = Parameters::read(request.uri());
    let info = RequestInfo::read(request.method(), request.uri(), &parameters);
    let headers = request.headers();
    let metadata_only = request::wants_metadata(headers);
    let mut warned = Vec::new();
    let replied = server.authenticate(now, request).and_then(|user| {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let call = Call {
            now,
            author: Author {
                actor: Actor::User(user.name.clone()),
                request: text("x-simulator-request").and_then(|number| number.parse().ok()),
            },
            manager: request::manager(headers, &parameters),
            content_type: text("content-type")
                .unwrap_or_default()
                .split(';')
                .next()
                .unwrap_or_default()
                .to_owned(),
            body: request.body().clone(),
            warned: RefCell::default(),
            admitted: true,
            metadata_only,
            parameters,
            info,
            user,
        };
        server.authorize(&call)?;
        let replied = server.route(&call, request.method());
        warned = call.warned.take();
        replied
    });
    let (reply, more) = match replied {
        Ok(Replied { reply, warnings }) => (reply, warnings),
        Err(error) => (Reply::Json(error.code, error.body()), Vec::new()),
    };
    warned.extend(more);
    let mut answer = respond(reply, &warned, metadata_only);
    let headers = match &mut answer {
        Answer::Watch { head, .. } => head.headers_mut(),
        Answer::Whole(response) => response.headers_mut(),
    };
    if let Some(date) = date(now) {
        headers.insert(header::DATE, date);
    }
    answer
}

fn date(now: Timestamp) -> Option<HeaderValue> {
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok()?;
    HeaderValue::try_from(date).ok()
}

fn respond(reply: Reply, warnings: &[String], metadata_only: bool) -> Answer {
    let retry_after = match &reply {
        Reply::Json(_, body) => body.pointer("/details/retryAfterSeconds").and_then(Value::as_u64),
        _ => None,
    };
    let (code, kind, body) = match reply {
        Reply::Watch(id) => {
            let mut head = Response::new(());
            head.headers_mut()
                .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
            return Answer::Watch { head, id };
        }
        Reply::Object(code, stored, endpoint) => (code, JSON, present::text(&stored, &endpoint, metadata_only)),
        Reply::Json(code, value) => (code, JSON, value.to_string()),
        Reply::Text(code, kind, text) => (code, kind, text),
    };
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    for warning in warnings {
        let text = format!("299 - {warning:?}");
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    Answer::Whole(response)
}

/// The answer of Go's router for a path without a handler.
pub(crate) fn page_not_found() -> Reply {
    Reply::Text(404, "text/plain; charset=utf-8", "404 page not found\n".to_owned())
}

impl Call {
    /// The resource of the request, for errors.
    pub(crate) fn about(&self) -> About<'_> {
        About {
            group: &self.info.group,
            resource: &self.info.resource,
            name: &self.info.name,
        }
    }

    /// A request of a controller about an object. It is neither authenticated nor authorized, and only admission policies see it. Its
    /// verb is `update`, also where the controller deletes, since only authorization and routing read the verb.
    pub(crate) fn of_controller(
        name: &'static str,
        now: Timestamp,
        endpoint: &Endpoint,
        namespace: &str,
        object: &str,
    ) -> Self {
        Self {
            now,
            user: UserInfo {
                name: format!("system:serviceaccount:kube-system:{}", name.replace(' ', "-")),
                groups: vec!["system:masters".to_owned()],
                ..UserInfo::default()
            },
            author: Author::controller(name),
            manager: "kube-controller-manager".to_owned(),
            parameters: Parameters::default(),
            info: RequestInfo {
                verb: "update",
                is_resource: true,
                group: endpoint.info.group.clone(),
                version: endpoint.info.version.clone(),
                namespace: namespace.to_owned(),
                resource: endpoint.resource.clone(),
                name: object.to_owned(),
                ..RequestInfo::default()
            },
            metadata_only: false,
            content_type: JSON.to_owned(),
            body: Bytes::new(),
            warned: RefCell::default(),
            admitted: true,
        }
    }

    /// The same request past admission.
    pub(crate) fn unadmitted(mut self) -> Self {
        self.admitted = false;
        self
    }

    /// The same request about a subresource.
    pub(crate) fn at(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.info.subresource);
        self
    }

    /// The body as JSON.
    pub(crate) fn json(&self, kind: &str) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .map_err(|error| StatusError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error}")))
    }
}

impl ApiServer {
    fn authenticate(&self, now: Timestamp, request: &Request<Bytes>) -> Result<UserInfo> {
        let Some(token) = request::bearer(request.headers()) else {
            return Ok(UserInfo {
                name: "system:anonymous".to_owned(),
                groups: vec!["system:unauthenticated".to_owned()],
                ..UserInfo::default()
            });
        };
        let known = self.settings.tokens.get(token).cloned();
        let user = known.or_else(|| Some(self.tokens.authenticate(now, &self.store, token, &[])?.0));
        let mut user = user.ok_or_else(|| StatusError::plain(401, "Unauthorized", "Unauthorized"))?;
        let authenticated = "system:authenticated";
        if !user.groups.iter().any(|group| group == authenticated) {
            user.groups.push(authenticated.to_owned());
        }
        Ok(user)
    }

    fn authorize(&self, call: &Call) -> Result<()> {
        let info = &call.info;
        let path = if info.is_resource { "" } else { &info.path };
        let wants = Attributes {
            verb: info.verb,
            group: &info.group,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path,
        };
        auth::authorize(&self.store, &call.user, &wants)
    }

    fn route(&mut self, call: &Call, method: &Method) -> Result<Replied> {
        let info = &call.info;
        if !info.is_resource {
            return Ok(discovery::answer(self, &info.path, method).into());
        }
        if let Some(reply) = reviews::answer(self, call) {
            return Ok(reply?.into());
        }
        let Some(endpoint) = self.endpoints.get(&info.group, &info.version, &info.resource).cloned() else {
            if self
                .endpoints
                .iter()
                .any(|it| it.custom.is_none() && it.info.group == info.group && it.info.version == info.version)
            {
                return Err(StatusError {
                    details: serde_json::json!({}),
                    ..StatusError::plain(404, "NotFound", "the server could not find the requested resource")
                });
            }
            return Ok(page_not_found().into());
        };
        let in_namespace = !info.namespace.is_empty() && endpoint.resource != "namespaces";
        let across = matches!(info.verb, "list" | "watch");
        if in_namespace && !endpoint.namespaced || endpoint.namespaced && !in_namespace && !across {
            if endpoint.namespaced && info.verb == "deletecollection" && endpoint.custom.is_none() {
                return Err(Self::not_allowed());
            }
            return Ok(page_not_found().into());
        }
        match (info.subresource.as_str(), info.verb) {
            ("", "get") => self.get_object(call, &endpoint),
            ("", "list") => self.list(call, &endpoint).map(Into::into),
            ("", "watch") => self.watch(call, &endpoint).map(Into::into),
            // The server of custom resources takes no notice of a name in the path.
            ("", "create") if info.name.is_empty() || endpoint.custom.is_some() => self.create(call, &endpoint),
            ("", "update") => self.update(call, &endpoint),
            ("", "patch") => self.patch(call, &endpoint),
            ("", "delete") => self.delete(call, &endpoint),
            ("", "deletecollection") => self.delete_collection(call, &endpoint),
            ("token", "create") if info.resource == "serviceaccounts" => self.create_token(call, &endpoint),
            ("finalize", "update") if info.resource == "namespaces" => self.update(call, &endpoint),
            ("status", verb) if endpoint.info.status => match verb {
                "get" => self.get_object(call, &endpoint),
                "update" => self.update(call, &endpoint),
                "patch" => self.patch(call, &endpoint),
                _ => Err(Self::not_allowed()),
            },
            ("", _) => Err(Self::not_allowed()),
            ("token", _) if info.resource == "serviceaccounts" => Err(Self::not_allowed()),
            _ if endpoint.custom.is_some() => Err(StatusError::not_found(call.about())),
            _ => Err(StatusError {
                details: serde_json::json!({}),
                ..StatusError::plain(404, "NotFound", "the server could not find the requested resource")
            }),
        }
    }

    fn not_allowed() -> StatusError {
        let message = "the server does not allow this method on the requested resource";
        StatusError {
            details: serde_json::json!({}),
            ..StatusError::plain(405, "MethodNotAllowed", message)
        }
    }

    fn get_object(&self, call: &Call, endpoint: &Arc<Endpoint>) -> Result<Replied> {
        let stored = self.store.get(&call.key(endpoint));
        let stored = stored.ok_or_else(|| StatusError::not_found(call.about()))?;
        self.check_not_ahead(&call.parameters.resource_version)?;
        Ok(Reply::Object(200, Arc::clone(stored), Arc::clone(endpoint)).into())
    }
}
