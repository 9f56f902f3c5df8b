//! Attempts made from discovery: every verb, on every resource, at every place that is not the attacker's, and at those
//! that are.

use http::Method;
use serde_json::{Value, json};

use crate::{
    attempt::{Attempt, Expect},
    rights::{self, Right, Where},
    served::{Served, Stock},
    tenant::{RANCH, Tenant},
    world::Scope,
};

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";
/// The name of an object where there is none.
const NOBODY: &str = "no-such";
/// Objects of one resource at one place that are attacked.
const OBJECTS_MAX: usize = 6;

/// Whom, where, and what with.
#[derive(Clone, Copy)]
pub(crate) struct Raid<'a> {
    pub(crate) attacker: &'a Tenant,
    pub(crate) scope: Scope,
    pub(crate) served: &'a [Served],
    pub(crate) stock: &'a Stock,
    pub(crate) namespaces: &'a [&'a str],
}

/// Every verb that discovery lists.
pub(crate) fn attempts(raid: Raid<'_>) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for resource in raid.served {
        for verb in &resource.verbs {
            if resource.namespaced {
                for namespace in raid.namespaces {
                    raid.add(resource, verb, Some(namespace), &mut attempts);
                }
            }
            let is_everywhere = ["list", "watch"].contains(&verb.as_str()) && resource.split().1.is_none();
            if !resource.namespaced || is_everywhere {
                raid.add(resource, verb, None, &mut attempts);
            }
        }
    }
    attempts
}

// === impl Raid ===

impl Raid<'_> {
    /// One verb at one place, on each object there.
    fn add(self, resource: &Served, verb: &str, namespace: Option<&str>, attempts: &mut Vec<Attempt>) {
        let collection = resource.collection(namespace);
        let place = namespace.map_or(Where::Everywhere, Where::Namespace);
        let by_name = resource.split().1.is_some() || !["create", "deletecollection", "list", "watch"].contains(&verb);
        if !by_name {
            let (method, path) = match verb {
                "create" => (Method::POST, format!("{collection}?dryRun=All")),
                "deletecollection" => (Method::DELETE, format!("{collection}?dryRun=All")),
                "list" => (Method::GET, format!("{collection}?limit=1")),
                _ => (Method::GET, format!("{collection}?watch=true&timeoutSeconds=1")),
            };
            let mut attempt = Attempt::new(method, path, self.expect(resource, verb, place));
            if verb == "create" {
                attempt.body = Some((JSON, self.new_object(resource)));
            }
            self.push(resource, verb, attempt, attempts);
            return;
        }
        for object in self.objects(resource, namespace) {
            let name = object["metadata"]["name"].as_str().unwrap_or(NOBODY);
            // To a rule, a Namespace is in itself.
            let is_namespace = resource.group.is_empty() && resource.split().0 == "namespaces";
            let expect = self.expect(
                resource,
                verb,
                if is_namespace { Where::Namespace(name) } else { place },
            );
            if expect == Expect::Own && name == NOBODY {
                continue;
            }
            let path = format!("{}?dryRun=All", resource.object(namespace, name));
            let (method, body) = match verb {
                "get" => (Method::GET, None),
                "delete" => (Method::DELETE, None),
                "patch" => (
                    Method::PATCH,
                    Some((MERGE, json!({"metadata": {"labels": {"raided": "yes"}}}))),
                ),
                "update" => (Method::PUT, Some((JSON, object.clone()))),
                "create" => (Method::POST, Some((JSON, sent_to(resource, name)))),
                other => unreachable!("discovery lists the verb {other:?} of {}", resource.name),
            };
            let mut attempt = Attempt::new(method, path, expect);
            attempt.body = body;
            self.push(resource, verb, attempt, attempts);
        }
    }

    /// Where RBAC lets in and the policy decides by name and mark, the generated object is none that could tell; those are
    /// attempts of their own.
    fn push(self, resource: &Served, verb: &str, attempt: Attempt, attempts: &mut Vec<Attempt>) {
        let mut offers = self.attacker.offers.iter();
        let is_wide = offers.any(|offer| offer.group() == resource.group && offer.is_wide());
        let is_wide = is_wide || attempt.path.contains(&format!("/namespaces/{RANCH}/"));
        let writes = !["get", "list", "watch"].contains(&verb);
        if !(is_wide && writes && attempt.expect == Expect::Own) {
            attempts.push(attempt);
        }
    }

    fn expect(self, resource: &Served, verb: &str, place: Where<'_>) -> Expect {
        let right: Right = (verb.to_owned(), resource.group.clone(), resource.name.clone());
        if rights::of(self.attacker, self.scope, place).contains(&right) {
            Expect::Own
        } else {
            Expect::Forbidden
        }
    }

    /// What there is at a place, the most telling first; a name that nobody has where there is nothing.
    fn objects(self, resource: &Served, namespace: Option<&str>) -> Vec<Value> {
        let mut objects: Vec<&Value> = self.stock.of(resource, namespace).collect();
        let tells = |object: &Value| {
            let text = object.to_string();
            !["zorro", "joe", "kube-bind", "bindery", "kube-system"]
                .iter()
                .any(|word| text.contains(word))
        };
        objects.sort_by_cached_key(|object| tells(object));
        let is_namespaces = resource.split().0 == "namespaces";
        objects.truncate(if is_namespaces { usize::MAX } else { OBJECTS_MAX });
        if objects.is_empty() {
            return vec![sent_to(resource, NOBODY)];
        }
        objects.into_iter().cloned().collect()
    }

    /// An object that could be created: like one there is, under a new name.
    fn new_object(self, resource: &Served) -> Value {
        let (api_version, kind) = &resource.body;
        // What is asked rather than made has no name.
        let asked = match kind.as_str() {
            "SelfSubjectReview" => Some(json!({})),
            "SelfSubjectAccessReview" => Some(json!({"nonResourceAttributes": {"path": "/", "verb": "get"}})),
            "SelfSubjectRulesReview" => Some(json!({"namespace": "default"})),
            _ => None,
        };
        if let Some(spec) = asked {
            return json!({"apiVersion": api_version, "kind": kind, "spec": spec});
        }
        let example = self.stock.example(resource).filter(|_| resource.group.contains('.'));
        let mut object = sent_to(resource, "raider");
        if let Some(spec) = example.and_then(|example| example.get("spec")) {
            object["spec"] = spec.clone();
        }
        object
    }
}

/// The least that can be sent to a resource.
fn sent_to(resource: &Served, name: &str) -> Value {
    let (api_version, kind) = &resource.body;
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}
