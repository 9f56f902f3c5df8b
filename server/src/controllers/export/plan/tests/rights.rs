//! Rights outside mapped namespaces, and the proof of the policy that some of them need.

use bindery_api::v1alpha2::{ConflictPolicy, InformerScope, Isolation};

use super::*;
use crate::policy;

const READS: &str = "get,list,watch";
const WRITES: &str = "create,delete,get,list,patch,update,watch";
const OVERWRITES: &str = "create,delete,get,list,patch,update,watch,overwrite";

fn missing() -> Result<(), Refusal> {
    Err(Refusal::AdmissionPolicyMissing { policy: policy::NAME })
}

/// An export whose consumer sees cluster-scoped objects.
fn cluster_scoped(isolation: Isolation) -> World {
    let mut world = World::with_schema();
    world.export.spec.isolation = isolation;
    let mut schema = (**world.schemas[0].as_ref().unwrap()).clone();
    schema.spec.scope = Scope::Cluster;
    let hash = hash::export_hash([&schema.spec]);
    let marks = world.export.annotations_mut();
    marks.insert(annotations::SOURCE_SPEC_HASH.to_owned(), hash);
    world.sources = vec![Ok(schema.spec.clone())];
    world.schemas = vec![Some(Arc::new(schema))];
    world
}

fn verbs(rules: Option<&[k8s_openapi::api::rbac::v1::PolicyRule]>) -> String {
    let rules = rules.unwrap_or_default();
    rules
        .iter()
        .map(|rule| rule.verbs.join(","))
        .collect::<Vec<_>>()
        .join("; ")
}

impl World {
    /// What the rights need, in words.
    fn said(&self) -> Vec<String> {
        let ExportStep::Apply(writes) = self.step() else {
            return vec!["prove".to_owned()];
        };
        let say = |write: &Write| {
            if let Some(role) = write.created::<Role>() {
                return format!("role: {}", verbs(role.rules.as_deref()));
            }
            if let Some(role) = write.created::<ClusterRole>() {
                return format!("cluster role: {}", verbs(role.rules.as_deref()));
            }
            if let Some(conditions) = conditions(write) {
                let reason = conditions.condition(PROVIDER_IN_SYNC).unwrap().reason.clone();
                return if reason.is_empty() {
                    "in sync".to_owned()
                } else {
                    reason
                };
            }
            let words = [
                (write.patch_of::<Role>().is_some(), "patch role"),
                (write.deletes::<Role>(), "delete role"),
                (write.created::<RoleBinding>().is_some(), "bind"),
                (write.deletes::<RoleBinding>(), "unbind"),
                (write.patch_of::<ClusterRole>().is_some(), "patch cluster role"),
                (write.deletes::<ClusterRole>(), "delete cluster role"),
                (write.created::<ClusterRoleBinding>().is_some(), "bind everywhere"),
                (write.deletes::<ClusterRoleBinding>(), "unbind everywhere"),
            ];
            let word = words.into_iter().find(|(is_it, _)| *is_it);
            word.map_or_else(|| write.to_string(), |(_, word)| word.to_owned())
        };
        writes.iter().map(say).collect()
    }

    /// Makes true what is planned.
    fn take_over(&mut self) {
        for write in self.plan() {
            if let Some(role) = write.created::<Role>() {
                self.role = Some(Arc::new(role));
            } else if let Some(binding) = write.created::<RoleBinding>() {
                self.role_binding = Some(Arc::new(binding));
            } else if let Some(role) = write.created::<ClusterRole>() {
                self.cluster_role = Some(Arc::new(role));
            } else if let Some(binding) = write.created::<ClusterRoleBinding>() {
                self.cluster_role_binding = Some(Arc::new(binding));
            } else if write.deletes::<Role>() {
                self.role = None;
            } else if write.deletes::<RoleBinding>() {
                self.role_binding = None;
            } else if write.deletes::<ClusterRole>() {
                self.cluster_role = None;
            } else if write.deletes::<ClusterRoleBinding>() {
                self.cluster_role_binding = None;
            } else if let Some(patch) = write.patch_of::<ClusterRole>() {
                let mut role = (**self.cluster_role.as_ref().unwrap()).clone();
                role.rules = serde_json::from_value(patch["rules"].clone()).unwrap();
                self.cluster_role = Some(Arc::new(role));
            } else if let Some(conditions) = conditions(&write) {
                *self.export.conditions_mut() = conditions;
            } else {
                panic!("{write:?}");
            }
        }
    }

    /// What the export says of the admission policy: whether it is in force, and why not.
    fn policy_condition(&self) -> Option<(bool, String)> {
        let condition = self.export.condition("PolicyInForce")?;
        Some((condition.is_true(), condition.reason.clone()))
    }

    /// The world once its rights are given, with the policy proved on the way.
    fn given(mut self) -> Self {
        self.policy = Some(Ok(()));
        self.take_over();
        self.policy = None;
        self
    }
}

#[test]
fn writes_in_the_cluster_come_only_with_a_proof_of_the_policy() {
    for isolation in [Isolation::Prefixed, Isolation::None] {
        let mut world = cluster_scoped(isolation);
        assert_eq!(world.said(), ["prove"]);
        world.policy = Some(missing());
        assert_eq!(world.said(), ["AdmissionPolicyMissing"]);
        world.take_over();
        assert_eq!(world.said(), [""; 0], "says it twice");
        world.policy = Some(Ok(()));
        let role = format!("cluster role: {WRITES}");
        assert_eq!(world.said(), [role.as_str(), "bind everywhere"]);
        world.take_over();
        // What is given needs no further proof.
        world.policy = None;
        assert_eq!(world.said(), ["in sync"]);
    }
}

#[test]
fn while_the_policy_is_missing_what_was_given_stays_and_says_so() {
    for isolation in [Isolation::Prefixed, Isolation::None] {
        let mut world = cluster_scoped(isolation).given();
        world.take_over();
        assert_eq!(world.said(), [""; 0]);
        world.standing = Standing::Withheld;
        assert_eq!(world.said(), ["in sync"], "the rights stay");
        world.take_over();
        assert_eq!(
            world.policy_condition(),
            Some((false, "AdmissionPolicyMissing".to_owned()))
        );
        assert_eq!(world.said(), [""; 0], "says it twice");
        // Errors are no news.
        world.standing = Standing::Unknown;
        assert_eq!(world.said(), [""; 0]);
        world.standing = Standing::InForce;
        world.take_over();
        assert_eq!(world.policy_condition(), Some((true, String::new())));
        assert_eq!(world.said(), [""; 0]);
    }
}

#[test]
fn what_relies_on_a_policy_that_is_gone_is_taken_back_until_it_is_there_again() {
    for isolation in [Isolation::Prefixed, Isolation::None] {
        let mut world = cluster_scoped(isolation).given();
        world.take_over();
        world.standing = Standing::Withdrawn;
        assert_eq!(
            world.said(),
            ["prove"],
            "nothing is said before the policy was asked for"
        );
        world.policy = Some(missing());
        assert_eq!(world.said(), ["unbind everywhere", "delete cluster role"]);
        world.take_over();
        assert_eq!(world.said(), ["AdmissionPolicyMissing"]);
        world.take_over();
        assert_eq!(
            world.policy_condition(),
            Some((false, "AdmissionPolicyMissing".to_owned()))
        );
        assert_eq!(world.said(), [""; 0], "says it twice");
        // It comes again in the ordinary way, with a proof.
        world.standing = Standing::InForce;
        world.policy = None;
        assert_eq!(world.said(), ["prove"]);
        world = world.given();
        assert!(world.cluster_role.is_some() && world.cluster_role_binding.is_some());
        assert_eq!(world.said(), ["in sync"]);
        world.take_over();
        assert_eq!(world.policy_condition(), Some((true, String::new())));
    }
}

#[test]
fn what_does_not_rely_on_the_policy_is_not_touched() {
    let mut reads = World::with_schema();
    reads.export.spec.informer_scope = InformerScope::Cluster;
    for mut world in [World::with_schema(), cluster_scoped(Isolation::Namespaced), reads] {
        while !world.said().is_empty() {
            world.take_over();
        }
        for standing in [Standing::Withheld, Standing::Withdrawn, Standing::InForce] {
            world.standing = standing;
            assert_eq!(world.said(), [""; 0], "{standing:?}");
        }
        assert_eq!(world.policy_condition(), None);
    }
}

#[test]
fn only_the_last_that_wins_may_overwrite() {
    let mut world = cluster_scoped(Isolation::None);
    world.export.spec.conflict_policy = Some(ConflictPolicy::FirstWins);
    world = world.given();
    assert_eq!(verbs(world.cluster_role.as_ref().unwrap().rules.as_deref()), WRITES);
    world.export.spec.conflict_policy = Some(ConflictPolicy::LastWins);
    assert_eq!(world.said(), ["prove"], "a wider role");
    world.policy = Some(missing());
    assert_eq!(world.said(), ["AdmissionPolicyMissing"]);
    world = world.given();
    assert_eq!(verbs(world.cluster_role.as_ref().unwrap().rules.as_deref()), OVERWRITES);
    // Less is taken at once.
    world.export.spec.conflict_policy = None;
    assert_eq!(world.said(), ["patch cluster role"]);
    world.take_over();
    assert_eq!(verbs(world.cluster_role.as_ref().unwrap().rules.as_deref()), WRITES);
}

#[test]
fn a_lost_binding_is_proved_anew() {
    let mut world = cluster_scoped(Isolation::Prefixed).given();
    world.cluster_role_binding = None;
    assert_eq!(world.said(), ["prove"]);
    world.policy = Some(Ok(()));
    assert_eq!(world.said(), ["bind everywhere"]);
}

#[test]
fn reading_everywhere_needs_no_proof() {
    let mut world = World::with_schema();
    world.export.spec.informer_scope = InformerScope::Cluster;
    let role = format!("cluster role: {READS}");
    assert_eq!(world.said(), [role.as_str(), "bind everywhere"]);
}

#[test]
fn converted_objects_stand_in_the_contract_namespace_or_in_a_mapped_one() {
    let mut world = cluster_scoped(Isolation::Namespaced);
    world.export.spec.informer_scope = InformerScope::Cluster;
    let role = format!("role: {WRITES}");
    assert_eq!(world.said(), [role.as_str(), "bind"]);
    world.take_over();
    let (made, binding) = (world.role.clone().unwrap(), world.role_binding.clone().unwrap());
    assert_eq!(made.metadata.namespace.as_deref(), Some("kube-bind-a"));
    assert_eq!(made.metadata.name.as_deref(), Some("kube-binder-resources-riders"));
    assert_eq!(binding.role_ref.name, "kube-binder-resources-riders");
    assert_eq!(world.said(), ["in sync"]);
    let mut bent = (*made).clone();
    bent.rules = None;
    world.role = Some(Arc::new(bent));
    assert_eq!(world.said(), ["patch role"]);
    // Beside the claims: the mapped namespace has the Role.
    world.export.spec.cluster_scoped_namespace = Some("ranch".to_owned());
    assert_eq!(world.said(), ["unbind", "delete role"]);
    world.take_over();
    assert_eq!(world.said(), ["in sync"]);
}

#[test]
fn rights_of_another_placement_are_taken_once_that_is_certain() {
    let mut world = cluster_scoped(Isolation::Prefixed).given();
    world.export.spec.isolation = Isolation::Namespaced;
    let schemas = std::mem::replace(&mut world.schemas, vec![None]);
    let said = world.said();
    assert!(!said.iter().any(|said| said.contains("everywhere")), "{said:?}");
    world.schemas = schemas;
    let role = format!("role: {WRITES}");
    assert_eq!(
        world.said(),
        [role.as_str(), "bind", "unbind everywhere", "delete cluster role"]
    );
}

#[test]
fn nothing_is_given_to_anybody_but_the_contracts_own_account() {
    for isolation in [Isolation::Prefixed, Isolation::None, Isolation::Namespaced] {
        let world = cluster_scoped(isolation).given();
        let subjects = world.role_binding.iter().map(|binding| binding.subjects.clone()).chain(
            world
                .cluster_role_binding
                .iter()
                .map(|binding| binding.subjects.clone()),
        );
        let mut bound = 0;
        for subject in subjects.flatten().flatten() {
            assert_eq!(
                (subject.name.as_str(), subject.namespace.as_deref()),
                ("kube-binder", Some("kube-bind-a"))
            );
            bound += 1;
        }
        assert_eq!(bound, 1);
    }
}

#[test]
fn a_template_that_would_move_objects_is_told_and_not_followed() {
    let mut world = cluster_scoped(Isolation::Prefixed).given();
    let mut offer = world.template.clone().unwrap().unwrap();
    offer.schemas[0].scope = Scope::Cluster;
    world.template = Some(Ok(offer.clone()));
    world.settle("", "");
    offer.export.isolation = Isolation::None;
    world.template = Some(Ok(offer));
    world.settle("", "PlacementChanged");
}
