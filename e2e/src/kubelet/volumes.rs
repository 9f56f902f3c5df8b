//! The volumes of a Pod, as folders of this machine.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{
            ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, ServiceAccount, ServiceAccountTokenProjection,
            Volume, VolumeProjection,
        },
    },
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};

use super::environment;

/// Mode of a file, if the volume states none.
const FILE_MODE: u32 = 0o644;
/// Mode of an empty folder: any user of the Pod may write.
const EMPTY_DIR_MODE: u32 = 0o777;

/// The files of a volume, with their paths below it.
type Files = Vec<(String, Vec<u8>)>;

/// Makes the volumes of one Pod.
pub(super) struct Volumes<'a> {
    pub(super) client: &'a Client,
    pub(super) pod: &'a Pod,
    /// The folder with a folder for each volume.
    pub(super) folder: &'a Path,
}

impl Volumes<'_> {
    /// The folder of a volume.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the files of all volumes, anew if they are there already: tokens expire, and Secrets change.
    pub(super) async fn write(&self) -> Result<()> {
        let spec = self.pod.spec.as_ref().context("a Pod without a spec")?;
        for volume in spec.volumes.iter().flatten() {
            let written = self.write_one(volume).await;
            written.with_context(|| format!("MountVolume.SetUp failed for volume {:?}", volume.name))?;
        }
        Ok(())
    }

    async fn write_one(&self, volume: &Volume) -> Result<()> {
        let path = self.path(&volume.name);
        if volume.empty_dir.is_some() {
            if !path.exists() {
                fs::create_dir_all(&path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(EMPTY_DIR_MODE))?;
            }
            return self.give(&path);
        }
        let (files, mode) = if let Some(it) = &volume.secret {
            let name = it.secret_name.as_deref().unwrap_or_default();
            let files = self
                .secret(name, it.items.as_deref(), it.optional == Some(true))
                .await?;
            (files, it.default_mode)
        } else if let Some(it) = &volume.config_map {
            let files = self
                .config_map(&it.name, it.items.as_deref(), it.optional == Some(true))
                .await?;
            (files, it.default_mode)
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
        let mode = mode.map_or(Ok(FILE_MODE), u32::try_from)?;
        for (name, content) in files {
            let file = path.join(&name);
            ensure!(
                file.starts_with(&path) && !name.contains(".."),
                "path {name:?} leaves the volume"
            );
            self.write_file(&file, &content, mode)?;
        }
        fs::create_dir_all(&path)?;
        Ok(())
    }

    /// Replaces a file at once, so that no reader sees half of it.
    fn write_file(&self, path: &Path, content: &[u8], mode: u32) -> Result<()> {
        if fs::read(path).is_ok_and(|present| present == content) {
            return Ok(());
        }
        let folder = path.parent().context("a file in no folder")?;
        fs::create_dir_all(folder)?;
        let file = tempfile::NamedTempFile::new_in(folder)?;
        fs::write(file.path(), content)?;
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode))?;
        self.give(file.path())?;
        file.persist(path)?;
        Ok(())
    }

    /// Gives a file or folder to the group of the Pod's volumes, if it has one.
    fn give(&self, path: &Path) -> Result<()> {
        let context = self.pod.spec.as_ref().and_then(|it| it.security_context.as_ref());
        let Some(group) = context.and_then(|it| it.fs_group) else {
            return Ok(());
        };
        chown(path, None, Some(group.try_into()?))?;
        let mode = fs::metadata(path)?.permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o040))?;
        Ok(())
    }

    async fn projection(&self, source: &VolumeProjection) -> Result<Files> {
        if let Some(it) = &source.service_account_token {
            return Ok(vec![(it.path.clone(), self.token(it).await?.into_bytes())]);
        }
        if let Some(it) = &source.secret {
            return self
                .secret(&it.name, it.items.as_deref(), it.optional == Some(true))
                .await;
        }
        if let Some(it) = &source.config_map {
            return self
                .config_map(&it.name, it.items.as_deref(), it.optional == Some(true))
                .await;
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
            Ok((file.path.clone(), value.into_bytes()))
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

    async fn secret(&self, name: &str, items: Option<&[KeyToPath]>, is_optional: bool) -> Result<Files> {
        let found = self.api::<Secret>().get_opt(name).await?;
        ensure!(found.is_some() || is_optional, "secret {name:?} not found");
        let data = found.and_then(|it| it.data).unwrap_or_default();
        select(
            data.into_iter().map(|(key, ByteString(value))| (key, value)).collect(),
            items,
            is_optional,
        )
    }

    async fn config_map(&self, name: &str, items: Option<&[KeyToPath]>, is_optional: bool) -> Result<Files> {
        let found = self.api::<ConfigMap>().get_opt(name).await?;
        ensure!(found.is_some() || is_optional, "configmap {name:?} not found");
        let data = found.and_then(|it| it.data).unwrap_or_default();
        select(
            data.into_iter().map(|(key, value)| (key, value.into_bytes())).collect(),
            items,
            is_optional,
        )
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.pod.namespace().unwrap_or_default())
    }
}

/// Returns all files, or those that `items` name, under the paths that `items` give them.
fn select(files: Files, items: Option<&[KeyToPath]>, is_optional: bool) -> Result<Files> {
    let Some(items) = items else {
        return Ok(files);
    };
    let mut selected = Files::new();
    for item in items {
        match files.iter().find(|(key, _)| *key == item.key) {
            Some((_, content)) => selected.push((item.path.clone(), content.clone())),
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
        let files = || vec![("a".to_owned(), vec![1]), ("b".to_owned(), vec![2])];
        let item = |key: &str| KeyToPath {
            key: key.to_owned(),
            path: format!("as/{key}"),
            mode: None,
        };
        assert_eq!(select(files(), None, false).unwrap(), files());
        let chosen = select(files(), Some(&[item("b")]), false).unwrap();
        assert_eq!(chosen, [("as/b".to_owned(), vec![2])]);
        assert_eq!(select(files(), Some(&[item("c")]), true).unwrap(), Files::new());
        let error = select(files(), Some(&[item("c")]), false).unwrap_err().to_string();
        assert!(error.contains("non-existent key c"), "{error}");
    }
}
