//! Lists what is in a namespace.

use std::collections::BTreeSet;

use bindery_api::{claims::is_claimable_core, v1alpha2::GroupResource};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};

use super::{Listed, Unseen, Valuables, among, claimed, kinds, rules};
use crate::{
    leftovers,
    rbac::view,
    state::{AGGREGATED_ROLE, State},
    writes::WriteError,
};

/// How many lists of one namespace are requested at a time.
const CONCURRENT: usize = 8;

/// The outcome of one list.
enum Outcome {
    Listed(Listed),
    Forbidden(GroupResource),
}

/// Looks for valuable objects in a namespace in which the server has its own bindings. `contract` is the contract that the
/// namespace was made for; `None` if contracts share it.
pub(in super::super) async fn look(
    state: &State,
    namespace: &str,
    contract: Option<&str>,
) -> Result<Valuables, WriteError> {
    let client = &state.clients.write;
    let named = &state.settings.valuable_resources;
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let Some(view) = roles.get_opt(view::VIEW_ROLE).await? else {
        return Ok(Valuables {
            unseen: vec![Unseen::NoViewRole],
            ..Valuables::default()
        });
    };
    let shown = shown(state, view);
    let mut groups = rules::groups(&shown);
    if let Some(groups) = &mut groups {
        // The role `bindery-server-claims` shows core resources that can be claimed.
        groups.insert("");
        groups.extend(named.iter().map(|resource| resource.group.as_str()));
    }
    let mut lists = Vec::new();
    for kind in kinds::served(client, groups.as_ref()).await? {
        let resource = GroupResource::new(&kind.group, &kind.plural);
        let is_shown = is_claimable_core(&resource) || rules::show(&shown, &resource);
        if named.contains(&resource) || is_shown && !kinds::is_worthless(&resource) {
            lists.push(list(state, namespace, kind, resource));
        }
    }
    let outcomes: Vec<Outcome> = stream::iter(lists).buffer_unordered(CONCURRENT).try_collect().await?;
    Ok(judge(outcomes, named, contract))
}

/// The rules of ClusterRole `view`, which the server has in the namespace, and of the role that it has in the whole cluster. What
/// role `bindery-server-claims` shows is known without reading it.
fn shown(state: &State, view: ClusterRole) -> Vec<PolicyRule> {
    let mut rules = view.rules.unwrap_or_default();
    if let Some(exports) = state.caches.aggregated_role.get("", AGGREGATED_ROLE) {
        rules.extend(exports.rules.iter().flatten().cloned());
    }
    rules
}

async fn list(
    state: &State,
    namespace: &str,
    kind: ApiResource,
    resource: GroupResource,
) -> Result<Outcome, WriteError> {
    let api: Api<DynamicObject> = Api::namespaced_with(state.clients.write.clone(), namespace, &kind);
    let params = ListParams {
        field_selector: (kind.kind == "Secret" && resource.is_core()).then(claimed::no_tokens),
        ..ListParams::default()
    };
    match leftovers::metadata(&api, params).await {
        Ok(objects) => Ok(Outcome::Listed(Listed {
            resource,
            kind: kind.kind,
            objects: objects.into_iter().map(|object| object.metadata).collect(),
        })),
        Err(error) if error.is_forbidden() => Ok(Outcome::Forbidden(resource)),
        Err(error) => Err(error),
    }
}

/// What the outcomes of all lists say.
fn judge(outcomes: Vec<Outcome>, named: &BTreeSet<GroupResource>, contract: Option<&str>) -> Valuables {
    let (mut listed, mut unseen) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Outcome::Listed(list) => listed.push(list),
            Outcome::Forbidden(resource) if named.contains(&resource) => unseen.push(Unseen::Named(resource)),
            Outcome::Forbidden(resource) => unseen.push(Unseen::Resource(resource)),
        }
    }
    unseen.sort();
    Valuables {
        objects: among(&listed, contract),
        unseen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_listed_is_named_with_its_mend() {
        let (safes, pods) = (GroupResource::new("bank.dev", "safes"), GroupResource::new("", "pods"));
        let outcomes = vec![Outcome::Forbidden(safes.clone()), Outcome::Forbidden(pods)];
        let seen = judge(outcomes, &[safes].into(), Some("kube-bind-a"));
        let text = seen.explain_unseen("kube-bind-a-team1").unwrap();
        for part in [
            "namespace kube-bind-a-team1",
            "{apiGroups: [\"bank.dev\"], resources: [safes], verbs: [list]}",
            "{apiGroups: [\"\"], resources: [pods], verbs: [list]}",
            "rbac.kube-bind.io/aggregate-to-server=true",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(judge(Vec::new(), &BTreeSet::new(), None), Valuables::default());
    }
}
