//! Where an object is and what it waits for: facts in, lines out. Pure: nothing is read or written here.

mod bound;
mod claimed;
mod compare;
mod kinds;
mod object;
mod place;
mod render;
mod select;

use bindery_api::{Condition, v1alpha2::PermissionClaim};
use jiff::Timestamp;
use serde::Serialize;

pub(crate) use compare::difference;
pub(crate) use kinds::{Kind, kinds, resolve};
pub(crate) use object::ObjectFacts;
pub(crate) use place::{Mapped, Place, claimed_place, place};
pub(crate) use render::render;
pub(crate) use select::{named_by, selected_by};

/// Something that was looked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Seen<T> {
    /// It is there.
    Is(T),
    /// It is not there.
    #[default]
    Absent,
    /// It could not be read, and why.
    Unknown(String),
}

/// All that was read of an object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    /// Empty for a cluster-scoped object.
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The object on this cluster.
    pub(crate) object: Seen<ObjectFacts>,
    /// What the konnector reported of it, the newest first.
    pub(crate) events: Seen<Vec<EventFacts>>,
    /// The bindings that have to do with it.
    pub(crate) links: Vec<Link>,
}

/// A binding that an object has to do with.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Link {
    pub(crate) binding: Seen<BindingFacts>,
    pub(crate) relation: Relation,
    /// URL of the provider's API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// Where its counterpart on the provider belongs.
    pub(crate) place: Seen<Place>,
    /// What stands there.
    pub(crate) copy: Seen<ObjectFacts>,
    /// Consumers of the export overwrite each other's objects by agreement.
    pub(crate) last_wins: bool,
}

/// What a binding has to do with an object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Relation {
    /// It brings the API.
    Bound,
    /// Its provider claims the resource.
    Claimed(ClaimFacts),
}

/// How the claims on a resource take an object.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimFacts {
    /// The claims in effect: of a rejected one nobody may say what it selects.
    pub(crate) claims: Vec<PermissionClaim>,
    /// The binding rejects them.
    pub(crate) rejected: bool,
    /// By what they select the object, in words; absent if they do not.
    pub(crate) selected: Seen<String>,
    /// What the provider claims now and nobody has accepted.
    pub(crate) not_accepted: Vec<PermissionClaim>,
    /// By what that selects the object.
    pub(crate) would_select: Seen<String>,
}

/// What is known of a binding.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BindingFacts {
    pub(crate) name: String,
    /// The contract namespace.
    pub(crate) contract: Option<String>,
    /// The namespace with its kubeconfig, which is the konnector's own.
    pub(crate) home: String,
    /// The bundle that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bundle: Option<String>,
    pub(crate) paused: bool,
    pub(crate) deleting: Option<Timestamp>,
    pub(crate) conditions: Vec<Condition>,
}

/// One event.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventFacts {
    pub(crate) at: Option<Timestamp>,
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    pub(crate) level: Level,
    /// What is so.
    pub(crate) what: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    /// Who has to act for it to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_for: Option<String>,
    /// What you can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<String>,
}

/// How good or bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Level {
    /// As it should be.
    Well,
    /// On its way.
    Waits,
    /// Somebody has to do something.
    Broken,
    /// Not to be seen.
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

// === impl Line ===

impl Line {
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
        Self::new(Level::Unknown, format!("{what} cannot be seen: {why}"))
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

// === impl Facts ===

impl Facts {
    /// Whether there is nothing to speak of: neither the object nor anything in its name on a provider.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.object == Seen::Absent && self.links.iter().all(|link| link.copy == Seen::Absent)
    }

    /// `Kind name` or `Kind namespace/name`.
    pub(crate) fn title(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{} {}", self.kind.name, self.name),
            namespace => format!("{} {namespace}/{}", self.kind.name, self.name),
        }
    }
}

/// What is so, for whom it waits, and what mends it.
pub(crate) fn diagnose(facts: &Facts) -> Vec<Line> {
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
            lines.extend(events.iter().filter(|event| event.warning).take(1).map(reported));
        }
        Seen::Unknown(why) => lines.push(Line::unknown("what the konnector reported of it", why)),
        Seen::Is(_) | Seen::Absent => {}
    }
    lines
}

fn unrelated(facts: &Facts) -> Line {
    if let Seen::Unknown(why) = &facts.object {
        return Line::unknown("the object", why);
    }
    Line::new(
        Level::Well,
        format!(
            "no binding of this cluster brings or claims {}: its objects stay here",
            facts.kind.resource()
        ),
    )
}

fn reported(event: &EventFacts) -> Line {
    Line::new(
        Level::Broken,
        format!("the konnector reported {}: {}", event.reason, event.message),
    )
    .since(event.at)
}

#[cfg(test)]
mod tests;
