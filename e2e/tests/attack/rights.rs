//! What a consumer may do on its provider's API server: the whole of it. What is not in these tables is refused.

use std::collections::BTreeSet;

use crate::{
    offers::{CLAIMED, Offer, Place},
    tenant::{RANCH, Tenant},
    world::Scope,
};

/// What the konnector needs of a resource it syncs.
const WRITE: &str = "create delete get list patch update watch";
/// What it needs where it only looks.
const READ: &str = "get list watch";

/// In the contract namespace: ClusterRole `kube-binder`, bound there.
pub(crate) const CONTRACT: [(&str, &str, &str); 9] = [
    ("kube-bind.io", "apiserviceexportrequests", WRITE),
    ("kube-bind.io", "apiservicenamespaces", WRITE),
    ("kube-bind.io", "apiserviceexports", READ),
    ("kube-bind.io", "boundschemas", READ),
    ("kube-bind.io", "clusterbindings", READ),
    ("kube-bind.io", "apiserviceexports/status", "get patch update"),
    ("kube-bind.io", "clusterbindings/status", "get patch update"),
    ("kube-bind.io", "boundschemas/status", "get list patch update"),
    // The contract namespace itself.
    ("", "namespaces", "get"),
];

/// What Kubernetes lets everybody do who can log in: ask about oneself.
const EVERYBODY: [(&str, &str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
];

/// What Kubernetes shows everybody of itself: paths, and beginnings of paths.
pub(crate) const OPEN_PATHS: [&str; 15] = [
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
    "/readyz",
    "/version",
    "/version/",
];

/// A verb, a group and a resource.
pub(crate) type Right = (String, String, String);

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where<'a> {
    /// To one namespace.
    Namespace(&'a str),
    /// To all namespaces at once, or to what has none.
    Everywhere,
}

/// All rights of a tenant that reach there.
pub(crate) fn of(tenant: &Tenant, scope: Scope, place: Where<'_>) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    let mut add = |group: &str, resource: &str, verbs: &str| {
        let verbs = verbs.split_whitespace();
        rights.extend(verbs.map(|verb| (verb.to_owned(), group.to_owned(), resource.to_owned())));
    };
    for (group, resource, verbs) in EVERYBODY {
        add(group, resource, verbs);
    }
    if place == Where::Namespace(&tenant.contract) {
        for (group, resource, verbs) in CONTRACT {
            add(group, resource, verbs);
        }
    }
    for offer in &tenant.offers {
        add(&offer.group(), offer.name, resource_verbs(*offer, tenant, scope, place));
        if offer.claims {
            for claimed in CLAIMED {
                add("", claimed, claim_verbs(*offer, claimed, tenant, scope, place));
            }
        }
    }
    rights
}

/// What a tenant may do with the objects of an API there, by RBAC.
fn resource_verbs(offer: Offer, tenant: &Tenant, scope: Scope, place: Where<'_>) -> &'static str {
    match offer.place {
        Place::Mapped | Place::Beside if place == Where::Namespace(&tenant.space) => WRITE,
        Place::Contract if place == Where::Namespace(&tenant.contract) => WRITE,
        Place::Mapped if scope == Scope::Cluster => READ,
        Place::Mapped | Place::Contract | Place::Beside => "",
        // The policy says which of them.
        Place::Prefixed | Place::Shared => WRITE,
        Place::SharedLastWins => "create delete get list overwrite patch update watch",
    }
}

/// What a tenant may do with claimed objects there, by RBAC. In the namespace that contracts share the policy says which.
fn claim_verbs(offer: Offer, claimed: &str, tenant: &Tenant, scope: Scope, place: Where<'_>) -> &'static str {
    let home = if offer.place == Place::Shared {
        RANCH
    } else {
        &tenant.space
    };
    if place == Where::Namespace(home) {
        WRITE
    } else if scope == Scope::Cluster && claimed != "secrets" {
        READ
    } else {
        ""
    }
}
