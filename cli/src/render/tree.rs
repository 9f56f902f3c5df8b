//! Draws trees, such as that of `status`: providers, with their bindings below.

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
    claims::{ClaimState, Known, selection, states},
    provider::kubeconfig::Credential,
    render::output::{age, joined, printable, span},
};

/// A binding, with what this cluster tells about its credentials.
#[derive(Serialize)]
pub(crate) struct BindingStatus {
    pub(crate) binding: APIServiceBinding,
    /// The bundle that made the binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bundle: Option<String>,
    pub(crate) credential: CredentialStatus,
}

/// What this cluster tells about the credentials of a binding.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CredentialStatus {
    /// Namespace and name of the Secret.
    pub(crate) secret: String,
    /// URL of the provider's API server.
    pub(crate) server: Option<String>,
    /// When the token for the API server expires.
    pub(crate) expires: Option<Timestamp>,
    /// When the token expires by which the konnector renews the credentials.
    pub(crate) renewable_until: Option<Timestamp>,
    /// Whether the konnector holds credentials that are newer than those in the Secret.
    pub(crate) renewed: bool,
    /// Why the other fields are unknown, if they are.
    pub(crate) problem: Option<String>,
}

impl BindingStatus {
    /// Few users may read Secrets, so a credential that cannot be read is part of the status, and no failure.
    pub(crate) fn new(
        binding: APIServiceBinding,
        bundle: Option<String>,
        newest: Result<(Credential, bool), String>,
    ) -> Self {
        let secret = binding.spec.kubeconfig_secret_ref.to_string();
        let credential = match newest {
            Ok((credential, renewed)) => CredentialStatus {
                secret,
                server: Some(credential.server),
                expires: credential.expires,
                renewable_until: credential.renewable_until,
                renewed,
                problem: None,
            },
            Err(problem) => CredentialStatus {
                secret,
                problem: Some(problem),
                ..CredentialStatus::default()
            },
        };
        Self {
            binding,
            bundle,
            credential,
        }
    }
}

/// A line of a tree, with the nodes below it.
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

/// Draws one tree: a root with its nodes.
pub(crate) fn draw(root: &str, below: &[Node]) -> String {
    let mut text = String::new();
    line(&mut text, "", root);
    branches(&mut text, "", below);
    text
}

/// Draws the bindings, a tree for each provider. With `wide`, conditions that are True are shown too.
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
    let (sign, state) = BindingState::of(binding).shown();
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
        text: format!("{sign} {}  {state}, {}", binding.name_any(), age(created, now)),
        below,
    }
}

/// The claims of the binding, each with its state unless that is in effect; none if there are no claims.
fn claims(binding: &APIServiceBinding) -> Option<String> {
    let claims: Vec<_> = states(binding, &Known::default())
        .into_iter()
        .map(|claim| {
            let all = claim.said.iter().find(|known| known.selector.selects_all());
            match (claim.state, all) {
                (ClaimState::InEffect, Some(all)) => format!("{} ({})", claim.resource, selection(all)),
                (ClaimState::InEffect, None) => claim.resource.to_string(),
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

/// How a binding stands, as its first line shows it.
#[derive(Clone, Copy)]
enum BindingState {
    Ready,
    NotReady,
    NotSeen,
    Deleting,
}

impl BindingState {
    fn of(binding: &APIServiceBinding) -> Self {
        if binding.metadata.deletion_timestamp.is_some() {
            return Self::Deleting;
        }
        match binding.condition(conditions::READY).map(|ready| ready.status) {
            Some(ConditionStatus::True) => Self::Ready,
            Some(ConditionStatus::False) => Self::NotReady,
            _ => Self::NotSeen,
        }
    }

    /// The state as a sign and in words.
    fn shown(self) -> (char, &'static str) {
        match self {
            Self::Ready => ('✓', "ready"),
            Self::NotReady => ('✗', "not ready"),
            Self::NotSeen => ('…', "not seen by the konnector yet"),
            Self::Deleting => ('…', "being unbound"),
        }
    }
}

fn credentials(credential: &CredentialStatus, now: Timestamp) -> String {
    if let Some(problem) = &credential.problem {
        return problem.clone();
    }
    let mut text = format!("Secret {}", credential.secret);
    if credential.renewed {
        text.push_str(", renewed by the konnector");
    }
    let _ = match credential.expires {
        None => write!(text, ", no expiry"),
        Some(expires) => write!(text, ", {}", until("expired", "expires in", expires, now)),
    };
    if let Some(renewable) = credential.renewable_until {
        let _ = write!(text, ", {}", until("renewable until", "renewable for", renewable, now));
    }
    text
}

fn until(past: &str, future: &str, at: Timestamp, now: Timestamp) -> String {
    match at.as_second() - now.as_second() {
        seconds @ 1.. => format!("{future} {}", span(seconds)),
        seconds => format!("{past} {} ago", span(-seconds)),
    }
}

/// Whether a condition is shown: one that does not hold, or that tells of orphans. Ready is left out: the mark shows it, and its message
/// is that of another condition.
fn is_news(condition: &Condition) -> bool {
    match condition.type_.as_str() {
        conditions::READY => false,
        conditions::ORPHANED_OBJECTS => true,
        _ => !condition.is_true(),
    }
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
