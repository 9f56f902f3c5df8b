//! Counts the server's requests to the API server.

use std::collections::BTreeMap;

use anyhow::Result;
use bindery_e2e::{Asked, Audit, Moment, NAMESPACE};
use serde::Serialize;

/// Numbers of the server's requests to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counted {
    pub(super) reads: usize,
    pub(super) writes: usize,
    /// Creations of TokenReviews, SubjectAccessReviews and TokenRequests, which store nothing: questions and no writes.
    pub(super) reviews: usize,
    /// Requests about its Lease, which the other numbers leave out.
    pub(super) leases: usize,
    /// The writes by verb and resource.
    pub(super) written: BTreeMap<String, usize>,
    /// Number of requests by verb and resource, such as `create namespaces`. Without the Lease.
    pub(super) each: BTreeMap<String, usize>,
}

/// The server's requests to the API server since a moment. Those about its Lease are counted apart.
pub(super) fn since(audit: &Audit, from: Moment) -> Result<Counted> {
    let by = format!("system:serviceaccount:{NAMESPACE}:bindery-server");
    let asked = audit.since(from)?;
    Ok(count(asked.iter().filter(|asked| asked.by == by)))
}

fn count<'a>(asked: impl Iterator<Item = &'a Asked>) -> Counted {
    let mut counted = Counted::default();
    for asked in asked {
        if asked.resource == "leases" {
            counted.leases += 1;
            continue;
        }
        let subresource = if asked.subresource.is_empty() { "" } else { "/" };
        let what = format!("{} {}{subresource}{}", asked.verb, asked.resource, asked.subresource);
        if asked.resource.ends_with("reviews") || asked.subresource == "token" {
            counted.reviews += 1;
        } else if asked.is_write() && !asked.dry_run {
            counted.writes += 1;
            *counted.written.entry(what.clone()).or_default() += 1;
        } else {
            counted.reads += 1;
        }
        *counted.each.entry(what).or_default() += 1;
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(verb: &str, resource: &str, dry_run: bool) -> Asked {
        Asked {
            by: String::new(),
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            dry_run,
            continues: false,
        }
    }

    #[test]
    fn a_question_is_no_write() {
        let all = [
            asked("create", "tokenreviews", false),
            asked("create", "subjectaccessreviews", false),
            asked("create", "namespaces", false),
            asked("create", "namespaces", true),
            asked("watch", "namespaces", false),
            asked("update", "leases", false),
            Asked {
                subresource: "token".to_owned(),
                ..asked("create", "serviceaccounts", false)
            },
        ];
        let counted = count(all.iter());
        assert_eq!((counted.reads, counted.writes, counted.reviews), (2, 1, 3));
        assert_eq!(counted.leases, 1);
        assert_eq!(counted.each["create namespaces"], 2);
        assert_eq!(counted.written, BTreeMap::from([("create namespaces".to_owned(), 1)]));
        assert!(!counted.each.contains_key("update leases"), "{:?}", counted.each);
    }
}
