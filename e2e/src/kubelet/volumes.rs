//! The volumes of a Pod, as folders of this machine.

mod atomic;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{
            ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, ServiceAccount, ServiceAccountTokenProjection,
            Volume, VolumeProjection,
        },
    },
};
use kube::{Api, Client, Resource, ResourceExt as _, api::PostParams};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use self::atomic::VolumeFile;
use super::environment;

/// Mode of a file, if the volume states none.
const FILE_MODE: i32 = 0o644;
/// Mode of an empty folder: any user of the Pod may write. Its group may too, and keeps what is made in it.
const EMPTY_DIR_MODE: u32 = 0o777;
const GROUP_WRITES: u32 = 0o2770;

/// The content of Secrets and ConfigMaps, by its keys.
type Data = BTreeMap<String, Vec<u8>>;

/// The files of a volume. Those without a mode have that of the volume.
type Files = Vec<(String, Vec<u8>, Option<i32>)>;

/// The volumes of one Pod.
pub(super) struct Volumes<'a> {
    client: &'a Client,
    pod: &'a Pod,
    /// The folder with a folder for each volume.
    folder: &'a Path,
    /// The files of each volume, by its name.
    written: Mutex<BTreeMap<String, Vec<VolumeFile>>>,
}

/// A kind whose objects are mounted as files.
trait Mounted:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned
{
    /// The kind, as kubelets name it in errors.
    const KIND: &'static str;

    fn data(self) -> Data;
}

impl<'a> Volumes<'a> {
    pub(super) fn new(client: &'a Client, pod: &'a Pod, folder: &'a Path) -> Self {
        Self {
            client,
            pod,
            folder,
            written: Mutex::default(),
        }
    }

    /// The folder of a volume.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the files of all volumes, anew if they are there already: tokens expire, and Secrets change. A volume that cannot be
    /// written does not keep the others from it; the first error is returned.
    pub(super) async fn write(&self) -> Result<()> {
        let spec = self.pod.spec.as_ref().context("a Pod without a spec")?;
        let mut outcome = Ok(());
        for volume in spec.volumes.iter().flatten() {
            let written = self.write_one(volume).await;
            let written = written.with_context(|| format!("MountVolume.SetUp failed for volume {:?}", volume.name));
            outcome = outcome.and(written);
        }
        outcome
    }

    async fn write_one(&self, volume: &Volume) -> Result<()> {
        let path = self.path(&volume.name);
        if volume.empty_dir.is_some() {
            if !path.exists() {
                fs::create_dir(&path)?;
                atomic::give(&path, EMPTY_DIR_MODE, GROUP_WRITES, self.group()?)?;
            }
            return Ok(());
        }
        let (files, mode) = if let Some(it) = &volume.secret {
            let name = it.secret_name.as_deref().unwrap_or_default();
            let files = self.mounted::<Secret>(name, it.items.as_deref(), it.optional);
            (files.await?, it.default_mode)
        } else if let Some(it) = &volume.config_map {
            let files = self.mounted::<ConfigMap>(&it.name, it.items.as_deref(), it.optional);
            (files.await?, it.default_mode)
        } else if let Some(it) = &volume.projected {
            let mut files = Files::new();
            for source in it.sources.iter().flatten() {
                files.extend(self.projection(source).await?);
            }
            (files, it.default_mode)
        } else if let Some(it) = &volume.downward_api {
            (self.downward(it.items.as_deref())?, it.default_mode)
        } else {
            bail!("this kubelet knows emptyDir, secret, configMap, projected and downwardAPI alone");
        };
        let file = |(path, content, own): (_, _, Option<i32>)| -> Result<_> {
            let mode = own.or(mode).unwrap_or(FILE_MODE).try_into()?;
            Ok(VolumeFile { path, content, mode })
        };
        let files = files.into_iter().map(file).collect::<Result<Vec<_>>>()?;
        if self.written.lock().get(&volume.name) != Some(&files) {
            atomic::write(&path, &files, self.group()?)?;
            self.written.lock().insert(volume.name.clone(), files);
        }
        Ok(())
    }

    /// The group of the Pod's volumes, if it has one.
    fn group(&self) -> Result<Option<u32>> {
        let context = self.pod.spec.as_ref().and_then(|it| it.security_context.as_ref());
        let group = context.and_then(|it| it.fs_group);
        Ok(group.map(u32::try_from).transpose()?)
    }

    async fn projection(&self, source: &VolumeProjection) -> Result<Files> {
        if let Some(it) = &source.service_account_token {
            return Ok(vec![(it.path.clone(), self.token(it).await?.into_bytes(), None)]);
        }
        if let Some(it) = &source.secret {
            return self.mounted::<Secret>(&it.name, it.items.as_deref(), it.optional).await;
        }
        if let Some(it) = &source.config_map {
            let files = self.mounted::<ConfigMap>(&it.name, it.items.as_deref(), it.optional);
            return files.await;
        }
        let Some(it) = &source.downward_api else {
            bail!("this kubelet does not know a source of a projected volume");
        };
        self.downward(it.items.as_deref())
    }

    /// Fields of the Pod.
    fn downward(&self, items: Option<&[DownwardAPIVolumeFile]>) -> Result<Files> {
        let file = |file: &DownwardAPIVolumeFile| {
            let field = file.field_ref.as_ref();
            let field = field.context("this kubelet knows only fields in files of the downward API")?;
            let value = environment::field(self.pod, &field.field_path)?;
            Ok((file.path.clone(), value.into_bytes(), file.mode))
        };
        items.iter().copied().flatten().map(file).collect()
    }

    /// Gets a token that is void without the Pod.
    async fn token(&self, projection: &ServiceAccountTokenProjection) -> Result<String> {
        let spec = self.pod.spec.as_ref();
        let account = spec
            .and_then(|it| it.service_account_name.as_deref())
            .unwrap_or("default");
        let accounts: Api<ServiceAccount> = self.api();
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: projection.audience.iter().cloned().collect(),
                expiration_seconds: projection.expiration_seconds,
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: self.pod.metadata.name.clone(),
                    uid: self.pod.metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await?;
        Ok(answer
            .status
            .context("a TokenRequest was answered without a token")?
            .token)
    }

    /// The files of an object, which may be missing if the volume says so.
    async fn mounted<K: Mounted>(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<Files> {
        let is_optional = optional == Some(true);
        let found = self.api::<K>().get_opt(name).await?;
        ensure!(found.is_some() || is_optional, "{} {name:?} not found", K::KIND);
        select(found.map(K::data).unwrap_or_default(), items, is_optional)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.pod.namespace().unwrap_or_default())
    }
}

impl Mounted for Secret {
    const KIND: &'static str = "secret";

    fn data(self) -> Data {
        let data = self.data.unwrap_or_default();
        data.into_iter().map(|(key, value)| (key, value.0)).collect()
    }
}

impl Mounted for ConfigMap {
    const KIND: &'static str = "configmap";

    fn data(self) -> Data {
        let text = self.data.unwrap_or_default().into_iter();
        let binary = self.binary_data.unwrap_or_default().into_iter();
        let text = text.map(|(key, value)| (key, value.into_bytes()));
        text.chain(binary.map(|(key, value)| (key, value.0))).collect()
    }
}

/// Returns a file for each key, or for those that `items` name, under the paths and with the modes that `items` give them.
fn select(data: Data, items: Option<&[KeyToPath]>, is_optional: bool) -> Result<Files> {
    let Some(items) = items else {
        return Ok(data.into_iter().map(|(key, content)| (key, content, None)).collect());
    };
    let mut selected = Files::new();
    for item in items {
        match data.get(&item.key) {
            Some(content) => selected.push((item.path.clone(), content.clone(), item.mode)),
            None => ensure!(is_optional, "references non-existent key {}", item.key),
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_choose_and_name_files() {
        let data = || Data::from([("a".to_owned(), vec![1]), ("b".to_owned(), vec![2])]);
        let item = |key: &str| KeyToPath {
            key: key.to_owned(),
            path: format!("as/{key}"),
            mode: Some(0o400),
        };
        let all = [("a".to_owned(), vec![1], None), ("b".to_owned(), vec![2], None)];
        assert_eq!(select(data(), None, false).unwrap(), all);
        let chosen = select(data(), Some(&[item("b")]), false).unwrap();
        assert_eq!(chosen, [("as/b".to_owned(), vec![2], Some(0o400))]);
        assert_eq!(select(data(), Some(&[item("c")]), true).unwrap(), Files::new());
        let error = select(data(), Some(&[item("c")]), false).unwrap_err().to_string();
        assert!(error.contains("non-existent key c"), "{error}");
    }
}
