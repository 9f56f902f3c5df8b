//! Sends requests about objects of any kind. It decides nothing and retries nothing.

use std::{borrow::Cow, time::Duration};

use bindery_runtime::{client::Clients, errors};
use http::{Method, Request, header};
use kube::Client;
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{kinds::Resource, object::ObjectRef, wire::FIELD_MANAGER};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// Media type of answers to writes: metadata only, because the content is known.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Media type of lists whose objects are only counted.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Greatest time for the answer to a large request.
const LONG: Duration = Duration::from_mins(1);

/// A client of one API server.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    clients: Clients,
}

/// The address of one object of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub resource: &'a Resource,
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

/// The metadata of an object after a write.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Written {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub generation: Option<i64>,
}

/// The version of an object that a request is for. If another object has the name, or the object has changed, the
/// request is a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exactly<'a> {
    pub uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<&'a str>,
}

/// How the dependents of a deleted object are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Propagation {
    /// After the object.
    Background,
    /// Before the object.
    Foreground,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: Written,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Option<Vec<Value>>,
}

// === impl Rest ===

impl Rest {
    pub(crate) fn new(clients: Clients) -> Self {
        Self { clients }
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Lists all objects of a kind, in a namespace or in all, in one request. `None` if the kind is not served.
    pub(crate) async fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Option<Vec<Value>>, kube::Error> {
        let mut path = collection(resource, namespace);
        if let Some(labels) = labels {
            path.push_str("?labelSelector=");
            path.push_str(&labels.replace('=', "%3D"));
        }
        let list: List = match in_time(send(&self.clients.watch, Method::GET, &path, None, JSON)).await {
            Err(error) if errors::is_not_found(&error) => return Ok(None),
            answer => answer?,
        };
        let mut items = list.items.unwrap_or_default();
        for item in &mut items {
            name_kind(item, resource);
        }
        Ok(Some(items))
    }

    /// Whether the API server answers lists of a kind. Right after the kind came to be served, it does not for a
    /// moment.
    pub(crate) async fn answers(&self, resource: &Resource) -> Result<bool, kube::Error> {
        let path = format!("{}?limit=1", collection(resource, None));
        match send::<IgnoredAny>(&self.clients.write, Method::GET, &path, None, METADATA_LIST).await {
            Err(error) if errors::is_not_found(&error) || errors::is_transient(&error) => Ok(false),
            Err(error) if errors::is_forbidden(&error) => Ok(true),
            answer => answer.map(|_| true),
        }
    }

    /// Reads one object. `None` if the object or its kind does not exist.
    pub(crate) async fn get(&self, place: Place<'_>) -> Result<Option<Value>, kube::Error> {
        match send(&self.clients.write, Method::GET, &place.path(), None, JSON).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if errors::is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads any JSON document.
    pub(crate) async fn document<T: DeserializeOwned>(&self, path: &str, accept: &str) -> Result<T, kube::Error> {
        in_time(send(&self.clients.watch, Method::GET, path, None, accept)).await
    }

    /// Creates an object.
    pub(crate) async fn create(&self, place: Place<'_>, body: &impl Serialize) -> Result<Written, kube::Error> {
        let path = collection(place.resource, place.namespace);
        self.write(
            Method::POST,
            &format!("{path}?fieldManager={FIELD_MANAGER}"),
            (JSON, body),
        )
        .await
    }

    /// Sends a server-side apply.
    pub(crate) async fn apply(&self, place: Place<'_>, body: &impl Serialize) -> Result<Written, kube::Error> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force=true", place.path());
        self.write(Method::PATCH, &path, (APPLY, body)).await
    }

    /// Returns the result that [`Rest::apply`] would have, by a dry run.
    pub(crate) async fn dry_run(&self, place: Place<'_>, body: &impl Serialize) -> Result<Value, kube::Error> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force=true&dryRun=All", place.path());
        let body = (APPLY, encode(body)?);
        send(&self.clients.write, Method::PATCH, &path, Some(body), JSON).await
    }

    /// Sends a merge patch.
    pub(crate) async fn merge(&self, place: Place<'_>, change: &impl Serialize) -> Result<Written, kube::Error> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", place.path());
        self.write(Method::PATCH, &path, (MERGE, change)).await
    }

    /// Sends a JSON patch.
    pub(crate) async fn patch(&self, place: Place<'_>, operations: &impl Serialize) -> Result<Written, kube::Error> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", place.path());
        self.write(Method::PATCH, &path, (JSON_PATCH, operations)).await
    }

    /// Deletes an object. Returns true if it existed.
    pub(crate) async fn delete(
        &self,
        place: Place<'_>,
        exactly: Exactly<'_>,
        propagation: Propagation,
    ) -> Result<bool, kube::Error> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": exactly, "propagationPolicy": propagation,
        });
        match self.write(Method::DELETE, &place.path(), (JSON, &options)).await {
            Ok(_) => Ok(true),
            Err(error) if errors::is_object_gone(&error, place.name) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn write(
        &self,
        method: Method,
        path: &str,
        (content_type, body): (&'static str, &impl Serialize),
    ) -> Result<Written, kube::Error> {
        let body = (content_type, encode(body)?);
        let answer: Answer = send(&self.clients.write, method, path, Some(body), METADATA_ONLY).await?;
        Ok(answer.metadata)
    }
}

// === impl Exactly ===

impl<'a> Exactly<'a> {
    /// Names the object with this UID, in any version.
    pub(crate) fn uid(uid: &'a str) -> Self {
        Self {
            uid,
            resource_version: None,
        }
    }

    /// Names an object in the version that was read.
    pub(crate) fn as_read(live: &'a Value) -> Option<Self> {
        let metadata = &live["metadata"];
        Some(Self {
            uid: metadata["uid"].as_str()?,
            resource_version: metadata["resourceVersion"].as_str(),
        })
    }
}

// === impl Place ===

impl<'a> Place<'a> {
    pub(crate) fn of(resource: &'a Resource, object: &'a ObjectRef) -> Self {
        Self {
            resource,
            namespace: object.namespace.as_deref(),
            name: &object.name,
        }
    }

    fn path(&self) -> String {
        let collection = collection(self.resource, self.namespace);
        format!("{collection}/{}", segment(self.name))
    }
}

/// Escapes a name for a path. Some kinds allow nearly all characters in names.
fn segment(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte);
    if name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let encoded = name.bytes().map(|byte| {
        if is_plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    Cow::Owned(encoded.collect())
}

/// Returns the path of a collection.
fn collection(resource: &Resource, namespace: Option<&str>) -> String {
    let gvk = &resource.gvk;
    let root = if gvk.group.is_empty() { "api" } else { "apis" };
    match namespace.filter(|_| resource.namespaced) {
        Some(namespace) => format!(
            "/{root}/{}/namespaces/{namespace}/{}",
            gvk.api_version(),
            resource.plural
        ),
        None => format!("/{root}/{}/{}", gvk.api_version(), resource.plural),
    }
}

/// Adds apiVersion and kind to an item of a list, which items lack.
fn name_kind(item: &mut Value, resource: &Resource) {
    if let Value::Object(fields) = item {
        fields.insert("apiVersion".to_owned(), resource.gvk.api_version().into());
        fields.insert("kind".to_owned(), resource.gvk.kind.clone().into());
    }
}

fn encode(body: &impl Serialize) -> Result<Vec<u8>, kube::Error> {
    serde_json::to_vec(body).map_err(kube::Error::SerdeError)
}

/// Limits the time of a request. The client sets no limit, because it also serves watches.
async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    timeout(LONG, request).await.unwrap_or_else(|_| {
        let silent = format!("no answer within {LONG:?}");
        Err(kube::Error::Service(silent.into()))
    })
}

/// Sends a request. Unlike the client's own parsing, it does not log answers that cannot be parsed, because they may be
/// Secrets.
async fn send<T: DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<(&'static str, Vec<u8>)>,
    accept: &str,
) -> Result<T, kube::Error> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, accept);
    let mut content = Vec::new();
    if let Some((content_type, body)) = body {
        request = request.header(header::CONTENT_TYPE, content_type);
        content = body;
    }
    let request = request.body(content).map_err(kube::Error::HttpError)?;
    let text = client.request_text(request).await?;
    serde_json::from_str(&text).map_err(kube::Error::SerdeError)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Gvk;

    #[track_caller]
    fn check(api_version: &str, namespaced: bool, namespace: Option<&str>, expect: &str) {
        let resource = Resource {
            gvk: Gvk::new(api_version, "Thing"),
            plural: "things".to_owned(),
            namespaced,
        };
        let place = Place {
            resource: &resource,
            namespace,
            name: "a",
        };
        assert_eq!(place.path(), expect);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_never_answers_is_not_waited_for_for_ever() {
        let service = tower::service_fn(|_: Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = Client::new(service, "default");
        let rest = Rest::new(Clients::of(client));
        let listed = rest.list(&crate::sets::resource(), None, None).await.unwrap_err();
        assert!(errors::is_transient(&listed), "{listed}");
        let explained = errors::explain(&listed);
        assert_eq!(explained, "cannot reach the API server: no answer within 60s");
        assert!(rest.document::<Value>("/apis", JSON).await.is_err());
    }

    #[test]
    fn no_name_is_more_than_a_name() {
        assert_eq!(segment("system:node-a.b_c"), "system:node-a.b_c");
        assert_eq!(segment("x?dryRun=All"), "x%3FdryRun%3DAll");
        assert_eq!(segment("a b/#%"), "a%20b%2F%23%25");
        assert_eq!(segment("ü"), "%C3%BC");
    }

    #[test]
    fn objects_have_paths() {
        check("v1", true, Some("shop"), "/api/v1/namespaces/shop/things/a");
        check("v1", false, None, "/api/v1/things/a");
        check("v1", false, Some("shop"), "/api/v1/things/a");
        check("x.y/v2", true, Some("shop"), "/apis/x.y/v2/namespaces/shop/things/a");
    }
}
