//! The bindings of a cluster as a tree. Pure: what is shown was read before.

use std::{collections::BTreeMap, fmt::Write as _};

use bindery_api::{
    Condition, Conditions as _,
    conditions::{self, ConditionStatus},
    v1alpha2::APIServiceBinding,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::{
    claims::{Known, State, selection, states},
    output::{age, joined, printable, span},
};

/// A binding and what is known of its credentials.
#[derive(Serialize)]
pub(crate) struct BindingStatus {
    pub(crate) binding: APIServiceBinding,
    /// The bundle that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bundle: Option<String>,
    pub(crate) credential: CredentialStatus,
}

/// What is known of the credentials of a binding.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CredentialStatus {
    /// Namespace and name of the Secret.
    pub(crate) secret: String,
    /// The provider's API server.
    pub(crate) server: Option<String>,
    /// When the token for it expires.
    pub(crate) expires: Option<Timestamp>,
    /// Until when the konnector can renew it by itself.
    pub(crate) renewable_until: Option<Timestamp>,
    /// Whether the konnector holds newer ones than the Secret.
    pub(crate) renewed: bool,
    /// Why nothing more is known.
    pub(crate) problem: Option<String>,
}

/// A line and what hangs below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) text: String,
    pub(crate) below: Vec<Self>,
}

impl Node {
    pub(crate) fn leaf(text: String) -> Self {
        Self {
            text,
            below: Vec::new(),
        }
    }
}

/// One root with what hangs below it.
pub(crate) fn draw(root: &str, below: &[Node]) -> String {
    let mut text = String::new();
    line(&mut text, "", root);
    branches(&mut text, "", below);
    text
}

/// The tree: one root per provider, below it its bindings. With `wide`, also conditions that hold.
pub(crate) fn render(bindings: &[BindingStatus], now: Timestamp, wide: bool) -> String {
    let mut providers: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    for status in bindings {
        providers
            .entry(provider(status))
            .or_default()
            .push(binding(status, now, wide));
    }
    let mut text = String::new();
    for (name, below) in providers {
        text.push_str(&draw(&name, &below));
    }
    text
}

fn provider(status: &BindingStatus) -> String {
    let known = status.binding.status.as_ref();
    let name = known
        .and_then(|known| known.provider_pretty_name.as_deref())
        .filter(|name| !name.is_empty());
    let mut text = name.unwrap_or("provider not known yet").to_owned();
    if let Some(contract) = known.and_then(|known| known.provider_namespace.as_deref()) {
        let _ = write!(text, ", contract {contract}");
    }
    if let Some(server) = &status.credential.server {
        let _ = write!(text, " at {server}");
    }
    text
}

fn binding(status: &BindingStatus, now: Timestamp, wide: bool) -> Node {
    let binding = &status.binding;
    let created = binding.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let mut below = vec![Node::leaf(format!("apis: {}", apis(binding)))];
    below.extend(
        status
            .bundle
            .iter()
            .map(|bundle| Node::leaf(format!("of bundle {bundle}"))),
    );
    below.extend(claims(binding).map(Node::leaf));
    below.push(Node::leaf(format!(
        "credentials: {}",
        credentials(&status.credential, now)
    )));
    let conditions = binding.conditions().iter();
    below.extend(
        conditions
            .filter(|condition| wide || is_news(condition))
            .map(|condition| Node::leaf(shown(condition, now))),
    );
    Node {
        text: format!(
            "{} {}  {}, {}",
            mark(binding),
            binding.name_any(),
            summary(binding),
            age(created, now)
        ),
        below,
    }
}

/// What the provider may see and write beside its API: what is in effect, and what of it is rejected.
fn claims(binding: &APIServiceBinding) -> Option<String> {
    let claims: Vec<_> = states(binding, &Known::default())
        .into_iter()
        .map(|claim| {
            let all = claim.said.iter().find(|known| known.selector.selects_all());
            match (claim.state, all) {
                (State::InEffect, Some(all)) => format!("{} ({})", claim.resource, selection(all)),
                (State::InEffect, None) => claim.resource.to_string(),
                (state, _) => format!("{} ({})", claim.resource, state.as_str()),
            }
        })
        .collect();
    (!claims.is_empty()).then(|| format!("claims: {}", claims.join(", ")))
}

fn apis(binding: &APIServiceBinding) -> String {
    let bound: Vec<_> = binding.status.iter().flat_map(|known| &known.bound_schemas).collect();
    match binding.annotations().get(bindery_api::annotations::RESOURCES) {
        Some(wanted) if bound.is_empty() => format!("{wanted} (not bound yet)"),
        _ => joined(bound),
    }
}

fn summary(binding: &APIServiceBinding) -> &'static str {
    if binding.metadata.deletion_timestamp.is_some() {
        return "being unbound";
    }
    match binding.condition(conditions::READY).map(|ready| ready.status) {
        Some(ConditionStatus::True) => "ready",
        Some(ConditionStatus::False) => "not ready",
        _ => "not seen by the konnector yet",
    }
}

fn mark(binding: &APIServiceBinding) -> char {
    match summary(binding) {
        "ready" => '✓',
        "not ready" => '✗',
        _ => '…',
    }
}

fn credentials(credential: &CredentialStatus, now: Timestamp) -> String {
    let mut text = format!("Secret {}", credential.secret);
    if let Some(problem) = &credential.problem {
        let _ = write!(text, ", {problem}");
        return text;
    }
    if credential.renewed {
        text.push_str(", renewed by the konnector");
    }
    let _ = match credential.expires {
        None => write!(text, ", no expiry"),
        Some(expires) => write!(text, ", {}", until("expired", "expires", expires, now)),
    };
    if let Some(renewable) = credential.renewable_until {
        let _ = write!(text, ", {}", until("renewable until", "renewable for", renewable, now));
    }
    text
}

fn until(past: &str, future: &str, at: Timestamp, now: Timestamp) -> String {
    let left = at.as_second() - now.as_second();
    match (left > 0, future) {
        (true, "expires") => format!("expires in {}", span(left)),
        (true, _) => format!("{future} {}", span(left)),
        (false, _) => format!("{past} {} ago", span(-left)),
    }
}

/// Ready is shown by the mark, and repeats what another condition says.
fn is_news(condition: &Condition) -> bool {
    condition.type_ != conditions::READY && !condition.is_true()
}

fn shown(condition: &Condition, now: Timestamp) -> String {
    let mut text = format!("{}={}", condition.type_, condition.status.as_str());
    if !condition.reason.is_empty() {
        let _ = write!(text, " ({})", condition.reason);
    }
    if !condition.message.is_empty() {
        let _ = write!(text, ": {}", condition.message);
    }
    let _ = write!(text, ", since {}", age(Some(condition.last_transition_time.0), now));
    text
}

fn branches(text: &mut String, indent: &str, nodes: &[Node]) {
    for (index, node) in nodes.iter().enumerate() {
        let last = index + 1 == nodes.len();
        let (branch, trunk) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        line(text, &format!("{indent}{branch}"), &node.text);
        branches(text, &format!("{indent}{trunk}"), &node.below);
    }
}

fn line(text: &mut String, lead: &str, rest: &str) {
    let _ = writeln!(text, "{lead}{}", printable(rest));
}

#[cfg(test)]
mod tests;
