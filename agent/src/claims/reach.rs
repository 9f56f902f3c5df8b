//! Decides which consumer namespaces the engines of a claimed resource watch.

use std::{collections::BTreeSet, sync::Arc};

use super::Wanted;
use crate::index::ConsumerScope;

/// The consumer namespaces to watch for what some bindings want of one resource: those of all bindings or, if one of them does not limit
/// its claims, the whole cluster. A namespace that does not exist has no object, and the konnector may have no right to list it, because
/// its Role went with it.
pub(crate) fn consumer_scope<'a>(
    wanted: impl IntoIterator<Item = &'a Wanted>,
    exists: impl Fn(&str) -> bool,
) -> ConsumerScope {
    let mut namespaces = BTreeSet::new();
    for wanted in wanted {
        let Some(watched) = &wanted.watched_namespaces else {
            return ConsumerScope::Cluster;
        };
        namespaces.extend(
            watched
                .iter()
                .filter(|name| exists(name))
                .map(|name| Arc::from(&**name)),
        );
    }
    ConsumerScope::Namespaces(namespaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::testing;

    /// Checks the scope for bindings that watch these namespaces, `None` for all, where `lost` does not exist.
    #[track_caller]
    fn check(watched: &[Option<&[&str]>], expect: Option<&[&str]>) {
        let wanted: Vec<_> = watched
            .iter()
            .map(|watched| Wanted {
                watched_namespaces: watched.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
                ..testing::wanted(&[])
            })
            .collect();
        let expect = expect.map_or(ConsumerScope::Cluster, |names| {
            ConsumerScope::Namespaces(names.iter().map(|&name| Arc::from(name)).collect())
        });
        assert_eq!(consumer_scope(&wanted, |name| name != "lost"), expect, "{watched:?}");
    }

    #[test]
    fn one_binding_without_a_list_is_enough_to_watch_the_cluster() {
        check(&[None], None);
        check(&[Some(&["west"])], Some(&["west"]));
        check(&[Some(&["west"]), Some(&["east", "west"])], Some(&["east", "west"]));
        check(&[Some(&["west"]), None], None);
        check(&[None, Some(&["west"])], None);
    }

    #[test]
    fn only_namespaces_that_exist_are_watched() {
        check(&[Some(&["lost", "west"])], Some(&["west"]));
        check(&[Some(&["lost"])], Some(&[]));
    }
}
