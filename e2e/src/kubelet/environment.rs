//! The variables and the command line of a container. Pure.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod, Service};
use kube::ResourceExt as _;

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

/// Returns the variables by which programs find a Service that has an IP.
pub(super) fn of_service(service: &Service) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let spec = service.spec.as_ref();
    let address = spec.and_then(|it| it.cluster_ip.as_deref());
    let Some(address) = address.filter(|it| !it.is_empty() && *it != "None") else {
        return variables;
    };
    let upper = |name: &str| name.replace('-', "_").to_uppercase();
    let prefix = upper(&service.name_any());
    let mut set = |name: String, value: &str| {
        variables.insert(name, value.to_owned());
    };
    set(format!("{prefix}_SERVICE_HOST"), address);
    for (index, it) in spec.into_iter().flat_map(|it| it.ports.iter().flatten()).enumerate() {
        let port = it.port.to_string();
        let protocol = it.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{address}:{port}", protocol.to_lowercase());
        if index == 0 {
            set(format!("{prefix}_SERVICE_PORT"), &port);
            set(format!("{prefix}_PORT"), &url);
        }
        if let Some(name) = &it.name {
            set(format!("{prefix}_SERVICE_PORT_{}", upper(name)), &port);
        }
        let of_port = format!("{prefix}_PORT_{port}_{protocol}");
        set(format!("{of_port}_PROTO"), &protocol.to_lowercase());
        set(format!("{of_port}_PORT"), &port);
        set(format!("{of_port}_ADDR"), address);
        set(of_port, &url);
    }
    variables
}

/// Returns the variables that a container sets, over `given`, which are those of Services. Those of its image are not known here.
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

/// Returns the command line: what the container says, with variables put in, over what the image says.
pub(super) fn command(
    container: &Container,
    entrypoint: &[String],
    default_args: &[String],
    variables: &BTreeMap<String, String>,
) -> Vec<String> {
    let own = |words: &Option<Vec<String>>| {
        let words = words.as_ref().filter(|it| !it.is_empty())?;
        Some(words.iter().map(|word| expand(word, variables)).collect::<Vec<_>>())
    };
    let command = own(&container.command);
    // A command of the container replaces the arguments of the image too.
    let default_args = if command.is_some() { &[] } else { default_args };
    let args = own(&container.args).unwrap_or_else(|| default_args.to_vec());
    command
        .unwrap_or_else(|| entrypoint.to_vec())
        .into_iter()
        .chain(args)
        .collect()
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
    fn variables_are_put_into_words_of_the_container_alone() {
        let container = container(json!({"name": "it", "args": ["$(A)", "$(PATH)"]}));
        let found = command(&container, &["$(A)".to_owned()], &[], &map(&[("A", "1")]));
        assert_eq!(found, ["$(A)", "1", "$(PATH)"]);
    }

    #[test]
    fn a_service_is_known_by_variables() {
        let ports = json!([{"name": "grpc-web", "port": 443, "protocol": "TCP"}]);
        let service = |address: &str| {
            let spec = json!({"clusterIP": address, "ports": ports});
            of_service(&serde_json::from_value(json!({"metadata": {"name": "a-b"}, "spec": spec})).unwrap())
        };
        let expect = [
            ("A_B_PORT", "tcp://10.0.0.7:443"),
            ("A_B_PORT_443_TCP", "tcp://10.0.0.7:443"),
            ("A_B_PORT_443_TCP_ADDR", "10.0.0.7"),
            ("A_B_PORT_443_TCP_PORT", "443"),
            ("A_B_PORT_443_TCP_PROTO", "tcp"),
            ("A_B_SERVICE_HOST", "10.0.0.7"),
            ("A_B_SERVICE_PORT", "443"),
            ("A_B_SERVICE_PORT_GRPC_WEB", "443"),
        ];
        assert_eq!(service("10.0.0.7"), map(&expect));
        assert_eq!(service("None"), BTreeMap::new());
    }

    #[test]
    fn variables_come_from_fields_secrets_and_other_variables() {
        let container = container(json!({"name": "it", "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": true}}},
            {"name": "ALL", "value": "$(NODE)-$(KEY)-$(A_SERVICE_PORT)-$(PATH)"},
        ]}));
        assert_eq!(needed(&container).len(), 2);
        let references = References::from([((SECRET, "s".to_owned(), "k".to_owned()), "v".to_owned())]);
        let found = variables(&pod(), &container, map(&[("A_SERVICE_PORT", "443")]), &references).unwrap();
        let expect = [
            ("ALL", "node-v-443-$(PATH)"),
            ("A_SERVICE_PORT", "443"),
            ("KEY", "v"),
            ("LABEL", "c"),
            ("NODE", "node"),
        ];
        assert_eq!(found, map(&expect));
        let error = variables(&pod(), &container, BTreeMap::new(), &References::new()).unwrap_err();
        assert!(
            format!("{error:#}").contains("couldn't find key k in Secret s"),
            "{error:#}"
        );
    }
}
