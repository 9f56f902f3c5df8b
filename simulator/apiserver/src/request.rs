//! Reads what a request wants from its method, path, query and headers.

use http::{HeaderMap, Method, Uri, header};

use crate::status::{Cause, StatusError};

/// What a request is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestInfo {
    /// Verb of RBAC, such as `deletecollection`.
    pub(crate) verb: &'static str,
    /// If the request is about a resource, and not about another path.
    pub(crate) is_resource: bool,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) name: String,
    pub(crate) path: String,
}

/// Parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) limit: usize,
    pub(crate) continues: String,
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: String,
    pub(crate) labels: String,
    pub(crate) fields: String,
    pub(crate) watch: bool,
    pub(crate) bookmarks: bool,
    pub(crate) initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<i64>,
    pub(crate) dry_run: Vec<String>,
    pub(crate) field_manager: String,
    pub(crate) field_validation: String,
    pub(crate) force: Option<bool>,
    pub(crate) propagation: Option<String>,
    pub(crate) orphan_dependents: Option<bool>,
}

impl RequestInfo {
    /// Takes a path apart as the API server does.
    pub(crate) fn read(method: &Method, uri: &Uri, parameters: &Parameters) -> Self {
        let path = uri.path();
        let other = Self {
            verb: match *method {
                Method::POST => "post",
                Method::PUT => "put",
                Method::PATCH => "patch",
                Method::DELETE => "delete",
                Method::HEAD => "head",
                _ => "get",
            },
            path: path.to_owned(),
            ..Self::default()
        };
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return other,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace] | ["namespaces", namespace, "status" | "finalize"] => (*namespace, rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default();
        let name = part(1);
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            _ if name.is_empty() && parameters.watch => "watch",
            _ if name.is_empty() => "list",
            _ => "get",
        };
        // A list of one object by its name is authorized like that object.
        let selected = parameters
            .fields
            .split(',')
            .find_map(|field| field.strip_prefix("metadata.name="))
            .filter(|_| name.is_empty() && matches!(verb, "list" | "watch" | "deletecollection"));
        Self {
            verb,
            is_resource: true,
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            resource: part(0).to_owned(),
            subresource: rest[2.min(rest.len())..].join("/"),
            name: selected.map_or(name, |name| name.trim_start_matches('=')).to_owned(),
            path: path.to_owned(),
        }
    }
}

impl Parameters {
    pub(crate) fn read(uri: &Uri) -> Self {
        let mut parameters = Self::default();
        let query = uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let text = || value.clone().into_owned();
            let flag = || matches!(&*value, "true" | "1");
            match &*name {
                "limit" => parameters.limit = value.parse().unwrap_or(0),
                "continue" => parameters.continues = text(),
                "resourceVersion" => parameters.resource_version = text(),
                "resourceVersionMatch" => parameters.resource_version_match = text(),
                "labelSelector" => parameters.labels = text(),
                "fieldSelector" => parameters.fields = text(),
                "watch" => parameters.watch = flag(),
                "allowWatchBookmarks" => parameters.bookmarks = flag(),
                "sendInitialEvents" => parameters.initial_events = Some(flag()),
                "timeoutSeconds" => parameters.timeout_seconds = value.parse().ok(),
                "dryRun" => parameters.dry_run.push(text()),
                "fieldManager" => parameters.field_manager = text(),
                "fieldValidation" => parameters.field_validation = text(),
                "force" => parameters.force = Some(flag()),
                "propagationPolicy" => parameters.propagation = Some(text()),
                "orphanDependents" => parameters.orphan_dependents = Some(flag()),
                _ => {}
            }
        }
        parameters
    }

    /// If the request is a dry run. `options` is the kind of the options, for the refusal of another word than `All`.
    pub(crate) fn is_dry_run(&self, options: &str) -> Result<bool, StatusError> {
        is_dry_run(&self.dry_run, options)
    }
}

/// If a list of `dryRun` asks for a dry run.
pub(crate) fn is_dry_run(words: &[String], options: &str) -> Result<bool, StatusError> {
    let words: Vec<&String> = words.iter().filter(|word| !word.is_empty()).collect();
    if words.iter().find(|word| **word != "All").is_none() {
        Ok(!words.is_empty())
    } else {
        let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
        let cause = Cause::not_supported("dryRun", &words.into(), &["All".into()]);
        Err(invalid_options(options, &[cause]))
    }
}

/// 422 for the options of a request.
pub(crate) fn invalid_options(kind: &str, causes: &[Cause]) -> StatusError {
    let about = crate::status::About {
        group: "meta.k8s.io",
        resource: kind,
        name: "",
    };
    StatusError::invalid(about, causes)
}

/// The bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The field manager of a request: the parameter, or else the program's name from the header `user-agent`.
pub(crate) fn manager(headers: &HeaderMap, parameters: &Parameters) -> String {
    const LENGTH_MAX: usize = 128;
    if !parameters.field_manager.is_empty() {
        return parameters.field_manager.clone();
    }
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let agent = agent.unwrap_or_default().split('/').next().unwrap_or_default();
    let manager: String = agent.chars().take(LENGTH_MAX).collect();
    if manager.is_empty() {
        "unknown".to_owned()
    } else {
        manager
    }
}

/// If the client wants only the metadata of objects.
pub(crate) fn wants_metadata(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let first = accept.unwrap_or_default().split(',').next().unwrap_or_default();
    first.contains("as=PartialObjectMetadata")
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::{Parameters, manager};

    #[test]
    fn the_manager_of_a_write_is_named_after_its_program() {
        let named = |field_manager: &str, agent: &str| {
            let value = HeaderValue::from_str(agent).expect("a header");
            let headers: HeaderMap = [(header::USER_AGENT, value)].into_iter().collect();
            let parameters = Parameters {
                field_manager: field_manager.to_owned(),
                ..Parameters::default()
            };
            manager(&headers, &parameters)
        };
        assert_eq!(named("m", "x/1"), "m");
        assert_eq!(named("", "kubectl/v1.34 (linux)"), "kubectl");
        assert_eq!(named("", &"a".repeat(200)), "a".repeat(128));
        assert_eq!(named("", ""), "unknown");
    }
}
