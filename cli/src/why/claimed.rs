//! Findings about a claimed object, such as a Secret.

use bindery_api::{
    annotations,
    claims::{NeverClaimed, is_local_field, never_claimed},
};

use super::{
    BindingLink, ClaimFacts, Facts, Finding, Level, Relation, Seen,
    bound::of_binding,
    compare::{difference, difference_of_content},
    object::{Marked, ObjectFacts},
    place::CopyLocation,
};
use crate::claims::selection;

const KONNECTOR: &str = "the konnector of this cluster";
const PROVIDER: &str = "the provider";

/// Tells whether the claims of a binding are worth a finding: not if they leave the object alone while those of another binding
/// select it.
pub(super) fn is_worth_a_word(facts: &Facts, claim: &ClaimFacts) -> bool {
    let takes =
        |claim: &ClaimFacts| !claim.rejected && (claim.selected != Seen::Absent || claim.would_select != Seen::Absent);
    let of = |link: &super::BindingLink| matches!(&link.relation, Relation::Claimed(other) if takes(other));
    takes(claim) || !facts.links.iter().any(of)
}

/// Lists the findings about an object under the claims of one binding.
pub(super) fn lines(facts: &Facts, link: &BindingLink, claim: &ClaimFacts) -> Vec<Finding> {
    if let Some(why) = never(facts, link) {
        return vec![Finding::new(Level::Well, format!("it is never synced: {why}"))];
    }
    let object = match &facts.object {
        Seen::Is(object) => object,
        Seen::Absent => return absent(facts, link, claim),
        Seen::Unknown(why) => return vec![Finding::unknown("the object on this cluster", why)],
    };
    match object.marked() {
        Marked::OfProvider { contract, uid } => of_provider(facts, object, (contract, uid), link, claim),
        Marked::OfConsumer { contract, .. } => {
            vec![Finding::new(Level::Broken, format!("it has the labels and annotations of a copy under contract {contract}")).waits_for("you").mend(
                "it was copied here from a provider's cluster by hand; if it is yours, remove its kube-bind.io annotations",
            )]
        }
        Marked::Released | Marked::Not => of_consumer(facts, object, link, claim),
    }
}

/// Why the object is never claimed, whatever a selector says. Where it is not here, the type of the provider's object counts.
fn never(facts: &Facts, link: &BindingLink) -> Option<NeverClaimed> {
    let konnector_namespace = link.binding.is().map_or("", |binding| &binding.home);
    let known = facts.object.is().or_else(|| link.copy.is());
    let kind = known.and_then(|known| known.content.get("type")?.as_str());
    let key = (facts.namespace.as_str(), facts.name.as_str());
    never_claimed(&facts.kind.resource(), key, kind, konnector_namespace)
}

fn absent(facts: &Facts, link: &BindingLink, claim: &ClaimFacts) -> Vec<Finding> {
    match &link.copy {
        Seen::Is(source)
            if source.marked() == Marked::Not
                && claim.selected == Seen::Absent
                && claim.would_select != Seen::Absent =>
        {
            let what = format!("the provider has an object of its own at {}", source.key());
            vec![not_accepted(facts, link, claim, &what)]
        }
        Seen::Is(source) if source.marked() == Marked::Not => vec![
            Finding::new(
                Level::Waits,
                format!(
                    "the provider has an object of its own at {}, and it is not here",
                    source.key()
                ),
            )
            .since(source.created)
            .waits_for(KONNECTOR)
            .mend(
                "it is copied here if a claim selects it, the namespace is there, and the binding lets it come: it has an object of the bound \
                 API in the namespace, or lists it in spec.claimNamespaces; condition PermissionClaimsInSync says more",
            ),
        ],
        Seen::Is(copy) => vec![
            Finding::new(
                Level::Waits,
                format!("it is not here, and the provider has its copy {}", copy.key()),
            )
            .waits_for(KONNECTOR)
            .mend("the konnector deletes the copy when it is certain that the object is gone"),
        ],
        Seen::Absent => vec![Finding::new(
            Level::Broken,
            "it is neither on this cluster nor on the provider",
        )],
        Seen::Unknown(why) => vec![
            Finding::new(Level::Broken, "it is not on this cluster"),
            Finding::unknown("whether the provider has one", why),
        ],
    }
}

/// Lists the findings about a copy of a provider's object.
fn of_provider(
    facts: &Facts,
    object: &ObjectFacts,
    (contract, uid): (&str, &str),
    link: &BindingLink,
    claim: &ClaimFacts,
) -> Vec<Finding> {
    if link.binding.is().and_then(|binding| binding.contract.as_deref()) != Some(contract) {
        return vec![Finding::new(
            Level::Well,
            format!(
                "it is the copy of a provider's object under contract {contract}, and not of binding {}",
                name(link)
            ),
        )];
    }
    if claim.rejected {
        return vec![withdrawn(object, &format!("binding {} rejects the claim", name(link)))];
    }
    match &link.copy {
        Seen::Is(source) if source.uid == uid => match provided_difference(facts, source, object) {
            None => vec![in_sync(
                object,
                format!(
                    "it is in sync with the provider's {}, of which it is the copy",
                    source.key()
                ),
            )],
            Some(path) => vec![
                Finding::new(
                    Level::Waits,
                    format!("{path} differs from the provider's {}", source.key()),
                )
                .since(object.written)
                .waits_for(KONNECTOR)
                .mend("the konnector undoes changes of a copy; change the object on the provider"),
            ],
        },
        Seen::Is(source) => vec![
            Finding::new(
                Level::Waits,
                format!(
                    "it is the copy of an object that the provider has replaced by {}",
                    source.key()
                ),
            )
            .since(source.created)
            .waits_for(KONNECTOR),
        ],
        Seen::Absent => vec![withdrawn(object, "the provider's is gone")],
        Seen::Unknown(why) => vec![
            Finding::new(
                Level::Well,
                format!("it is the copy of the provider's object of UID {uid}"),
            )
            .since(object.written),
            Finding::unknown("the provider's", why),
        ],
    }
}

fn withdrawn(object: &ObjectFacts, why: &str) -> Finding {
    Finding::new(Level::Waits, format!("{why}, and this copy will be deleted"))
        .since(object.written)
        .waits_for(KONNECTOR)
}

/// Lists the findings about an object that is no copy.
fn of_consumer(facts: &Facts, object: &ObjectFacts, link: &BindingLink, claim: &ClaimFacts) -> Vec<Finding> {
    let copied = matches!(&link.copy, Seen::Is(copy) if is_copy_of(copy, object, link));
    let mut lines = of_binding(facts, link);
    if claim.rejected {
        let what = format!("binding {} rejects the claim on {}", name(link), facts.kind.resource());
        return vec![if copied {
            Finding::new(Level::Waits, format!("{what}, and its copy will be deleted")).waits_for(KONNECTOR)
        } else {
            Finding::new(Level::Well, format!("{what}: nothing of it is read or written")).mend(format!(
                "kubectl bind claims {} --accept {}",
                name(link),
                facts.kind.resource()
            ))
        }];
    }
    match &claim.selected {
        Seen::Is(why) => lines.push(Finding::new(
            Level::Well,
            format!("binding {} claims it: {why}", name(link)),
        )),
        Seen::Absent if !copied && claim.would_select != Seen::Absent => {
            return vec![not_accepted(facts, link, claim, "it stays here")];
        }
        Seen::Absent if copied => {
            lines.push(
                Finding::new(
                    Level::Waits,
                    "no claim selects it any more, and its copy will be deleted",
                )
                .waits_for(KONNECTOR),
            );
            return lines;
        }
        Seen::Absent if !claim.elsewhere.is_empty() => {
            return vec![
                Finding::new(
                    Level::Well,
                    format!(
                        "the claims of binding {} concern objects in namespaces {} alone",
                        name(link),
                        claim.elsewhere.join(", ")
                    ),
                )
                .mend("spec.claimNamespaces of the binding lists them; kubectl bind --claim-namespace changes that"),
            ];
        }
        Seen::Absent => {
            let claimed: Vec<_> = claim.claims.iter().map(selection).collect();
            let only = if claimed.is_empty() { "" } else { ", only " };
            return vec![Finding::new(
                Level::Well,
                format!(
                    "the claim of binding {} does not select it{only}{}",
                    name(link),
                    claimed.join("; ")
                ),
            )];
        }
        Seen::Unknown(why) => lines.push(Finding::unknown("whether a claim selects it", why)),
    }
    lines.push(counterpart(facts, object, link));
    lines
}

/// Says that only a claim selects the object that the binding has not accepted yet, so that the user has to decide.
fn not_accepted(facts: &Facts, link: &BindingLink, claim: &ClaimFacts, what: &str) -> Finding {
    let (binding, resource) = (name(link), facts.kind.resource());
    match &claim.would_select {
        Seen::Unknown(why) => Finding::unknown(
            &format!("whether the claims of the provider of binding {binding} that are not accepted select it"),
            why,
        ),
        Seen::Absent => Finding::new(Level::Well, what),
        Seen::Is(why) => Finding::new(
            Level::Waits,
            format!("{what}: the provider of binding {binding} claims it now, {why}, and that claim is not accepted"),
        )
        .waits_for("you")
        .mend(format!(
            "kubectl bind claims {binding} shows what is new; kubectl bind claims {binding} --accept {resource} accepts it, \
             --reject {resource} rejects it for good"
        )),
    }
}

fn counterpart(facts: &Facts, object: &ObjectFacts, link: &BindingLink) -> Finding {
    if object.paused {
        return Finding::new(Level::Waits, "it is paused: nothing of it is written on either side")
            .waits_for("you")
            .mend(format!("remove its annotation {}", annotations::PAUSED));
    }
    match (&link.copy, &link.place) {
        (Seen::Unknown(why), _) => Finding::unknown("the copy on the provider", why),
        (Seen::Is(copy), _) if is_copy_of(copy, object, link) => match content_difference(facts, object, copy) {
            None => in_sync(copy, format!("it is in sync with its copy {}", copy.key())),
            Some(path) => Finding::new(Level::Waits, format!("{path} of the copy {} differs from this object", copy.key()))
                .since(copy.written)
                .waits_for(KONNECTOR),
        },
        (Seen::Is(copy), _) => Finding::new(
            Level::Broken,
            format!("conflict: the provider has {} already, which is not its copy and is left alone", copy.key()),
        )
        .since(copy.created)
        .waits_for("you, or the provider")
        .mend("give this object another name, or ask the provider to delete its own"),
        (Seen::Absent, Seen::Is(CopyLocation::Unmapped { namespace, why })) => {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            Finding::new(Level::Waits, format!("the provider has no namespace for namespace {namespace} yet{why}"))
                .since(object.created)
                .waits_for(format!("{PROVIDER}, or {KONNECTOR}"))
        }
        (Seen::Absent, _) => Finding::new(Level::Waits, "the provider has no copy of it yet")
            .since(object.created)
            .waits_for(KONNECTOR)
            .mend("check that the konnector runs; the condition PermissionClaimsInSync of the binding says what keeps it from copying"),
    }
}

/// Returns the path of the first field that a copy on the consumer does not hold as its source on the provider does. Labels and annotations
/// of the source do not all come down, so they are not compared.
fn provided_difference(facts: &Facts, source: &ObjectFacts, copy: &ObjectFacts) -> Option<String> {
    let resource = facts.kind.resource();
    difference_of_content(source, copy, |field| is_local_field(&resource, field))
}

/// Returns the path of the first field that a copy does not hold as its source does, of those that the konnector copies.
fn content_difference(facts: &Facts, source: &ObjectFacts, copy: &ObjectFacts) -> Option<String> {
    let resource = facts.kind.resource();
    difference(source, copy, |field| is_local_field(&resource, field))
}

fn in_sync(copy: &ObjectFacts, what: String) -> Finding {
    Finding::new(Level::Well, what).since(copy.written)
}

fn is_copy_of(copy: &ObjectFacts, object: &ObjectFacts, link: &BindingLink) -> bool {
    let contract = link.binding.is().and_then(|binding| binding.contract.as_deref());
    matches!(copy.marked(), Marked::OfConsumer { contract: own, uid } if Some(own) == contract && uid == object.uid)
}

fn name(link: &BindingLink) -> &str {
    link.binding.is().map_or("<unknown>", |binding| &binding.name)
}
