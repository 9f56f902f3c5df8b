//! The record of resources in the annotations of a provider namespace. It tells which objects may be left in the namespace
//! when no export and no template does any more.

use std::collections::BTreeSet;

use bindery_api::{annotations, v1alpha2::GroupResource};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

/// One of the two records of a provider namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantRecord {
    /// The exported resources that a consumer ever had rights on in the namespace.
    Resources,
    /// The claimed resources that a consumer ever had rights on in the namespace.
    Claims,
}

impl GrantRecord {
    /// The annotation that holds the record.
    pub const fn annotation(self) -> &'static str {
        match self {
            Self::Resources => annotations::GRANTED_RESOURCES,
            Self::Claims => annotations::GRANTED_CLAIMS,
        }
    }

    /// The value of the annotation for these resources.
    pub fn value(resources: &BTreeSet<GroupResource>) -> String {
        let names: Vec<_> = resources.iter().map(ToString::to_string).collect();
        names.join(",")
    }
}

/// The resources in a record of a namespace.
pub fn recorded(namespace: &Namespace, record: GrantRecord) -> BTreeSet<GroupResource> {
    let names = namespace.annotations().get(record.annotation());
    let names = names
        .map_or("", String::as_str)
        .split(',')
        .filter(|name| !name.is_empty());
    names
        .map(|name| {
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            GroupResource::new(group, resource)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: Option<&str>, expect: &[(&str, &str)]) {
        for record in [GrantRecord::Resources, GrantRecord::Claims] {
            let mut namespace = Namespace::default();
            let entry = value.map(|value| (record.annotation().to_owned(), value.to_owned()));
            namespace.annotations_mut().extend(entry);
            let resources = recorded(&namespace, record);
            let expect = expect.iter().map(|(group, plural)| GroupResource::new(*group, *plural));
            assert_eq!(resources, expect.collect());
            assert_eq!(GrantRecord::value(&resources), value.unwrap_or_default());
        }
    }

    #[test]
    fn what_was_recorded_reads_back() {
        check(None, &[]);
        check(Some(""), &[]);
        check(Some("safes.bank.dev"), &[("bank.dev", "safes")]);
        check(
            Some("configmaps,secrets,safes.bank.dev"),
            &[("", "configmaps"), ("", "secrets"), ("bank.dev", "safes")],
        );
    }
}
