//! Plans the objects by which a provider's admin lets others bind a template: one ClusterRole and one ClusterRoleBinding for each
//! template. They carry a label, so that the commands change nothing that somebody else wrote.

use std::collections::BTreeMap;

use bindery_api::{annotations, v1alpha2::GROUP};
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;

/// Label of the roles and bindings that grant a template.
pub(crate) const LABEL: &str = "kube-bind.io/grant";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Somebody who may bind a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grantee {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

/// What a grant, or the end of one, does to the subjects of a template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GrantPlan {
    /// The subjects are as they should be.
    Unchanged,
    /// Write both objects.
    Write {
        role: Box<ClusterRole>,
        binding: Box<ClusterRoleBinding>,
    },
    /// Delete both objects, for the last subject is taken out.
    Delete,
}

/// An object of that name exists, and these commands did not write it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} exists and does not carry the label {LABEL}=true, so it is left alone")]
pub(crate) struct Foreign(pub(crate) String);

impl Grantee {
    fn subject(&self) -> Subject {
        let of_rbac = |kind: &str, name: &str| Subject {
            api_group: Some(RBAC.to_owned()),
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: None,
        };
        match self {
            Self::User(name) => of_rbac("User", name),
            Self::Group(name) => of_rbac("Group", name),
            Self::ServiceAccount { namespace, name } => Subject {
                api_group: None,
                kind: "ServiceAccount".to_owned(),
                name: name.clone(),
                namespace: Some(namespace.clone()),
            },
        }
    }

    /// Whether a subject of a ClusterRoleBinding is this one. The API group may be left out in manifests.
    fn is(&self, subject: &Subject) -> bool {
        let own = self.subject();
        (&own.kind, &own.name, &own.namespace) == (&subject.kind, &subject.name, &subject.namespace)
    }
}

impl std::fmt::Display for Grantee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::ServiceAccount { namespace, name } => write!(f, "ServiceAccount {namespace}:{name}"),
        }
    }
}

/// The name of the ClusterRole and of the ClusterRoleBinding that grant a template.
pub(crate) fn name(template: &str) -> String {
    format!("kube-bind-grant-{template}")
}

/// Whether an object was written by these commands.
pub(crate) fn is_ours<K: kube::ResourceExt>(object: &K) -> bool {
    object.labels().get(LABEL).map(String::as_str) == Some(annotations::TRUE)
}

/// Plans to let `add` bind a template, and `remove` no longer. `existing` is the ClusterRoleBinding of the template.
pub(crate) fn plan(
    template: &str,
    existing: Option<&ClusterRoleBinding>,
    add: &[Grantee],
    remove: &[Grantee],
) -> Result<GrantPlan, Foreign> {
    if let Some(foreign) = existing.filter(|existing| !is_ours(*existing)) {
        return Err(Foreign(format!("ClusterRoleBinding {}", foreign.name_any())));
    }
    let before = existing
        .and_then(|existing| existing.subjects.clone())
        .unwrap_or_default();
    let mut after = before.clone();
    after.retain(|subject| !remove.iter().any(|grantee| grantee.is(subject)));
    for grantee in add {
        if !after.iter().any(|subject| grantee.is(subject)) {
            after.push(grantee.subject());
        }
    }
    if after == before {
        return Ok(GrantPlan::Unchanged);
    }
    if after.is_empty() {
        return Ok(GrantPlan::Delete);
    }
    Ok(GrantPlan::Write {
        role: Box::new(role(template)),
        binding: Box::new(binding(template, after, existing)),
    })
}

fn metadata(template: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name(template)),
        labels: Some(BTreeMap::from([(LABEL.to_owned(), annotations::TRUE.to_owned())])),
        annotations: Some(BTreeMap::from([(
            annotations::TEMPLATE.to_owned(),
            template.to_owned(),
        )])),
        ..ObjectMeta::default()
    }
}

fn role(template: &str) -> ClusterRole {
    ClusterRole {
        metadata: metadata(template),
        rules: Some(vec![PolicyRule {
            api_groups: Some(vec![GROUP.to_owned()]),
            resources: Some(vec!["apiserviceexporttemplates".to_owned()]),
            resource_names: Some(vec![template.to_owned()]),
            verbs: vec!["bind".to_owned()],
            ..PolicyRule::default()
        }]),
        aggregation_rule: None,
    }
}

/// The binding; with the version of the one that was read, so that it replaces no other.
fn binding(template: &str, subjects: Vec<Subject>, existing: Option<&ClusterRoleBinding>) -> ClusterRoleBinding {
    let seen = existing.map(|existing| existing.metadata.clone()).unwrap_or_default();
    ClusterRoleBinding {
        metadata: ObjectMeta {
            uid: seen.uid,
            resource_version: seen.resource_version,
            ..metadata(template)
        },
        role_ref: RoleRef {
            api_group: RBAC.to_owned(),
            kind: "ClusterRole".to_owned(),
            name: name(template),
        },
        subjects: Some(subjects),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> Grantee {
        Grantee::Group(name.to_owned())
    }

    fn names(plan: &GrantPlan) -> Vec<String> {
        match plan {
            GrantPlan::Write { binding, .. } => binding
                .subjects
                .iter()
                .flatten()
                .map(|subject| subject.name.clone())
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    fn granted(grantees: &[Grantee]) -> ClusterRoleBinding {
        match plan("cowboys", None, grantees, &[]).unwrap() {
            GrantPlan::Write { binding, .. } => *binding,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn subjects_are_added_once_and_the_last_one_takes_the_objects_along() {
        let first = granted(&[group("ranchers"), group("ranchers")]);
        assert_eq!(first.subjects.as_ref().unwrap().len(), 1);
        assert_eq!(
            plan("cowboys", Some(&first), &[group("ranchers")], &[]),
            Ok(GrantPlan::Unchanged)
        );
        let jane = Grantee::User("jane".to_owned());
        let more = plan("cowboys", Some(&first), std::slice::from_ref(&jane), &[]).unwrap();
        assert_eq!(names(&more), ["ranchers", "jane"]);
        let both = granted(&[group("ranchers"), jane.clone()]);
        assert_eq!(
            names(&plan("cowboys", Some(&both), &[], &[group("ranchers")]).unwrap()),
            ["jane"]
        );
        // A user of a group's name is somebody else.
        let user = Grantee::User("ranchers".to_owned());
        assert_eq!(
            plan("cowboys", Some(&both), &[], std::slice::from_ref(&user)),
            Ok(GrantPlan::Unchanged)
        );
        assert_eq!(
            plan("cowboys", Some(&both), &[], &[group("ranchers"), jane]),
            Ok(GrantPlan::Delete)
        );
        assert_eq!(plan("cowboys", None, &[], &[user]), Ok(GrantPlan::Unchanged));
    }

    #[test]
    fn the_role_lets_bind_one_template_and_nothing_else() {
        let account = Grantee::ServiceAccount {
            namespace: "ci".to_owned(),
            name: "deployer".to_owned(),
        };
        let Ok(GrantPlan::Write { role, binding }) = plan("cowboys", None, &[account], &[]) else {
            panic!("no write");
        };
        let rule = &role.rules.as_ref().unwrap()[0];
        assert_eq!(rule.verbs, ["bind"]);
        assert_eq!(rule.resource_names.as_deref(), Some(&["cowboys".to_owned()][..]));
        assert_eq!(Some(&binding.role_ref.name), role.metadata.name.as_ref());
        assert_eq!(binding.subjects.as_ref().unwrap()[0].namespace.as_deref(), Some("ci"));
        assert!(is_ours(&*role) && is_ours(&*binding));
    }

    #[test]
    fn what_somebody_else_wrote_is_left_alone_and_a_change_is_of_the_version_that_was_read() {
        let mut foreign = granted(&[group("ranchers")]);
        foreign.metadata.labels = None;
        let refused = plan("cowboys", Some(&foreign), &[group("a")], &[]).unwrap_err();
        assert!(refused.to_string().contains("kube-bind-grant-cowboys"), "{refused}");
        let mut seen = granted(&[group("ranchers")]);
        seen.metadata.resource_version = Some("7".to_owned());
        let Ok(GrantPlan::Write { binding, .. }) = plan("cowboys", Some(&seen), &[group("a")], &[]) else {
            panic!("no write");
        };
        assert_eq!(binding.metadata.resource_version.as_deref(), Some("7"));
    }
}
