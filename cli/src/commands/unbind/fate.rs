//! Decides what becomes of the provider's objects when a binding ends.

use std::io::{IsTerminal as _, Write as _};

use bindery_api::v1alpha2::DeletionPolicy;

use crate::{args::UnbindArgs, claims::is_plain_yes, errors::Failure, render::output::printable, text};

/// What becomes of the provider's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// They stay, marked as released.
    Kept,
    /// They are deleted.
    Deleted,
}

/// What flags and binding say of the provider's objects; `None` if neither does.
pub(super) fn fate(policy: Option<DeletionPolicy>, args: &UnbindArgs) -> Option<Fate> {
    match policy {
        // A provider that is not asked deletes nothing.
        _ if args.keep_objects || args.force => Some(Fate::Kept),
        _ if args.delete_objects => Some(Fate::Deleted),
        Some(DeletionPolicy::Delete) => Some(Fate::Deleted),
        Some(DeletionPolicy::Orphan) => Some(Fate::Kept),
        None => args.yes.then_some(Fate::Kept),
    }
}

/// Asks the user on a terminal whether the provider's objects are deleted. Without a terminal they are kept.
pub(super) fn ask(binding: &str, objects: Option<u64>) -> Result<Fate, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(Fate::Kept);
    }
    let text = format!(
        "APIServiceBinding {binding} has {} here, which end with their API. The provider keeps its copies, marked as released. \
         Delete them too? [y/N] ",
        counted(objects)
    );
    let mut terminal = std::io::stderr().lock();
    write!(terminal, "{}", printable(&text))?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(if is_plain_yes(&answer) {
        Fate::Deleted
    } else {
        Fate::Kept
    })
}

/// A number of objects in words; `None` if it is not known.
pub(super) fn counted(objects: Option<u64>) -> String {
    objects.map_or_else(|| "objects".to_owned(), |objects| text::counted(objects, "object"))
}

// === impl Fate ===

impl Fate {
    /// Whether a policy of a binding says this fate already.
    pub(super) fn is_said_by(self, policy: Option<DeletionPolicy>) -> bool {
        match self {
            Self::Kept => policy != Some(DeletionPolicy::Delete),
            Self::Deleted => policy == Some(DeletionPolicy::Delete),
        }
    }

    /// The policy that says this fate; `None` is to set none.
    pub(super) fn policy(self) -> Option<DeletionPolicy> {
        match self {
            Self::Kept => None,
            Self::Deleted => Some(DeletionPolicy::Delete),
        }
    }

    /// The fate as programs read it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Deleted => "deleted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_before_the_binding_and_nothing_said_keeps() {
        use DeletionPolicy::{Delete, Orphan};
        let unbind = |delete_objects, keep_objects, yes, force| UnbindArgs {
            binding: "cowboys".to_owned(),
            wait: true,
            force,
            delete_objects,
            keep_objects,
            yes,
            ignore_not_found: false,
        };
        let nothing = unbind(false, false, false, false);
        let (delete, keep) = (unbind(true, false, false, false), unbind(false, true, false, false));
        let (yes, force) = (unbind(false, false, true, false), unbind(false, false, false, true));
        for (policy, args, expect) in [
            (None, &nothing, None),
            (None, &yes, Some(Fate::Kept)),
            (None, &delete, Some(Fate::Deleted)),
            (None, &keep, Some(Fate::Kept)),
            (Some(Delete), &nothing, Some(Fate::Deleted)),
            (Some(Delete), &yes, Some(Fate::Deleted)),
            (Some(Delete), &keep, Some(Fate::Kept)),
            (Some(Delete), &force, Some(Fate::Kept)),
            (Some(Orphan), &nothing, Some(Fate::Kept)),
            (Some(Orphan), &delete, Some(Fate::Deleted)),
        ] {
            assert_eq!(fate(policy, args), expect, "{policy:?} {args:?}");
        }
    }

    #[test]
    fn a_policy_is_written_only_where_it_says_something_else() {
        use DeletionPolicy::{Delete, Orphan};
        for (fate, policy, expect) in [
            (Fate::Kept, None, true),
            (Fate::Kept, Some(Orphan), true),
            (Fate::Kept, Some(Delete), false),
            (Fate::Deleted, None, false),
            (Fate::Deleted, Some(Orphan), false),
            (Fate::Deleted, Some(Delete), true),
        ] {
            assert_eq!(fate.is_said_by(policy), expect, "{fate:?} {policy:?}");
            assert!(fate.is_said_by(fate.policy()));
        }
    }
}
