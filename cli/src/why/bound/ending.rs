//! What an object waits for that is gone, or is to go.

use bindery_api::{
    Condition, annotations,
    conditions::{self, ORPHANED_OBJECTS},
};

use super::{KONNECTOR, PROVIDER, conflict, contract_of};
use crate::why::{
    BindingLink, Finding, Level, Seen,
    object::{Marked, ObjectFacts},
};

/// It is not on this cluster.
pub(super) fn gone(link: &BindingLink) -> Vec<Finding> {
    let copy = match &link.copy {
        Seen::Is(copy) => copy,
        Seen::Absent => {
            return vec![Finding::new(
                Level::Broken,
                "it is neither on this cluster nor on the provider",
            )];
        }
        Seen::Unknown(why) => {
            return vec![
                Finding::new(Level::Broken, "it is not on this cluster"),
                Finding::unknown("whether the provider has a copy left", why),
            ];
        }
    };
    let ours = matches!(copy.marked(), Marked::OfConsumer { contract, .. } if Some(contract) == contract_of(link));
    let orphaned = orphaned(link);
    if ours && copy.deleting.is_none() && copy.is_retained() {
        return vec![retained(copy)];
    }
    let found = match (ours, copy.deleting, orphaned) {
        (false, _, _) => Finding::new(
            Level::Broken,
            format!(
                "it is not on this cluster, and what the provider has at {} is not its copy",
                copy.key()
            ),
        ),
        (true, Some(since), _) => held_there(copy, since),
        (true, None, Some((binding, orphaned))) => Finding::new(
            Level::Broken,
            format!(
                "it is not on this cluster, and nobody was seen to delete it: its copy {} is kept",
                copy.key()
            ),
        )
        .since(Some(orphaned.last_transition_time.0))
        .waits_for("you")
        .mend(format!(
            "create it again and link its copy to it: kubectl bind orphans {binding} --relink; or end the copy: --delete, or --release to \
             leave it to the provider"
        )),
        (true, None, None) => Finding::new(
            Level::Waits,
            format!(
                "it is not on this cluster, and the provider has its copy {}",
                copy.key()
            ),
        )
        .waits_for(KONNECTOR)
        .mend("the konnector deletes the copy when it has seen the deletion of the object"),
    };
    vec![found]
}

/// Its copy, or that of a deleted object of the same name, is retained.
pub(super) fn retained(copy: &ObjectFacts) -> Finding {
    let until = copy.annotation(annotations::RETAINED_UNTIL);
    let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
    Finding::new(
        Level::Broken,
        format!(
            "the provider retains the copy {} of a deleted object of this name{until}",
            copy.key()
        ),
    )
    .since(copy.written)
    .waits_for("you")
    .mend(
        "kubectl bind restore gives the deleted object back, if no other object has its name; kubectl bind discard deletes the copy",
    )
}

/// The name of a binding with orphans, and the condition that says so.
pub(super) fn orphaned(link: &BindingLink) -> Option<(&str, &Condition)> {
    let binding = link.binding.is()?;
    let orphaned = conditions::get(&binding.conditions, ORPHANED_OBJECTS).filter(|orphaned| orphaned.is_true())?;
    Some((&binding.name, orphaned))
}

pub(super) fn held_there(copy: &ObjectFacts, since: jiff::Timestamp) -> Finding {
    let line = Finding::new(Level::Waits, "").since(Some(since)).waits_for(PROVIDER);
    if copy.finalizers.is_empty() {
        return Finding {
            what: format!("the provider's copy {} is being deleted", copy.key()),
            ..line
        };
    }
    Finding {
        what: format!(
            "the provider's copy {} is being deleted and is kept by its finalizers {}",
            copy.key(),
            copy.finalizers.join(", ")
        ),
        ..line
    }
    .waits_for(format!("{PROVIDER}: the controller of {}", copy.finalizers.join(", ")))
    .mend("the provider's controllers remove their finalizers when they have cleaned up; if they do not, ask the provider")
}

/// Its deletion was asked for.
pub(super) fn deleting(object: &ObjectFacts, link: &BindingLink) -> Vec<Finding> {
    let others = object.other_finalizers();
    let wait = |what: String| Finding::new(Level::Waits, what).since(object.deleting);
    let mut lines = Vec::new();
    if object.is_held() {
        lines.push(match &link.copy {
            Seen::Is(copy) if conflict(object, copy, link).is_none() => match copy.deleting {
                Some(since) => held_there(copy, since),
                None => wait(format!("its deletion has not reached the copy {} yet", copy.key())).waits_for(KONNECTOR),
            },
            Seen::Is(_) | Seen::Absent => {
                wait("its copy is gone, and the konnector has not removed its finalizer yet".to_owned())
                    .waits_for(KONNECTOR)
            }
            Seen::Unknown(_) => wait(
                "it is being deleted, and waits for its copy on the provider to be gone".to_owned(),
            )
            .waits_for(format!("{PROVIDER}, or {KONNECTOR}"))
            .mend("if the provider does not exist any more, kubectl bind unbind BINDING --force releases its objects"),
        });
        if let Seen::Unknown(why) = &link.copy {
            lines.push(Finding::unknown("the copy on the provider", why));
        }
    }
    if !others.is_empty() {
        let others = others.join(", ");
        lines.push(
            wait(format!(
                "it is being deleted and is kept by finalizers of this cluster: {others}"
            ))
            .waits_for(format!("the controller of {others} on this cluster")),
        );
    } else if !object.is_held() {
        lines.push(wait("it is being deleted, and nothing keeps it".to_owned()).waits_for("the API server"));
    }
    lines
}
