//! Makes the command of a container: what its image says, and what the Pod says over it.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Container as ContainerSpec, Pod, Secret};
use kube::{Api, Client, ResourceExt as _};

use super::{
    environment::{self, References, SECRET},
    pull::Pulled,
};
use crate::container::{Container, Mount};

/// What the containers of a Pod share.
pub(super) struct Surroundings<'a> {
    pub(super) pod: &'a Pod,
    pub(super) client: Client,
    /// The variables by which programs find the API server.
    pub(super) variables: BTreeMap<String, String>,
    /// The files of `/etc` that a kubelet writes.
    pub(super) etc: Vec<Mount>,
    /// The folder of each volume, by its name.
    pub(super) volumes: BTreeMap<String, PathBuf>,
}

impl Surroundings<'_> {
    /// Fails if the container asks for something that is missing, or that this kubelet does not know.
    pub(super) async fn create(&self, spec: &ContainerSpec, pulled: &Pulled) -> Result<Container> {
        for (is_set, field) in [
            (spec.working_dir.is_some(), "workingDir"),
            (spec.lifecycle.is_some(), "lifecycle"),
            (spec.env_from.is_some(), "envFrom"),
        ] {
            ensure!(
                !is_set,
                "this kubelet does not know {field}, which container {} has",
                spec.name
            );
        }
        let mut container = Container::of(&pulled.image, &pulled.root, &[])?;
        container.env.extend(self.variables.clone());
        let references = self.references(spec).await?;
        container.env = environment::variables(self.pod, spec, container.env, &references)?;
        let default_args = pulled
            .image
            .configuration()
            .config()
            .as_ref()
            .and_then(|it| it.cmd().clone());
        container.args = environment::command(spec, &container.args, &default_args.unwrap_or_default(), &container.env);
        container.user = user(self.pod, spec, container.user)?;
        container.mounts = self.mounts(spec)?;
        Ok(container)
    }

    /// Reads what variables refer to.
    async fn references(&self, spec: &ContainerSpec) -> Result<References> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let mut found = References::new();
        for (kind, name, key) in environment::needed(spec) {
            let value = if kind == SECRET {
                let secrets = Api::<Secret>::namespaced(self.client.clone(), &namespace);
                let data = secrets.get_opt(&name).await?.and_then(|it| it.data).unwrap_or_default();
                data.get(&key).map(|it| String::from_utf8(it.0.clone())).transpose()?
            } else {
                let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &namespace);
                let data = maps.get_opt(&name).await?.and_then(|it| it.data).unwrap_or_default();
                data.get(&key).cloned()
            };
            found.extend(value.map(|value| ((kind, name, key), value)));
        }
        Ok(found)
    }

    fn mounts(&self, spec: &ContainerSpec) -> Result<Vec<Mount>> {
        let volumes = || self.pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
        let is_empty_dir = |name: &str| volumes().any(|it| it.name == name && it.empty_dir.is_some());
        let mut mounts = self.etc.clone();
        for mount in spec.volume_mounts.iter().flatten() {
            if mount.sub_path.is_some() || mount.sub_path_expr.is_some() {
                bail!("this kubelet does not know subPath, which container {} has", spec.name);
            }
            let source = self.volumes.get(&mount.name);
            mounts.push(Mount {
                source: source
                    .with_context(|| format!("there is no volume {:?}", mount.name))?
                    .clone(),
                target: mount.mount_path.clone(),
                // Whatever a Pod says, nobody but the kubelet writes to what it keeps up to date.
                is_writable: mount.read_only != Some(true) && is_empty_dir(&mount.name),
            });
        }
        Ok(mounts)
    }
}

/// The numbers of user and group: of the container, of the Pod, or of the image.
fn user(pod: &Pod, spec: &ContainerSpec, of_image: (u32, u32)) -> Result<(u32, u32)> {
    let own = spec.security_context.as_ref();
    let of_pod = pod.spec.as_ref().and_then(|it| it.security_context.as_ref());
    let user = own
        .and_then(|it| it.run_as_user)
        .or_else(|| of_pod.and_then(|it| it.run_as_user));
    let group = own
        .and_then(|it| it.run_as_group)
        .or_else(|| of_pod.and_then(|it| it.run_as_group));
    let must_not = own
        .and_then(|it| it.run_as_non_root)
        .or_else(|| of_pod.and_then(|it| it.run_as_non_root));
    let user = user.map_or(Ok(of_image.0), u32::try_from)?;
    let group = group.map_or(Ok(of_image.1), u32::try_from)?;
    ensure!(
        user != 0 || must_not != Some(true),
        "container has runAsNonRoot and image will run as root"
    );
    Ok((user, group))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(of_pod: &Value, own: &Value, expect: Result<(u32, u32), &str>) {
        let spec = json!({"name": "it", "securityContext": own});
        let pod = json!({"metadata": {}, "spec": {"containers": [spec], "securityContext": of_pod}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let spec = &pod.spec.as_ref().unwrap().containers[0];
        let found = user(&pod, spec, (65532, 65532)).map_err(|error| error.to_string());
        assert_eq!(found.as_ref().map_err(String::as_str).copied(), expect);
    }

    #[test]
    fn the_user_is_that_of_the_container_the_pod_or_the_image() {
        check(&json!({}), &json!({}), Ok((65532, 65532)));
        check(&json!({"runAsUser": 7}), &json!({}), Ok((7, 65532)));
        let both = json!({"runAsUser": 7, "runAsGroup": 8});
        check(&both, &json!({"runAsUser": 9}), Ok((9, 8)));
        let must_not = json!({"runAsNonRoot": true});
        let refused = Err("container has runAsNonRoot and image will run as root");
        check(&must_not, &json!({"runAsUser": 0}), refused);
        check(
            &must_not,
            &json!({"runAsNonRoot": false, "runAsUser": 0}),
            Ok((0, 65532)),
        );
    }
}
