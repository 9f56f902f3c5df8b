//! What an export may read of claimed objects in the whole cluster.

use bindery_api::v1alpha2::{GroupResource, InformerScope, PermissionClaim};

use super::*;

/// Settled but for its claims.
fn claiming(resources: &[&str]) -> World {
    let mut world = World::with_schema();
    world.export.spec.informer_scope = InformerScope::Cluster;
    world.export.spec.permission_claims = resources
        .iter()
        .map(|resource| PermissionClaim {
            group_resource: GroupResource::new("", *resource),
            ..PermissionClaim::default()
        })
        .collect();
    world
}

fn mark(world: &mut World) {
    let marks = world.export.annotations_mut();
    marks.insert(
        annotations::CLUSTER_WIDE_SECRETS.to_owned(),
        annotations::TRUE.to_owned(),
    );
}

/// What is planned for the role of the claims, as words.
fn planned(world: &World) -> Vec<String> {
    let describe = |write: &Write| {
        if let Some(annotated) = patch(write).and_then(|patch| patch["metadata"]["annotations"].as_object()) {
            let is_secrets = annotated.contains_key(annotations::CLUSTER_WIDE_SECRETS);
            return is_secrets.then(|| "unmark".to_owned());
        }
        if !is_claims(&write.name) {
            return None;
        }
        if let Some(role) = write.created::<ClusterRole>() {
            let rules = role.rules.iter().flatten();
            let resources: Vec<_> = rules
                .flat_map(|rule| rule.resources.clone().unwrap_or_default())
                .collect();
            return Some(format!("role {}", resources.join(",")));
        }
        if let Some(patch) = write.patch_of::<ClusterRole>() {
            return Some(format!("patch {}", patch["rules"][0]["resources"]));
        }
        let text = match write.is_of::<ClusterRole>() {
            true => "delete role",
            false if write.deletes::<ClusterRoleBinding>() => "unbind",
            false => "bind",
        };
        Some(text.to_owned())
    };
    world.plan().iter().filter_map(describe).collect()
}

fn is_claims(name: &str) -> bool {
    name == "kube-binder-claims-kube-bind-a-riders"
}

/// Makes true what is planned for the claims.
fn take_over(world: &mut World) {
    for write in world.plan().iter().filter(|write| is_claims(&write.name)) {
        if let Some(role) = write.created::<ClusterRole>() {
            world.claims.role = Some(Arc::new(role));
        } else if let Some(binding) = write.created::<ClusterRoleBinding>() {
            world.claims.binding = Some(Arc::new(binding));
        }
    }
}

#[test]
fn only_a_konnector_that_watches_cluster_wide_reads_cluster_wide() {
    let mut world = claiming(&["configmaps", "secrets"]);
    assert_eq!(planned(&world), ["role configmaps", "bind"]);
    take_over(&mut world);
    assert!(planned(&world).is_empty());
    let mut world = claiming(&["configmaps"]);
    world.export.spec.informer_scope = InformerScope::Namespaced;
    assert!(planned(&world).is_empty());
    assert!(planned(&claiming(&["secrets"])).is_empty());
}

#[test]
fn secrets_are_read_cluster_wide_while_the_operator_says_so() {
    let mut world = claiming(&["configmaps", "secrets"]);
    world.claims.secrets = true;
    assert_eq!(
        planned(&world),
        ["role configmaps", "bind"],
        "an export from before that is not marked"
    );
    mark(&mut world);
    assert_eq!(planned(&world), ["role configmaps,secrets", "bind"]);
    take_over(&mut world);
    assert!(planned(&world).is_empty());
    world.claims.secrets = false;
    assert_eq!(planned(&world), ["unmark", r#"patch ["configmaps"]"#]);
    let mut alone = claiming(&["secrets"]);
    alone.claims.secrets = true;
    mark(&mut alone);
    take_over(&mut alone);
    alone.claims.secrets = false;
    assert_eq!(planned(&alone), ["unmark", "unbind", "delete role"]);
}

#[test]
fn a_binding_that_was_bent_is_made_anew() {
    let mut world = claiming(&["configmaps"]);
    take_over(&mut world);
    let mut bent = (**world.claims.binding.as_ref().unwrap()).clone();
    bent.subjects = None;
    world.claims.binding = Some(Arc::new(bent));
    assert_eq!(planned(&world), ["unbind", "bind"]);
}
