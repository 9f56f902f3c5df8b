//! The variables and the command line of a container. Pure.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};

/// Values of Secrets and ConfigMaps that variables refer to: by kind, name and key.
pub(super) type References = BTreeMap<(&'static str, String, String), String>;

/// Kinds in [`References`].
pub(super) const SECRET: &str = "Secret";
pub(super) const CONFIG_MAP: &str = "ConfigMap";

/// Returns which values of Secrets and ConfigMaps the variables of a container need. Optional ones may be missing.
pub(super) fn needed(container: &Container) -> Vec<(&'static str, String, String)> {
    let sources = container.env.iter().flatten().filter_map(|it| it.value_from.as_ref());
    sources
        .filter_map(|source| {
            let secret = source
                .secret_key_ref
                .as_ref()
                .map(|it| (SECRET, it.name.clone(), it.key.clone()));
            secret.or_else(|| {
                let map = source.config_map_key_ref.as_ref();
                map.map(|it| (CONFIG_MAP, it.name.clone(), it.key.clone()))
            })
        })
        .collect()
}

/// Returns the variables of a container: what it sets, over `given`, which are those of its image and of the node.
pub(super) fn variables(
    pod: &Pod,
    container: &Container,
    given: BTreeMap<String, String>,
    references: &References,
) -> Result<BTreeMap<String, String>> {
    let mut variables = given;
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), &variables)),
            Some(source) => from_source(pod, source, references)
                .with_context(|| format!("variable {} of container {}", variable.name, container.name))?,
        };
        if let Some(value) = value {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

/// Returns the command line: what the container says over what the image says, with variables put in.
pub(super) fn command(
    container: &Container,
    entrypoint: &[String],
    default_args: &[String],
    variables: &BTreeMap<String, String>,
) -> Vec<String> {
    let command = container.command.as_deref().filter(|it| !it.is_empty());
    let args = container.args.as_deref().filter(|it| !it.is_empty());
    // A command of the container replaces the arguments of the image too.
    let default_args = if command.is_some() { &[] } else { default_args };
    let words = command.unwrap_or(entrypoint).iter().chain(args.unwrap_or(default_args));
    words.map(|word| expand(word, variables)).collect()
}

/// Puts values in for `$(NAME)`. An unknown name stays as it is, and `$$` stands for `$`.
fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let name = after.strip_prefix('(').and_then(|it| it.split_once(')'));
        let value = name.and_then(|(name, rest)| Some((variables.get(name)?, rest)));
        rest = match (value, after.strip_prefix('$')) {
            (Some((value, rest)), _) => {
                expanded.push_str(value);
                rest
            }
            (None, escaped) => {
                expanded.push('$');
                escaped.unwrap_or(after)
            }
        };
    }
    expanded + rest
}

fn from_source(pod: &Pod, source: &EnvVarSource, references: &References) -> Result<Option<String>> {
    if let Some(field) = &source.field_ref {
        return self::field(pod, &field.field_path).map(Some);
    }
    let (kind, name, key, optional) = match (&source.secret_key_ref, &source.config_map_key_ref) {
        (Some(it), _) => (SECRET, &it.name, &it.key, it.optional),
        (_, Some(it)) => (CONFIG_MAP, &it.name, &it.key, it.optional),
        _ => bail!("this kubelet does not know its source: {source:?}"),
    };
    let value = references.get(&(kind, name.clone(), key.clone())).cloned();
    if value.is_none() && optional != Some(true) {
        bail!("couldn't find key {key} in {kind} {name}");
    }
    Ok(value)
}

/// Returns the value of a field of the Pod, as `fieldRef` names it.
pub(super) fn field(pod: &Pod, path: &str) -> Result<String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let value = match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "spec.nodeName" => spec.and_then(|it| it.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|it| it.service_account_name.clone()),
        "status.podIP" => status.and_then(|it| it.pod_ip.clone()),
        "status.hostIP" => status.and_then(|it| it.host_ip.clone()),
        _ => {
            let (map, key) = path.split_once("['").context("this kubelet does not know the field")?;
            let map = match map {
                "metadata.labels" => metadata.labels.as_ref(),
                "metadata.annotations" => metadata.annotations.as_ref(),
                _ => bail!("this kubelet does not know the field {path}"),
            };
            let key = key.strip_suffix("']").context("a field without an end")?;
            return Ok(map.and_then(|it| it.get(key)).cloned().unwrap_or_default());
        }
    };
    value.with_context(|| format!("the Pod has no {path}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn container(value: serde_json::Value) -> Container {
        serde_json::from_value(value).unwrap()
    }

    fn pod() -> Pod {
        let metadata = json!({"name": "one", "namespace": "here", "labels": {"a/b": "c"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": [], "nodeName": "node"}})).unwrap()
    }

    #[test]
    fn variables_are_put_in() {
        let known = map(&[("A", "1"), ("B", "2")]);
        for (text, expect) in [
            ("", ""),
            ("--x=$(A)$(B)", "--x=12"),
            ("$(C) $A $$(A) $", "$(C) $A $(A) $"),
            ("$(A", "$(A"),
        ] {
            assert_eq!(expand(text, &known), expect, "{text}");
        }
    }

    #[test]
    fn a_command_of_the_container_replaces_that_of_the_image() {
        let words = |command: &[&str], args: &[&str]| {
            let container = container(json!({"name": "it", "command": command, "args": args}));
            let own = |word: &str| vec![word.to_owned()];
            self::command(&container, &own("entrypoint"), &own("default"), &BTreeMap::new()).join(" ")
        };
        assert_eq!(words(&[], &[]), "entrypoint default");
        assert_eq!(words(&[], &["a"]), "entrypoint a");
        assert_eq!(words(&["c"], &[]), "c");
        assert_eq!(words(&["c"], &["a"]), "c a");
    }

    #[test]
    fn variables_come_from_fields_secrets_and_other_variables() {
        let container = container(json!({"name": "it", "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": true}}},
            {"name": "BOTH", "value": "$(NODE)-$(KEY)-$(PATH)"},
        ]}));
        assert_eq!(needed(&container).len(), 2);
        let references = References::from([((SECRET, "s".to_owned(), "k".to_owned()), "v".to_owned())]);
        let found = variables(&pod(), &container, map(&[("PATH", "/bin")]), &references).unwrap();
        let expect = [
            ("BOTH", "node-v-/bin"),
            ("KEY", "v"),
            ("LABEL", "c"),
            ("NODE", "node"),
            ("PATH", "/bin"),
        ];
        assert_eq!(found, map(&expect));
        let error = variables(&pod(), &container, BTreeMap::new(), &References::new()).unwrap_err();
        assert!(
            format!("{error:#}").contains("couldn't find key k in Secret s"),
            "{error:#}"
        );
    }
}
