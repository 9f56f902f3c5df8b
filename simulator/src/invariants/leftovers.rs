//! What is left when it has nobody any more: rights of exports that are gone, and what a binding leaves behind that has ended.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{annotations, labels};
use bindery_simulator_apiserver::ObjectKey;
use serde_json::Value;

use super::marks;
use crate::topology::{definition_name, group, offer_name};

type Objects = BTreeMap<ObjectKey, Arc<Value>>;

/// The kinds of objects that give rights.
pub(super) const RIGHTS: [&str; 4] = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];

/// Rights on a provider that were given for an export of a contract that does not exist.
pub(super) fn rights(provider: &Objects, contract: &str) -> Vec<(ObjectKey, String)> {
    let exists = |export: &str| {
        let key = ObjectKey::new("kube-bind.io", "apiserviceexports", contract, export);
        provider.contains_key(&key)
    };
    let rights = provider
        .iter()
        .filter(|(key, _)| RIGHTS.contains(&key.resource.as_str()));
    rights
        .filter(|(_, object)| marks::label(object, labels::CONTRACT) == Some(contract) && !marks::is_deleting(object))
        .filter_map(|(key, object)| {
            let export = marks::annotation(object, annotations::EXPORT).filter(|export| !exists(export))?;
            Some((
                key.clone(),
                format!("it gives rights for export {export}, which is gone"),
            ))
        })
        .collect()
}

/// What a binding of a provider's API leaves on the consumer when it is gone: its CRD, and copies of what the contract claimed.
pub(super) fn of_binding(consumer: &Objects, number: u8, contract_uid: &str) -> Vec<(ObjectKey, String)> {
    let name = offer_name(number);
    if consumer
        .iter()
        .any(|(key, object)| marks::is_binding_of(key, object, &name))
    {
        return Vec::new();
    }
    let definition = definition_name(number);
    let is_left = |key: &ObjectKey, object: &Value| {
        let is_definition = key.resource == "customresourcedefinitions" && key.name == definition;
        let is_copy =
            marks::is_copy_on_consumer(object) && marks::label(object, labels::CONTRACT_UID) == Some(contract_uid);
        is_definition || is_copy
    };
    let left = consumer.iter().filter(|(key, object)| is_left(key, object));
    let left = left.map(|(key, _)| (key.clone(), "its binding is gone, and it is left".to_owned()));
    // Objects that outlive their binding are the user's, who could not delete them.
    let group = group(number);
    let is_held = |key: &ObjectKey, object: &Value| key.group == group && marks::is_held(object);
    let held = consumer.iter().filter(|(key, object)| is_held(key, object));
    let held = held.map(|(key, _)| {
        let message = "its binding is gone, and the konnector's finalizer is left on it";
        (key.clone(), message.to_owned())
    });
    left.chain(held).collect()
}
