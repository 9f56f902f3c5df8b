//! Renders facts and findings as a tree.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{BindingLink, CopyLocation, EventFacts, Facts, Finding, Level, ObjectFacts, Relation, Seen};
use crate::render::{
    output::age,
    tree::{self, Node},
};

/// The most events that are shown.
const EVENTS_MAX: usize = 5;

/// Renders the object as the root, what is known of both clusters below it, and the findings last. Of the konnector's reports only those
/// are shown that no finding repeats.
pub(crate) fn render(facts: &Facts, lines: &[Finding], now: Timestamp) -> String {
    let mut below = vec![Node::leaf(format!("here: {}", side(&facts.object, now)))];
    below.extend(facts.links.iter().map(|link| self::link(link, now)));
    if let Seen::Is(events) = &facts.events {
        let untold = events.iter().filter(|event| !event.is_told(lines));
        let reported: Vec<_> = untold
            .take(EVENTS_MAX)
            .map(|event| Node::leaf(self::event(event, now)))
            .collect();
        if !reported.is_empty() {
            below.push(Node {
                text: "reported by the konnector".to_owned(),
                below: reported,
            });
        }
    }
    below.extend(lines.iter().map(|line| finding(line, now)));
    tree::draw(&facts.title(), &below)
}

fn link(link: &BindingLink, now: Timestamp) -> Node {
    let mut text = match &link.binding {
        Seen::Is(binding) => format!("binding {}", binding.name),
        Seen::Absent => "no binding".to_owned(),
        Seen::Unknown(_) => "a binding that you cannot read".to_owned(),
    };
    if let Relation::Claimed(claim) = &link.relation {
        text.push_str(if claim.rejected {
            ", which rejects the claim"
        } else {
            ", by a claim"
        });
    }
    if let Some(contract) = link.binding.is().and_then(|binding| binding.contract.as_deref()) {
        let _ = write!(text, ", contract {contract}");
    }
    if let Some(server) = &link.server {
        let _ = write!(text, " at {server}");
    }
    let mut below = Vec::new();
    match (&link.copy, &link.place) {
        (Seen::Is(copy), _) => below.push(Node::leaf(format!("there: {}, {}", copy.key(), side(&link.copy, now)))),
        (_, Seen::Is(CopyLocation::At { namespace, name })) => {
            let key = if namespace.is_empty() {
                name.clone()
            } else {
                format!("{namespace}/{name}")
            };
            below.push(Node::leaf(format!("there: {key}, {}", side(&link.copy, now))));
        }
        (_, Seen::Is(CopyLocation::Unmapped { namespace, .. })) => {
            below.push(Node::leaf(format!("there: no namespace for namespace {namespace}")));
        }
        (_, Seen::Absent | Seen::Unknown(_)) => below.push(Node::leaf(format!("there: {}", side(&link.copy, now)))),
    }
    Node { text, below }
}

fn side(seen: &Seen<ObjectFacts>, now: Timestamp) -> String {
    let object = match seen {
        Seen::Is(object) => object,
        Seen::Absent => return "not there".to_owned(),
        Seen::Unknown(_) => return "cannot be read".to_owned(),
    };
    let mut text = format!("{} old", age(object.created, now));
    if let Some(written) = object.written {
        let _ = write!(text, ", written by the konnector {} ago", age(Some(written), now));
    }
    if let Some(deleting) = object.deleting {
        let _ = write!(text, ", being deleted for {}", age(Some(deleting), now));
    }
    text
}

fn event(event: &EventFacts, now: Timestamp) -> String {
    format!("{} ago, {}: {}", age(event.at, now), event.reason, event.message)
}

fn finding(line: &Finding, now: Timestamp) -> Node {
    let mark = match line.level {
        Level::Well => '✓',
        Level::Waits => '…',
        Level::Broken => '✗',
        Level::Unknown => '?',
    };
    let mut text = format!("{mark} {}", line.what);
    if let Some(since) = line.since.filter(|_| line.level != Level::Well) {
        let _ = write!(text, ", since {}", age(Some(since), now));
    }
    let waits = line
        .waiting_for
        .iter()
        .map(|whom| Node::leaf(format!("waits for {whom}")));
    let mend = line.mend.iter().map(|mend| Node::leaf(format!("mend: {mend}")));
    Node {
        text,
        below: waits.chain(mend).collect(),
    }
}
