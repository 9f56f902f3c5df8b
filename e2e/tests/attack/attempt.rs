//! One request of an attacker, and what became of it.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use axum::body::{Body, to_bytes};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Method, Request, StatusCode, header::CONTENT_TYPE};
use kube::Client;
use serde_json::Value;
use tokio::time::timeout;

/// Requests under way at once.
pub(crate) const CONCURRENCY: usize = 32;
/// How much of a list of failures is shown.
const SHOWN: usize = 25;
/// Longest answer.
const ANSWER_MAX: usize = 64 << 20;
/// On what contracts write, and on requests.
const POLICIES: [&str; 2] = ["kube-bind-binder", "kube-bind-requests"];
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_mins(2);

/// What must become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// It is the caller's own right.
    Own,
    /// RBAC refuses it.
    Forbidden,
    /// RBAC cannot tell whose the object is, or who asks in it, and a policy refuses it.
    Policy,
}

/// A request to an API server.
pub(crate) struct Attempt {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Content type and content.
    pub(crate) body: Option<(&'static str, Value)>,
    /// More headers.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) expect: Expect,
}

/// What an API server answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// Sends one request and reads its answer; of a watch only the beginning.
pub(crate) async fn send(
    client: &Client,
    method: &Method,
    path: &str,
    body: Option<&(&'static str, Value)>,
    headers: &[(&'static str, String)],
) -> Result<Answer> {
    let mut request = Request::builder().method(method).uri(path);
    for (key, value) in headers {
        request = request.header(*key, value);
    }
    let content = match body {
        Some((content_type, content)) => {
            request = request.header(CONTENT_TYPE, *content_type);
            serde_json::to_vec(content)?
        }
        None => Vec::new(),
    };
    let sent = client.send(request.body(content.into())?);
    let outcome = timeout(PATIENCE, async {
        let response = sent.await?;
        let status = response.status();
        // A watch that was let in goes on; that it was let in is all there is to know.
        let body = if path.contains("watch=") && status.is_success() {
            Bytes::new()
        } else {
            to_bytes(Body::new(response.into_body()), ANSWER_MAX).await?
        };
        anyhow::Ok(Answer { status, body })
    });
    outcome
        .await
        .with_context(|| format!("{method} {path}"))?
        .with_context(|| format!("{method} {path}"))
}

/// Makes all attempts; an error names those that ended otherwise than they must.
pub(crate) async fn all(client: &Client, attempts: &[Attempt]) -> Result<()> {
    ensure!(!attempts.is_empty(), "nothing was attempted");
    let failures: Vec<_> = stream::iter(attempts)
        .map(|attempt| attempt.run(client))
        .buffer_unordered(CONCURRENCY)
        .filter_map(async |outcome| outcome.err())
        .collect()
        .await;
    if failures.is_empty() {
        return Ok(());
    }
    let shown: Vec<_> = failures.iter().take(SHOWN).map(|error| format!("{error:#}")).collect();
    bail!(
        "{} of {} attempts:\n{}",
        failures.len(),
        attempts.len(),
        shown.join("\n")
    )
}

// === impl Attempt ===

impl Attempt {
    /// A request without content.
    pub(crate) fn new(method: Method, path: String, expect: Expect) -> Self {
        Self {
            method,
            path,
            body: None,
            headers: Vec::new(),
            expect,
        }
    }

    async fn run(&self, client: &Client) -> Result<()> {
        let answer = send(client, &self.method, &self.path, self.body.as_ref(), &self.headers).await?;
        let fits = match self.expect {
            // One that lost a race with a controller was let in as well.
            Expect::Own => answer.status.is_success() || answer.status == StatusCode::CONFLICT,
            Expect::Forbidden => answer.is_forbidden(),
            Expect::Policy => answer.is_refused_by_policy(),
        };
        ensure!(fits, "{self:?} should be {:?}, and: {answer:?}", self.expect);
        Ok(())
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        if let Some((content_type, content)) = &self.body {
            write!(f, " {content_type} {content}")?;
        }
        Ok(())
    }
}

// === impl Answer ===

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// RBAC's refusal: of the request itself, or of acting as somebody else.
    fn is_forbidden(&self) -> bool {
        self.status == StatusCode::FORBIDDEN && self.text().contains(" cannot ")
    }

    /// The refusal of one of our policies.
    fn is_refused_by_policy(&self) -> bool {
        let text = self.text();
        let mut ours = POLICIES
            .into_iter()
            .map(|name| format!("ValidatingAdmissionPolicy '{name}'"));
        [StatusCode::FORBIDDEN, StatusCode::UNPROCESSABLE_ENTITY].contains(&self.status)
            && ours.any(|policy| text.contains(&policy))
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.text().chars().take(300).collect();
        write!(f, "{} {text}", self.status)
    }
}
