//! Explains where an object is and what it waits for: a pure function from facts to findings. `commands::why` reads the facts.

mod bound;
mod claimed;
mod compare;
mod object;
mod place;
mod render;
mod select;

use bindery_api::{Condition, v1alpha2::PermissionClaim};
use jiff::Timestamp;
use serde::Serialize;

pub(crate) use compare::difference;
pub(crate) use object::{Marked, ObjectFacts};
pub(crate) use place::{CopyLocation, MappedNamespaces, claimed_place, place};
pub(crate) use render::render;
pub(crate) use select::{named_by, selected_by};

use crate::consumer::kinds::Kind;

/// The outcome of a read of `T`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Seen<T> {
    /// It exists.
    Is(T),
    /// It does not exist.
    #[default]
    Absent,
    /// It could not be read; the text says why.
    Unknown(String),
}

/// All that was read about an object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    /// The object's namespace; empty for a cluster-scoped object.
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The object on this cluster.
    pub(crate) object: Seen<ObjectFacts>,
    /// The konnector's events about the object, the newest first.
    pub(crate) events: Seen<Vec<EventFacts>>,
    /// The bindings that bring its API or claim its resource.
    pub(crate) links: Vec<BindingLink>,
}

/// A binding that brings an object's API or claims its resource, and the object's counterpart on the provider.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BindingLink {
    pub(crate) binding: Seen<BindingFacts>,
    pub(crate) relation: Relation,
    /// URL of the provider's API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// Where the counterpart on the provider belongs.
    pub(crate) place: Seen<CopyLocation>,
    /// The provider's object at that place.
    pub(crate) copy: Seen<ObjectFacts>,
    /// The export lets consumers overwrite each other's objects.
    pub(crate) last_wins: bool,
}

/// How a binding concerns an object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Relation {
    /// The binding brings the object's API.
    Bound,
    /// The provider of the binding claims the object's resource.
    Claimed(ClaimFacts),
}

/// The claims of a binding on a resource, and whether they select the object.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimFacts {
    /// The claims in effect.
    pub(crate) claims: Vec<PermissionClaim>,
    /// The binding rejects claims on the resource.
    pub(crate) rejected: bool,
    /// By what the claims in effect select the object, in words; absent if they do not select it.
    pub(crate) selected: Seen<String>,
    /// The namespaces that the claims of the binding concern, if that of the object is none of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) elsewhere: Vec<String>,
    /// The claims of the export that the binding has not accepted.
    pub(crate) not_accepted: Vec<PermissionClaim>,
    /// By what those would select the object, in words; absent if they would not.
    pub(crate) would_select: Seen<String>,
}

/// What was read about a binding.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BindingFacts {
    pub(crate) name: String,
    /// The contract namespace.
    pub(crate) contract: Option<String>,
    /// The namespace of its kubeconfig Secret, which is the konnector namespace.
    pub(crate) home: String,
    /// The bundle that made the binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bundle: Option<String>,
    pub(crate) paused: bool,
    pub(crate) deleting: Option<Timestamp>,
    pub(crate) conditions: Vec<Condition>,
}

/// One event about the object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventFacts {
    pub(crate) at: Option<Timestamp>,
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// One sentence of the explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// What was found.
    pub(crate) what: String,
    /// Since when it has been so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    /// Who has to act for it to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_for: Option<String>,
    /// What the user can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<String>,
}

/// How good or bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Level {
    /// Nothing is wrong.
    Well,
    /// It is under way.
    Waits,
    /// Somebody has to act.
    Broken,
    /// It could not be read.
    Unknown,
}

// === impl Seen ===

impl<T> Seen<T> {
    pub(crate) fn of(read: Result<Option<T>, String>) -> Self {
        match read {
            Ok(Some(found)) => Self::Is(found),
            Ok(None) => Self::Absent,
            Err(why) => Self::Unknown(why),
        }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Seen<U> {
        match self {
            Self::Is(found) => Seen::Is(change(found)),
            Self::Absent => Seen::Absent,
            Self::Unknown(why) => Seen::Unknown(why),
        }
    }

    pub(crate) fn is(&self) -> Option<&T> {
        match self {
            Self::Is(found) => Some(found),
            Self::Absent | Self::Unknown(_) => None,
        }
    }
}

// === impl Finding ===

impl Finding {
    fn new(level: Level, what: impl Into<String>) -> Self {
        Self {
            level,
            what: what.into(),
            since: None,
            waiting_for: None,
            mend: None,
        }
    }

    fn unknown(what: &str, why: &str) -> Self {
        Self::new(Level::Unknown, format!("{what} cannot be read: {why}"))
    }

    fn since(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }

    fn waits_for(mut self, whom: impl Into<String>) -> Self {
        self.waiting_for = Some(whom.into());
        self
    }

    fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}

// === impl EventFacts ===

impl EventFacts {
    /// Whether a finding says the same.
    fn is_told(&self, findings: &[Finding]) -> bool {
        findings.iter().any(|finding| finding.what.contains(&self.message))
    }
}

// === impl Facts ===

impl Facts {
    /// Tells whether neither the object nor anything of its name on a provider exists.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.object == Seen::Absent && self.links.iter().all(|link| link.copy == Seen::Absent)
    }

    /// The object as `Kind name` or `Kind namespace/name`.
    pub(crate) fn title(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{} {}", self.kind.name, self.name),
            namespace => format!("{} {namespace}/{}", self.kind.name, self.name),
        }
    }
}

/// Lists the findings about an object.
pub(crate) fn diagnose(facts: &Facts) -> Vec<Finding> {
    let mut lines = Vec::new();
    if facts.links.is_empty() {
        lines.push(unrelated(facts));
    }
    for link in &facts.links {
        lines.extend(match &link.relation {
            Relation::Bound => bound::lines(facts, link),
            Relation::Claimed(claim) if claimed::is_worth_a_word(facts, claim) => claimed::lines(facts, link, claim),
            Relation::Claimed(_) => Vec::new(),
        });
    }
    match &facts.events {
        Seen::Is(events) if lines.iter().any(|line| line.level != Level::Well) => {
            let newest = events.iter().find(|event| event.warning);
            let untold = newest.filter(|event| !event.is_told(&lines));
            lines.extend(untold.map(reported));
        }
        Seen::Unknown(why) => lines.push(Finding::unknown("what the konnector reported about it", why)),
        Seen::Is(_) | Seen::Absent => {}
    }
    lines
}

fn unrelated(facts: &Facts) -> Finding {
    if let Seen::Unknown(why) = &facts.object {
        return Finding::unknown("the object", why);
    }
    Finding::new(
        Level::Well,
        format!(
            "no binding of this cluster brings or claims {}: its objects stay here",
            facts.kind.resource()
        ),
    )
}

fn reported(event: &EventFacts) -> Finding {
    Finding::new(
        Level::Broken,
        format!("the konnector reported {}: {}", event.reason, event.message),
    )
    .since(event.at)
}

#[cfg(test)]
mod tests;
