//! Owner groups: the groups whose members use a contract as its owners do. All functions decide without a client.

use std::collections::BTreeSet;

use bindery_api::{annotations, names::plain_text};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// Number of owner groups that a contract may have.
pub const GROUPS_MAX: usize = 16;
/// Longest name of an owner group, in bytes.
pub const GROUP_LENGTH_MAX: usize = 256;
/// The prefix of Kubernetes' own groups, such as `system:authenticated`, which hold more callers than anybody means to share with.
const SYSTEM: &str = "system:";

/// Why a contract cannot be shared as a caller wants.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum SharingError {
    /// The caller adds a group that its token does not carry.
    #[error(
        "your token does not carry group {group}, and an owner shares only with groups of its own; add a group of yours, or ask \
         the provider's admin to share the contract"
    )]
    ForeignGroup {
        /// The group.
        group: String,
    },
    /// The contract would have too many owner groups.
    #[error("a contract may have {GROUPS_MAX} owner groups at most, and this one would have {count}; remove some")]
    TooMany {
        /// The number of groups it would have.
        count: usize,
    },
}

/// Why a name cannot be that of an owner group.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum InvalidGroup {
    /// The name is empty.
    #[error("is empty; name a group as your token carries it")]
    Empty,
    /// The group is one of Kubernetes itself.
    #[error("begins with system:, as only groups of Kubernetes itself do; they cannot own contracts")]
    System,
    /// The name is too long, or holds a control character.
    #[error("{0}")]
    Text(String),
}

/// The groups that a call adds to the owner groups of a contract, and those that it removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Groups to add; each is a valid name.
    pub add: BTreeSet<String>,
    /// Groups to remove, after the others were added.
    pub remove: BTreeSet<String>,
}

/// Checks the name of a group that is to own a contract.
pub fn check_group(group: &str) -> Result<(), InvalidGroup> {
    if group.trim().is_empty() {
        return Err(InvalidGroup::Empty);
    }
    if group.starts_with(SYSTEM) {
        return Err(InvalidGroup::System);
    }
    plain_text(group, GROUP_LENGTH_MAX).map_err(|invalid| InvalidGroup::Text(invalid.to_string()))
}

/// The owner groups of a contract. It has none if the annotation is missing or cannot be read; names that no group may have are
/// left out, for the provider's admin may write the annotation too.
pub fn owner_groups(namespace: &Namespace) -> BTreeSet<String> {
    let json = namespace.annotations().get(annotations::OWNER_GROUPS);
    let groups: BTreeSet<String> = json
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default();
    groups.into_iter().filter(|group| check_group(group).is_ok()).collect()
}

/// Those of a caller's groups that own a contract.
pub fn matching(namespace: &Namespace, groups: &[String]) -> Vec<String> {
    if !namespace.annotations().contains_key(annotations::OWNER_GROUPS) {
        return Vec::new();
    }
    let owners = owner_groups(namespace);
    let matching: BTreeSet<_> = groups.iter().filter(|group| owners.contains(*group)).collect();
    matching.into_iter().cloned().collect()
}

/// The owner groups after a change. `own` are the groups of a caller who may add only those; `None` lets any be added.
pub fn after(
    before: &BTreeSet<String>,
    change: &Change,
    own: Option<&[String]>,
) -> Result<BTreeSet<String>, SharingError> {
    let is_allowed = |group: &String| before.contains(group) || own.is_none_or(|own| own.contains(group));
    if let Some(group) = change.add.iter().find(|group| !is_allowed(group)) {
        return Err(SharingError::ForeignGroup { group: group.clone() });
    }
    let added: BTreeSet<_> = before.union(&change.add).cloned().collect();
    let after: BTreeSet<_> = added.difference(&change.remove).cloned().collect();
    // A contract that has too many, as an admin may have written, can still give some up.
    if after.len() > GROUPS_MAX && after.len() > before.len() {
        return Err(SharingError::TooMany { count: after.len() });
    }
    Ok(after)
}

/// The patch that records the owner groups of a contract, as it was seen; without any, the annotation is removed.
pub fn patch(namespace: &Namespace, groups: &BTreeSet<String>) -> Value {
    let value = (!groups.is_empty()).then(|| json!(groups).to_string());
    json!({ "metadata": {
        "uid": namespace.metadata.uid,
        "resourceVersion": namespace.metadata.resource_version,
        "annotations": { annotations::OWNER_GROUPS: value },
    } })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(groups: &[&str]) -> BTreeSet<String> {
        groups.iter().map(|group| (*group).to_owned()).collect()
    }

    fn contract(json: &str) -> Namespace {
        let mut namespace = Namespace::default();
        let annotations = namespace.annotations_mut();
        annotations.insert(annotations::OWNER_GROUPS.to_owned(), json.to_owned());
        namespace
    }

    #[track_caller]
    fn check(before: &[&str], add: &[&str], remove: &[&str], own: Option<&[&str]>, expect: Result<&[&str], &str>) {
        let change = Change {
            add: set(add),
            remove: set(remove),
        };
        let own: Option<Vec<_>> = own.map(|own| own.iter().map(|group| (*group).to_owned()).collect());
        let after = after(&set(before), &change, own.as_deref());
        match expect {
            Ok(groups) => assert_eq!(after, Ok(set(groups))),
            Err(says) => assert!(after.unwrap_err().to_string().contains(says)),
        }
    }

    #[test]
    fn an_owner_adds_groups_of_its_own_and_an_admin_any() {
        check(&[], &["a"], &[], Some(&["a", "b"]), Ok(&["a"]));
        check(&[], &["c"], &[], Some(&["a", "b"]), Err("group c"));
        check(&[], &["c"], &[], None, Ok(&["c"]));
        // What owns it already may be named again by any owner, and removed.
        check(&["c"], &["c"], &[], Some(&[]), Ok(&["c"]));
        check(&["c"], &[], &["c", "unknown"], Some(&[]), Ok(&[]));
        check(&[], &["a"], &["a"], Some(&["a"]), Ok(&[]));
        check(&[], &[], &[], Some(&[]), Ok(&[]));
    }

    #[test]
    fn there_is_an_end_to_owner_groups() {
        let names: Vec<_> = (0..=GROUPS_MAX).map(|number| format!("g{number}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (most, last) = (&names[..GROUPS_MAX], &names[GROUPS_MAX..]);
        check(most, last, &[], None, Err("16 owner groups at most"));
        check(most, last, &["g0"], None, Ok(&names[1..]));
        check(&names, &[], &["g0"], None, Ok(&names[1..]));
    }

    #[test]
    fn groups_of_kubernetes_own_nothing() {
        for (group, is_valid) in [
            ("ranchers", true),
            ("oidc:team a", true),
            ("systems", true),
            ("", false),
            (" ", false),
            ("system:", false),
            ("system:authenticated", false),
            ("system:serviceaccounts:team", false),
            ("a\nb", false),
        ] {
            assert_eq!(check_group(group).is_ok(), is_valid, "{group:?}");
        }
        assert!(check_group(&"g".repeat(GROUP_LENGTH_MAX)).is_ok());
        assert!(check_group(&"g".repeat(GROUP_LENGTH_MAX + 1)).is_err());
        let shared = contract(r#"["system:authenticated", "a", "", "b"]"#);
        assert_eq!(owner_groups(&shared), set(&["a", "b"]));
        let groups = ["system:authenticated", "b", "b", "c"].map(ToOwned::to_owned);
        assert_eq!(matching(&shared, &groups), ["b"]);
    }

    #[test]
    fn a_list_that_cannot_be_read_admits_nobody() {
        for json in ["", "a", "[1]", r#"{"a": "b"}"#, "null"] {
            assert_eq!(
                matching(&contract(json), &["a".to_owned()]),
                Vec::<String>::new(),
                "{json}"
            );
        }
    }

    proptest! {
        /// What is written is read again, and admits exactly the members of the groups in it.
        #[test]
        fn the_record_reads_back(groups in prop::collection::btree_set("[a-z:@ ]{1,12}", 0..GROUPS_MAX), group in "[a-z]{1,2}") {
            let groups: BTreeSet<_> = groups.into_iter().filter(|group| check_group(group).is_ok()).collect();
            let patch = patch(&Namespace::default(), &groups);
            let value = &patch["metadata"]["annotations"][annotations::OWNER_GROUPS];
            let shared = value.as_str().map_or_else(Namespace::default, contract);
            prop_assert_eq!(value.is_null(), groups.is_empty());
            prop_assert_eq!(!matching(&shared, std::slice::from_ref(&group)).is_empty(), groups.contains(&group));
            prop_assert_eq!(owner_groups(&shared), groups);
        }
    }
}
