//! Makes the command of a container: what its image says, and what the Pod says over it.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Container as ContainerSpec, Pod, Secret, Service};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::{
    environment::{self, References, SECRET},
    known,
    pull::Pulled,
};
use crate::container::{Container, Mount};

/// What the containers of a Pod share.
pub(super) struct Surroundings<'a> {
    pub(super) pod: &'a Pod,
    pub(super) client: Client,
    /// Service `kubernetes`, at the address where Pods reach the API server.
    pub(super) api_server: Service,
    /// The files of `/etc` that a kubelet writes.
    pub(super) etc: Vec<Mount>,
    /// The folder of each volume, by its name.
    pub(super) volumes: BTreeMap<String, PathBuf>,
}

impl Surroundings<'_> {
    /// Fails if the container asks for something that is missing, or that this kubelet does not know.
    pub(super) async fn create(&self, spec: &ContainerSpec, pulled: &Pulled) -> Result<Container> {
        known::check(self.pod)?;
        let mut container = Container::of(&pulled.image, &pulled.root, &[])?;
        let references = self.references(spec).await?;
        let own = environment::variables(self.pod, spec, self.service_variables().await?, &references)?;
        let default_args = pulled
            .image
            .configuration()
            .config()
            .as_ref()
            .and_then(|it| it.cmd().clone());
        container.args = environment::command(spec, &container.args, &default_args.unwrap_or_default(), &own);
        container.env.extend(own);
        let passwd = fs::read_to_string(pulled.root.join("etc/passwd")).unwrap_or_default();
        container.user = user(self.pod, spec, container.user, &passwd)?;
        container.groups = groups(self.pod)?;
        container.mounts = self.mounts(spec)?;
        Ok(container)
    }

    /// The variables by which programs find the Services of their namespace, and the API server.
    async fn service_variables(&self) -> Result<BTreeMap<String, String>> {
        let mut variables = BTreeMap::new();
        if self
            .pod
            .spec
            .as_ref()
            .is_some_and(|it| it.enable_service_links != Some(false))
        {
            let namespace = self.pod.namespace().unwrap_or_default();
            let services = Api::<Service>::namespaced(self.client.clone(), &namespace);
            for service in services.list(&ListParams::default()).await? {
                variables.extend(environment::of_service(&service));
            }
        }
        variables.extend(environment::of_service(&self.api_server));
        Ok(variables)
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

/// The numbers of user and group: of the container, of the Pod, or of the image. A user that is not of the image has the group that
/// the image's `/etc/passwd` gives it, or else that of root.
fn user(pod: &Pod, spec: &ContainerSpec, of_image: (u32, u32), passwd: &str) -> Result<(u32, u32)> {
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
    let (user, default_group) = match user {
        Some(user) => (user.try_into()?, group_of(user, passwd).unwrap_or_default()),
        None => of_image,
    };
    let group = group.map_or(Ok(default_group), u32::try_from)?;
    ensure!(
        user != 0 || must_not != Some(true),
        "container has runAsNonRoot and image will run as root"
    );
    Ok((user, group))
}

/// The group of a user, by the lines `name:password:user:group:…` of `/etc/passwd`.
fn group_of(user: i64, passwd: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        let is_it = fields.next()?.parse() == Ok(user);
        let group = fields.next()?.parse().ok()?;
        is_it.then_some(group)
    })
}

/// The groups of programs beside their own: those that the Pod names, and that of its volumes.
fn groups(pod: &Pod) -> Result<Vec<u32>> {
    let of_pod = pod.spec.as_ref().and_then(|it| it.security_context.as_ref());
    let named = of_pod.and_then(|it| it.supplemental_groups.as_ref());
    let groups = named
        .into_iter()
        .flatten()
        .chain(of_pod.and_then(|it| it.fs_group.as_ref()));
    Ok(groups.map(|group| u32::try_from(*group)).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/sbin/nologin\nother:x:9:90::/:/sbin/nologin\n";

    fn pod(of_pod: &Value, own: &Value) -> Pod {
        let spec = json!({"name": "it", "securityContext": own});
        let pod = json!({"metadata": {}, "spec": {"containers": [spec], "securityContext": of_pod}});
        serde_json::from_value(pod).unwrap()
    }

    #[track_caller]
    fn check(of_pod: &Value, own: &Value, expect: Result<(u32, u32), &str>) {
        let pod = pod(of_pod, own);
        let spec = &pod.spec.as_ref().unwrap().containers[0];
        let found = user(&pod, spec, (65532, 65532), PASSWD).map_err(|error| error.to_string());
        assert_eq!(found.as_ref().map_err(String::as_str).copied(), expect);
    }

    #[test]
    fn the_user_is_that_of_the_container_the_pod_or_the_image() {
        check(&json!({}), &json!({}), Ok((65532, 65532)));
        check(&json!({}), &json!({"runAsGroup": 8}), Ok((65532, 8)));
        // The group is not that of the image.
        check(&json!({"runAsUser": 7}), &json!({}), Ok((7, 0)));
        check(&json!({"runAsUser": 9}), &json!({}), Ok((9, 90)));
        let both = json!({"runAsUser": 7, "runAsGroup": 8});
        check(&both, &json!({"runAsUser": 9}), Ok((9, 8)));
        let must_not = json!({"runAsNonRoot": true});
        let refused = Err("container has runAsNonRoot and image will run as root");
        check(&must_not, &json!({"runAsUser": 0}), refused);
        check(&must_not, &json!({"runAsNonRoot": false, "runAsUser": 0}), Ok((0, 0)));
    }

    #[test]
    fn a_program_is_in_the_groups_of_its_pod() {
        let of = |of_pod: &Value| groups(&pod(of_pod, &json!({}))).unwrap();
        assert_eq!(of(&json!({})), Vec::<u32>::new());
        assert_eq!(of(&json!({"supplementalGroups": [3, 4], "fsGroup": 5})), [3, 4, 5]);
    }
}
