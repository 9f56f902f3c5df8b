//! Reads from the audit log of an API server which requests each program sent.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::Workdir;

/// The audit policy logs each request of a ServiceAccount before the API server handles it, so that no write is missing.
const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts"]
  - level: None
"#;

/// The API server starts a new log file only above this size in MiB, which no test reaches: [`Audit`] reads the current file alone.
const SIZE_MAX: &str = "--audit-log-maxsize=1000000";

/// The audit log of one control plane.
#[derive(Clone, Debug)]
pub struct Audit {
    policy: PathBuf,
    log: PathBuf,
}

/// A position in an audit log: the length of the file at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// A request of a ServiceAccount to the API server, as the audit log has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The username of the sender.
    pub by: String,
    /// The verb, such as `patch`.
    pub verb: String,
    /// The API group of the resource; empty for the core group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for cluster-scoped objects and for requests to all namespaces.
    pub namespace: String,
    /// The name of the object; empty for a collection, and for a create, whose body has the name.
    pub name: String,
    /// Whether the request is a dry run.
    pub dry_run: bool,
    /// Whether the request gets a further page of a list.
    pub continues: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    user: User,
    object_ref: Option<ObjectRef>,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

// === impl Audit ===

impl Audit {
    /// Writes the policy for an API server that is about to start.
    pub(crate) fn prepare(workdir: &Workdir) -> Result<Self> {
        Ok(Self {
            policy: workdir.write("audit-policy.yaml", POLICY)?,
            log: workdir.write("audit.log", "")?,
        })
    }

    /// The flags with which the API server writes this log.
    pub(crate) fn flags(&self) -> [String; 3] {
        [
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
            SIZE_MAX.to_owned(),
        ]
    }

    /// Returns the current end of the log.
    pub fn now(&self) -> Result<Moment> {
        Ok(Moment(std::fs::metadata(&self.log)?.len()))
    }

    /// Returns all requests for resources from one moment to another, or to the end of the log.
    pub fn between(&self, from: Moment, to: Option<Moment>) -> Result<Vec<Asked>> {
        let events = self.events(from, to)?;
        Ok(events.into_iter().filter_map(Asked::from_event).collect())
    }

    /// Returns all requests for resources since a moment.
    pub fn since(&self, from: Moment) -> Result<Vec<Asked>> {
        self.between(from, None)
    }

    /// Returns the paths of the requests of a user since a moment that name no resource, such as `/apis`: discovery.
    pub fn about_nothing_since(&self, from: Moment, by: &str) -> Result<Vec<String>> {
        let events = self.events(from, None)?.into_iter();
        let about_nothing = events.filter(|event| event.object_ref.is_none() && event.user.username == by);
        Ok(about_nothing.map(|event| event.request_uri).collect())
    }

    fn events(&self, from: Moment, to: Option<Moment>) -> Result<Vec<Event>> {
        let mut file = File::open(&self.log).context("no audit log")?;
        file.seek(SeekFrom::Start(from.0))?;
        let length = to.map_or(u64::MAX, |to| to.0.saturating_sub(from.0));
        let mut text = String::new();
        file.take(length).read_to_string(&mut text)?;
        // The last line may be half written; so may the first be, of a moment that fell into it.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = whole.lines().filter_map(|line| serde_json::from_str(line).ok());
        Ok(events.collect())
    }
}

// === impl Asked ===

impl Asked {
    fn from_event(event: Event) -> Option<Self> {
        let object = event.object_ref?;
        Some(Self {
            by: event.user.username,
            verb: event.verb,
            group: object.api_group,
            resource: object.resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            dry_run: event.request_uri.contains("dryRun=All"),
            continues: event.request_uri.contains("continue="),
        })
    }

    /// Whether the request writes.
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }

    /// Whether the request is a watch.
    pub fn is_watch(&self) -> bool {
        self.verb == "watch"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(verb: &str, name: &str) -> String {
        let event = serde_json::json!({
            "stage": "RequestReceived", "verb": verb, "user": {"username": "system:serviceaccount:a:b"},
            "objectRef": {"apiGroup": "wildwest.dev", "resource": "cowboys", "namespace": "west", "name": name},
        });
        format!("{event}\n")
    }

    #[test]
    fn requests_are_told_by_the_moments_between_which_they_came() {
        let workdir = Workdir::new("audit").unwrap();
        let audit = Audit::prepare(&workdir).unwrap();
        let append = |text: &str| {
            let before = std::fs::read_to_string(&audit.log).unwrap();
            std::fs::write(&audit.log, before + text).unwrap();
        };
        let start = audit.now().unwrap();
        append(&line("patch", "first"));
        let then = audit.now().unwrap();
        append(&line("watch", ""));
        append("{\"half\": ");
        let names = |asked: Vec<Asked>| asked.into_iter().map(|asked| asked.name).collect::<Vec<_>>();
        assert_eq!(names(audit.between(start, Some(then)).unwrap()), ["first"]);
        let later = audit.since(then).unwrap();
        assert_eq!(later.len(), 1);
        assert!(later[0].is_watch() && !later[0].is_write());
        assert_eq!(audit.since(start).unwrap().len(), 2);
    }
}
