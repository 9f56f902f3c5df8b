//! Findings about an object of a bound API.

mod ending;

use bindery_api::{
    Condition, annotations,
    conditions::{
        self, ACTIVE, CONNECTED, ConditionStatus, DRAINING, EXPORT_NOT_SELECTED, EXPORT_REMOVED, OBJECTS_IN_SYNC,
        PERMISSION_CLAIMS_IN_SYNC, READY, Severity,
    },
    holder::HELD,
};

use ending::{deleting, gone, held_there, orphaned, retained};

use super::{
    BindingFacts, BindingLink, Facts, Finding, Level, Seen,
    compare::difference,
    object::{Marked, ObjectFacts},
    place::CopyLocation,
};

const KONNECTOR: &str = "the konnector of this cluster";
const PROVIDER: &str = "the provider";

/// Lists the findings about an object under one binding.
pub(super) fn lines(facts: &Facts, link: &BindingLink) -> Vec<Finding> {
    let mut lines = of_binding(facts, link);
    let found = match &facts.object {
        Seen::Unknown(why) => vec![Finding::unknown("the object on this cluster", why)],
        Seen::Absent => gone(link),
        Seen::Is(object) => {
            lines.extend(paused(object));
            if object.deleting.is_some() {
                deleting(object, link)
            } else {
                alive(object, link)
            }
        }
    };
    // An object is not in sync as long as its binding is in trouble; then that is what there is to say.
    let troubled = lines.iter().any(|line| line.level != Level::Well);
    lines.extend(
        found
            .into_iter()
            .filter(|line| !(troubled && line.level == Level::Well)),
    );
    lines
}

/// Lists what keeps all objects of the binding from being in sync.
pub(super) fn of_binding(facts: &Facts, link: &BindingLink) -> Vec<Finding> {
    let binding = match &link.binding {
        Seen::Is(binding) => binding,
        Seen::Absent => return Vec::new(),
        Seen::Unknown(why) => return vec![Finding::unknown("the binding", why)],
    };
    let mut lines = Vec::new();
    if binding.paused {
        lines.push(
            Finding::new(
                Level::Waits,
                format!("APIServiceBinding {} is paused: nothing of it is written", binding.name),
            )
            .waits_for("you")
            .mend(format!(
                "kubectl annotate apiservicebinding {} {}-",
                binding.name,
                annotations::PAUSED
            )),
        );
    }
    if let Some(since) = binding.deleting {
        let draining = conditions::get(&binding.conditions, DRAINING);
        let progress = draining
            .map(|draining| draining.message.as_str())
            .filter(|text| !text.is_empty());
        let progress = progress.unwrap_or("its objects are deleted");
        lines.push(
            Finding::new(
                Level::Waits,
                format!("APIServiceBinding {} is being unbound: {progress}", binding.name),
            )
            .since(Some(since))
            .waits_for(KONNECTOR),
        );
    }
    let broken = binding
        .conditions
        .iter()
        .filter(|condition| is_trouble(facts, condition));
    lines.extend(broken.map(|condition| of_condition(binding, condition)));
    lines
}

/// Tells whether a condition says something about this object that no other finding says. Ready repeats another condition, and
/// the condition about all objects counts only if it names this one.
fn is_trouble(facts: &Facts, condition: &Condition) -> bool {
    // A condition has no field for the object that fails: only its message names the object.
    let names_this = || {
        let key = match facts.namespace.as_str() {
            "" => facts.name.clone(),
            namespace => format!("{namespace}/{}", facts.name),
        };
        condition.message.starts_with(&format!("{key}:")) || condition.message.contains(&format!(" {key}:"))
    };
    match condition.type_.as_str() {
        // What these say stands in lines of their own.
        READY | DRAINING | ACTIVE => false,
        OBJECTS_IN_SYNC | PERMISSION_CLAIMS_IN_SYNC => condition.status == ConditionStatus::False && names_this(),
        _ => condition.status == ConditionStatus::False,
    }
}

fn of_condition(binding: &BindingFacts, condition: &Condition) -> Finding {
    let export_is_gone =
        condition.type_ == CONNECTED && [EXPORT_REMOVED, EXPORT_NOT_SELECTED].contains(&condition.reason.as_str());
    let level = match condition.severity {
        Severity::Info => Level::Waits,
        // Sync goes on until the binding ends.
        _ if export_is_gone && condition.reason == EXPORT_NOT_SELECTED => Level::Waits,
        _ => Level::Broken,
    };
    let message = match condition.message.as_str() {
        "" => condition.reason.clone(),
        message => format!("{message} ({})", condition.reason),
    };
    let line = Finding::new(
        level,
        format!(
            "APIServiceBinding {}: {} is False: {message}",
            binding.name, condition.type_
        ),
    )
    .since(Some(condition.last_transition_time.0));
    if export_is_gone {
        return line.waits_for("you").mend(without_export(binding));
    }
    if condition.type_ == HELD {
        return line.waits_for("you").mend(format!(
            "see whether this is the cluster that is to go on, and let it: kubectl bind accept {}",
            binding.name
        ));
    }
    line.mend(format!("kubectl bind status {} shows all of its state", binding.name))
}

/// Says how to end a binding that has no export any more, or to give it one.
fn without_export(binding: &BindingFacts) -> String {
    let name = &binding.name;
    match &binding.bundle {
        Some(_) => format!(
            "delete the objects, or have them deleted with the binding: kubectl annotate apiservicebinding {name} {}=TIME, where \
             TIME lies ahead, as 2030-01-31T12:00:00Z",
            annotations::ALLOW_UNBIND
        ),
        None => format!("bind the template again, or end it: kubectl bind unbind {name}"),
    }
}

fn paused(object: &ObjectFacts) -> Option<Finding> {
    object.paused.then(|| {
        Finding::new(Level::Waits, "it is paused: nothing of it is written on either side")
            .waits_for("you")
            .mend(format!("remove its annotation {}", annotations::PAUSED))
    })
}

/// Lists the findings about an object that is not being deleted.
fn alive(object: &ObjectFacts, link: &BindingLink) -> Vec<Finding> {
    match &link.copy {
        Seen::Is(copy) => with_copy(object, copy, link),
        Seen::Absent => vec![without_copy(object, link)],
        Seen::Unknown(why) => vec![from_afar(object), Finding::unknown("the copy on the provider", why)],
    }
}

/// Says what the object's own annotations tell, where the provider cannot be asked.
fn from_afar(object: &ObjectFacts) -> Finding {
    let namespace = object.annotation(annotations::PROVIDER_NAMESPACE);
    match (namespace, object.annotation(annotations::PROVIDER_UID)) {
        (Some(namespace), Some(uid)) => {
            let place = if namespace.is_empty() {
                "on the provider".to_owned()
            } else {
                format!("in namespace {namespace} of the provider")
            };
            Finding::new(
                Level::Well,
                format!("the konnector noted that it has a copy {place} (UID {uid})"),
            )
            .since(object.written)
        }
        (Some(namespace), None) => Finding::new(
            Level::Waits,
            format!("the konnector has begun to copy it to namespace {namespace:?} of the provider, and has noted no copy yet"),
        )
        .since(object.written)
        .waits_for(format!("{KONNECTOR}, or {PROVIDER}")),
        (None, _) => not_taken_up(object),
    }
}

fn not_taken_up(object: &ObjectFacts) -> Finding {
    Finding::new(Level::Waits, "the konnector has not taken it up yet")
        .since(object.created)
        .waits_for(KONNECTOR)
        .mend("check that the konnector runs, and what it logs")
}

fn without_copy(object: &ObjectFacts, link: &BindingLink) -> Finding {
    match &link.place {
        Seen::Is(CopyLocation::Unmapped { namespace, why }) => {
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            Finding::new(
                Level::Waits,
                format!("the provider has no namespace for namespace {namespace} yet{why}"),
            )
            .since(object.created)
            .waits_for(if object.is_held() {
                PROVIDER.to_owned()
            } else {
                format!("{PROVIDER}, or {KONNECTOR}")
            })
        }
        _ if !object.is_held() => not_taken_up(object),
        _ => Finding::new(Level::Waits, "the provider has no copy of it")
            .since(object.written.or(object.created))
            .waits_for(KONNECTOR)
            .mend("the konnector creates the copy, also again if the provider deleted it; events of the object say what keeps it from that"),
    }
}

fn with_copy(object: &ObjectFacts, copy: &ObjectFacts, link: &BindingLink) -> Vec<Finding> {
    if let Some(conflict) = conflict(object, copy, link) {
        return vec![conflict];
    }
    let mut lines = Vec::new();
    if let Some(since) = copy.deleting {
        lines.push(held_there(copy, since).mend("when it is gone, the konnector makes it again"));
    }
    if let Some(path) = difference(object, copy, |_| false) {
        lines.push(not_the_same(copy, &path));
    }
    if copy.status.is_some() && object.status != copy.status {
        lines.push(
            Finding::new(Level::Waits, "the provider's status is not here yet")
                .since(copy.written)
                .waits_for(KONNECTOR),
        );
    }
    if let Some(ready) = copy.ready.as_ref().filter(|ready| ready.status != "True") {
        let message = if ready.message.is_empty() {
            &ready.reason
        } else {
            &ready.message
        };
        lines.push(
            Finding::new(
                Level::Waits,
                format!("the provider says that it is not ready: {message}"),
            )
            .since(ready.since)
            .waits_for(format!("{PROVIDER}'s controllers")),
        );
    }
    if lines.is_empty() {
        lines
            .push(Finding::new(Level::Well, format!("it is in sync with its copy {}", copy.key())).since(copy.written));
    }
    lines
}

fn not_the_same(copy: &ObjectFacts, path: &str) -> Finding {
    // The annotation ends with + once the konnector has written a value back.
    let overridden = copy
        .annotation(annotations::PROJECTION_HASH)
        .is_some_and(|hash| hash.ends_with('+'));
    if overridden {
        return Finding::new(
            Level::Broken,
            format!("the provider changed {path} of its copy, which was written back once and is left now"),
        )
        .since(copy.written)
        .waits_for("you, or the provider")
        .mend("write what the provider wants, or ask it to leave that field alone");
    }
    Finding::new(
        Level::Waits,
        format!("{path} of the copy {} differs from this object", copy.key()),
    )
    .since(copy.written)
    .waits_for(KONNECTOR)
}

/// Says what takes the place of the copy, if something does.
fn conflict(object: &ObjectFacts, copy: &ObjectFacts, link: &BindingLink) -> Option<Finding> {
    let what = match copy.marked() {
        Marked::OfConsumer { contract, uid } if Some(contract) == contract_of(link) && uid == object.uid => {
            return None;
        }
        Marked::OfConsumer { contract, .. } if Some(contract) == contract_of(link) && copy.is_retained() => {
            return Some(retained(copy));
        }
        Marked::OfConsumer { contract, uid } if Some(contract) == contract_of(link) => {
            format!("was made from another object of this name (UID {uid})")
        }
        Marked::OfConsumer { contract, .. } if link.last_wins => {
            return Some(
                Finding::new(
                    Level::Well,
                    format!(
                        "another consumer (contract {contract}) wrote {} last: the last write wins",
                        copy.key()
                    ),
                )
                .since(copy.written)
                .mend("the next change here overwrites it"),
            );
        }
        Marked::OfConsumer { contract, .. } | Marked::OfProvider { contract, .. } => {
            format!("belongs to contract {contract}")
        }
        Marked::Released => "was kept when an earlier binding ended".to_owned(),
        Marked::Not => "is not managed by any binding".to_owned(),
    };
    let mend = match copy.marked() {
        Marked::OfConsumer { contract, .. } if Some(contract) == contract_of(link) => match orphaned(link) {
            Some((binding, _)) => format!(
                "kubectl bind orphans {binding} --relink makes the copy that of this object; --delete deletes it"
            ),
            None => "ask the provider to delete its copy, or restore the object that it was made from".to_owned(),
        },
        Marked::Released => "let this object say what that one says, give it another name, or ask the provider's admin to end that one: \
                             kubectl bind provider released"
            .to_owned(),
        _ => "give this object another name, or ask the provider to delete its own".to_owned(),
    };
    Some(
        Finding::new(
            Level::Broken,
            format!(
                "conflict: the provider's object {} {what}, and is left alone",
                copy.key()
            ),
        )
        .since(copy.created)
        .waits_for("you, or the provider")
        .mend(mend),
    )
}

fn contract_of(link: &BindingLink) -> Option<&str> {
    link.binding.is().and_then(|binding| binding.contract.as_deref())
}
