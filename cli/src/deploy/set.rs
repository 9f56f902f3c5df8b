//! The konnector as a set of manifests, which synk applies, and what became of it in the words of this command.

use std::time::Duration;

use bindery_api::names::{KONNECTOR, KUBE_BIND_NAMESPACE};
use bindery_synk::{
    Gvk, Manifest, ObjectRef, Options, Report, Target, Version,
    input::Origin,
    plan::{Allowed, Refusal},
    versions::Versions,
    wire::{self, Action},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    applied::{Applied, Outcome},
    errors::Failure,
    output::joined,
    plan::Conflict,
};

/// How often an apply that failed for a passing reason is tried again.
const RETRIES: u32 = 10;
/// The pause before each.
const PAUSE: Duration = Duration::from_secs(1);
/// How many objects are written at once: there are few.
const CONCURRENCY: usize = 4;
/// How many versions one can go back to.
const HISTORY: usize = 3;
/// Who applied the konnector before it was a set: former releases of this command, and `kubectl apply --server-side`. What
/// left the manifests since would stay theirs, such as what a policy made an exception of.
const FORMER_MANAGERS: [&str; 2] = ["kubectl-bind-deploy", "kubectl"];
/// Where the manifests stand, in messages.
const ORIGIN: &str = "the konnector's manifests";

/// The konnector's set, and where it lives.
pub(crate) fn target() -> Result<Target, Failure> {
    let set = KONNECTOR.parse();
    Ok(Target {
        set: set.map_err(|error| Failure::Format(format!("{error}")))?,
        namespace: KUBE_BIND_NAMESPACE.to_owned(),
    })
}

/// How the set is applied: what goes was chosen here, and what belongs to others stays theirs.
pub(crate) fn options() -> Options {
    Options {
        allowed: Allowed {
            prune: true,
            fields_of: FORMER_MANAGERS.map(str::to_owned).to_vec(),
            ..Allowed::default()
        },
        retries: RETRIES,
        pause: PAUSE,
        concurrency: CONCURRENCY,
        history: HISTORY,
        ..Options::default()
    }
}

/// Manifests as synk takes them.
pub(crate) fn set(manifests: Vec<Value>) -> Result<Vec<Manifest>, Failure> {
    let manifest = |(index, manifest): (usize, Value)| {
        let object = ObjectRef::of(&manifest);
        match (object, manifest) {
            (Some(object), Value::Object(body)) => Ok(Manifest {
                object,
                body,
                origin: Origin {
                    file: ORIGIN.to_owned(),
                    document: index + 1,
                    line: 1,
                },
            }),
            (_, other) => Err(Failure::Format(format!("no manifest: {other}"))),
        }
    };
    manifests.into_iter().enumerate().map(manifest).collect()
}

/// What became of the objects of a set, as far as they could be applied.
pub(crate) fn told(report: &Report) -> Vec<Applied> {
    let done = report.objects.iter().filter(|outcome| outcome.error.is_none());
    let done = done.map(|outcome| {
        let became = match outcome.action {
            Action::Create => Outcome::Created,
            Action::Update | Action::Replace => Outcome::Configured,
            Action::None | Action::Ignored => Outcome::Unchanged,
        };
        applied(&outcome.object, became)
    });
    let pruned = report.pruned.iter();
    done.chain(pruned.map(|object| applied(object, Outcome::Deleted)))
        .collect()
}

/// What any version of the set lists, in the order in which it was applied.
pub(crate) fn listed(versions: &Versions) -> Vec<ObjectRef> {
    let mut listed: Vec<ObjectRef> = Vec::new();
    for object in versions.iter().flat_map(|known| &known.objects) {
        if listed.iter().all(|other| other.identity() != object.identity()) {
            listed.push(object.clone());
        }
    }
    listed
}

/// What of it goes with the set, and what is there and stays, for somebody took it out of the set.
pub(crate) fn going(
    versions: &Versions,
    listed: Vec<ObjectRef>,
    live: &[Option<Value>],
) -> (Vec<ObjectRef>, Vec<ObjectRef>) {
    let there = listed.into_iter().zip(live);
    let there = there.filter_map(|(object, live)| Some((object, live.as_ref()?)));
    let (going, staying): (Vec<_>, Vec<_>) = there.partition(|(_, live)| versions.own(live));
    let objects = |all: Vec<(ObjectRef, &Value)>| all.into_iter().map(|(object, _)| object).collect();
    (objects(going), objects(staying))
}

/// Whether a set of this name is what this command applied, rather than somebody's own, of which nothing is to be deleted.
pub(crate) fn check_set(versions: &Versions) -> Result<(), Conflict> {
    let Some(newest) = versions.newest() else {
        return Ok(());
    };
    let konnector = ObjectRef {
        gvk: Gvk::new("apps/v1", "Deployment"),
        namespace: Some(KUBE_BIND_NAMESPACE.to_owned()),
        name: KONNECTOR.to_owned(),
    };
    let is_konnector = |object: &ObjectRef| object.identity() == konnector.identity();
    let why = match newest.namespace.as_deref() {
        Some(KUBE_BIND_NAMESPACE) if newest.objects.iter().any(is_konnector) => return Ok(()),
        Some(KUBE_BIND_NAMESPACE) => format!("it does not list {konnector}"),
        Some(other) => format!("it has namespace {other}"),
        None => "it says no namespace, so that another program applied it".to_owned(),
    };
    Err(Conflict::ForeignSet {
        set: newest.version.set.to_string(),
        version: newest.version.to_string(),
        why,
    })
}

/// Whether a former release of this command applied an object, when there was no set yet.
pub(crate) fn was_deployed(meta: &ObjectMeta) -> bool {
    let entries = meta.managed_fields.iter().flatten();
    entries
        .filter_map(|entry| entry.manager.as_deref())
        .any(|manager| manager == FORMER_MANAGERS[0])
}

/// Whether an object belongs to the konnector's set.
pub(crate) fn is_in_set(meta: &ObjectMeta) -> bool {
    let owners = meta.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.kind == wire::KIND && owner.api_version == wire::API_VERSION)
        .any(|owner| {
            let version: Result<Version, _> = owner.name.parse();
            version.is_ok_and(|version| version.set.as_str() == KONNECTOR)
        })
}

pub(crate) fn applied(object: &ObjectRef, outcome: Outcome) -> Applied {
    Applied::new(object.short(), object.namespace.clone(), outcome)
}

/// Why the set is not applied, with a mend that this command has.
pub(crate) fn refused(refusals: &[Refusal]) -> String {
    let text = |refusal: &Refusal| match refusal {
        Refusal::Owned { object, owner } => format!(
            "{object} belongs to {owner}, which kubectl bind does not apply: go on updating the konnector with what applied \
             it, or delete it there first"
        ),
        Refusal::OtherNamespace { set, recorded, .. } => {
            format!("set {set} of this cluster has namespace {recorded}: it is not that of the konnector")
        }
        other => other.to_string(),
    };
    joined(refusals.iter().map(text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bindery_synk::report::{Outcome as Became, Problem};
    use bindery_synk::wire::ResourceSet;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};
    use serde_json::json;

    use super::*;
    use crate::{
        applied::Report as Lines,
        output::{Format, Printer},
    };

    fn object(kind: &str, name: &str) -> ObjectRef {
        ObjectRef::of(&json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } })).unwrap()
    }

    fn became(name: &str, action: Action, error: Option<Problem>) -> Became {
        Became {
            object: object("Secret", name),
            action,
            uid: None,
            generation: None,
            error,
        }
    }

    #[test]
    fn what_was_done_is_told_in_kubectls_words() {
        let report = Report {
            version: None,
            changed: true,
            objects: vec![
                became("a", Action::Create, None),
                became("b", Action::Update, None),
                became("c", Action::Replace, None),
                became("d", Action::None, None),
                became("e", Action::Ignored, None),
                became("f", Action::None, Some(Problem::lasting("no"))),
            ],
            pruned: vec![object("ConfigMap", "g")],
        };
        let mut out = Vec::new();
        let mut printer = Printer::new(Format::Table, &mut out);
        let mut lines = Lines::new(&mut printer);
        told(&report)
            .into_iter()
            .try_for_each(|applied| lines.tell(applied))
            .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "secret/a created\nsecret/b configured\nsecret/c configured\nsecret/d unchanged\nsecret/e unchanged\n\
             configmap/g deleted\n"
        );
    }

    #[test]
    fn manifests_are_taken_as_they_are() {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } });
        let manifests = set(vec![namespace.clone(), namespace.clone()]).unwrap();
        assert_eq!(Value::Object(manifests[1].body.clone()), namespace);
        assert_eq!(
            (manifests[1].object.clone(), manifests[1].origin.document),
            (object("Namespace", "a"), 2)
        );
        assert!(set(vec![json!({ "kind": "Namespace" })]).is_err());
    }

    #[test]
    fn no_refusal_names_a_flag_that_this_command_lacks() {
        let set = target().unwrap().set;
        let refusals = [
            Refusal::Owned {
                object: object("Secret", "a"),
                owner: "ResourceSet other.v2".to_owned(),
            },
            Refusal::OtherNamespace {
                set,
                recorded: "elsewhere".to_owned(),
                given: KUBE_BIND_NAMESPACE.to_owned(),
            },
        ];
        let text = refused(&refusals);
        assert!(!text.contains("--"), "{text}");
        for part in ["secret/a", "other.v2", "elsewhere"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    /// A set of the konnector's name, which lists a Deployment.
    fn versions(number: u64, namespace: Option<&str>, deployment: (&str, &str)) -> Versions {
        let name = format!("{KONNECTOR}.v{number}");
        let annotations: BTreeMap<_, _> = namespace
            .map(|namespace| (wire::NAMESPACE, namespace))
            .into_iter()
            .collect();
        let set: ResourceSet = serde_json::from_value(json!({
            "apiVersion": wire::API_VERSION, "kind": wire::KIND,
            "metadata": { "name": name, "uid": name, "labels": { "name": KONNECTOR }, "annotations": annotations },
            "spec": { "resources": [{ "group": "apps", "version": "v1", "kind": "Deployment",
                "items": [{ "namespace": deployment.0, "name": deployment.1 }] }] },
            "status": { "phase": "Settled" },
        }))
        .unwrap();
        let versions = Versions::of(&KONNECTOR.parse().unwrap(), [set]);
        assert_eq!(versions.len(), 1);
        versions
    }

    #[test]
    fn a_set_that_somebody_else_gave_the_name_is_not_ours() {
        let check = |namespace: Option<&str>, deployment: (&str, &str), expect: &str| {
            let refused = check_set(&versions(3, namespace, deployment)).err();
            let refused = refused.map(|conflict| conflict.to_string()).unwrap_or_default();
            assert_eq!(refused.is_empty(), expect.is_empty(), "{refused}");
            assert!(refused.contains(expect), "{expect} is missing in {refused}");
            assert!(expect.is_empty() || refused.contains("konnector.v3"), "{refused}");
        };
        let ours = (KUBE_BIND_NAMESPACE, KONNECTOR);
        assert!(check_set(&Versions::default()).is_ok());
        check(Some(KUBE_BIND_NAMESPACE), ours, "");
        check(Some("team"), ours, "it has namespace team");
        check(None, ours, "it says no namespace");
        for other in [(KUBE_BIND_NAMESPACE, "web"), ("team", KONNECTOR)] {
            check(
                Some(KUBE_BIND_NAMESPACE),
                other,
                "does not list deployment.apps/konnector",
            );
        }
    }

    #[test]
    fn what_somebody_took_out_of_the_set_stays() {
        let versions = versions(3, Some(KUBE_BIND_NAMESPACE), (KUBE_BIND_NAMESPACE, KONNECTOR));
        assert_eq!(listed(&versions), versions.newest().unwrap().objects);
        let objects: Vec<_> = ["a", "b", "c"].map(|name| object("Secret", name)).into();
        let owned_by = |uid: &str| Some(json!({ "metadata": { "ownerReferences": [{ "uid": uid }] } }));
        let live = [owned_by("konnector.v3"), owned_by("konnector.v2"), None];
        assert_eq!(
            going(&versions, objects, &live),
            (vec![object("Secret", "a")], vec![object("Secret", "b")])
        );
    }

    #[test]
    fn what_a_former_release_applied_is_known_by_its_manager() {
        let meta = |manager: &str| ObjectMeta {
            managed_fields: Some(vec![ManagedFieldsEntry {
                manager: Some(manager.to_owned()),
                ..ManagedFieldsEntry::default()
            }]),
            ..ObjectMeta::default()
        };
        assert!(was_deployed(&meta("kubectl-bind-deploy")));
        assert!(!was_deployed(&meta("kubectl")) && !was_deployed(&ObjectMeta::default()));
    }

    #[test]
    fn what_is_in_the_set_is_told_from_what_is_in_others() {
        let check = |kind: &str, name: &str, expect: bool| {
            let meta = ObjectMeta {
                owner_references: Some(vec![OwnerReference {
                    api_version: wire::API_VERSION.to_owned(),
                    kind: kind.to_owned(),
                    name: name.to_owned(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            };
            assert_eq!(is_in_set(&meta), expect, "{kind} {name}");
        };
        check(wire::KIND, "konnector.v3", true);
        check(wire::KIND, "other.v3", false);
        check(wire::KIND, "konnector", false);
        check("Node", "konnector.v3", false);
        assert!(!is_in_set(&ObjectMeta::default()));
    }
}
