//! Reads and unpacks an image from an OCI image layout.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::GzDecoder;
use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tar::Archive;

use crate::layout::INDEX;

/// The permissions of the root of an unpacked image.
const ROOT_MODE: u32 = 0o755;

/// An image whose layout was read. Each file of it was compared with its digest.
#[derive(Debug)]
pub struct Image {
    folder: PathBuf,
    digest: String,
    manifest: ImageManifest,
    configuration: ImageConfiguration,
}

impl Image {
    /// Reads the image of a layout that holds one, such as those that this crate writes.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(INDEX);
        let index = ImageIndex::from_file(&path).with_context(|| format!("{} holds no image", folder.display()))?;
        let [descriptor] = &index.manifests()[..] else {
            bail!(
                "{} lists {} images; one is expected",
                path.display(),
                index.manifests().len()
            );
        };
        let manifest: ImageManifest = read(folder, descriptor)?;
        Ok(Self {
            folder: folder.to_owned(),
            digest: descriptor.digest().to_string(),
            configuration: read(folder, manifest.config())?,
            manifest,
        })
    }

    /// The digest of the manifest, which names the image everywhere.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// User, environment, entrypoint and labels.
    pub fn configuration(&self) -> &ImageConfiguration {
        &self.configuration
    }

    /// Returns the value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let labels = self.configuration.labels_of_config()?;
        labels.get(name).map(String::as_str)
    }

    /// Returns a file of the image, by its path from the root without a slash before it.
    pub fn file(&self, path: &str) -> Result<Vec<u8>> {
        // A layer hides what is in those below it.
        for layer in self.manifest.layers().iter().rev() {
            for entry in self.open_layer(layer)?.entries()? {
                let mut entry = entry?;
                if entry.path()?.to_str() == Some(path) {
                    let mut content = Vec::new();
                    entry.read_to_end(&mut content)?;
                    return Ok(content);
                }
            }
        }
        bail!("the image in {} has no file {path}", self.folder.display())
    }

    /// Unpacks all layers into a folder, with the owners that the image gives. Only root can do that.
    ///
    /// The folder itself becomes readable for everybody: the program in it runs as another user.
    pub fn unpack(&self, root: &Path) -> Result<()> {
        fs::create_dir_all(root)
            .and_then(|()| fs::set_permissions(root, Permissions::from_mode(ROOT_MODE)))
            .with_context(|| format!("cannot create {}", root.display()))?;
        for layer in self.manifest.layers() {
            let mut archive = self.open_layer(layer)?;
            archive.set_preserve_permissions(true);
            archive.set_preserve_ownerships(true);
            archive
                .unpack(root)
                .with_context(|| format!("cannot unpack layer {}", layer.digest()))?;
        }
        Ok(())
    }

    fn open_layer(&self, layer: &Descriptor) -> Result<Archive<GzDecoder<File>>> {
        ensure!(
            *layer.media_type() == MediaType::ImageLayerGzip,
            "layer {} is {}; only layers compressed by gzip are unpacked",
            layer.digest(),
            layer.media_type()
        );
        let path = verified(&self.folder, layer)?;
        Ok(Archive::new(GzDecoder::new(File::open(&path)?)))
    }
}

fn read<T: DeserializeOwned>(folder: &Path, descriptor: &Descriptor) -> Result<T> {
    let path = verified(folder, descriptor)?;
    serde_json::from_slice(&fs::read(&path)?)
        .with_context(|| format!("{} is not {}", path.display(), descriptor.media_type()))
}

/// Returns the path of a file of the layout, if its size and content are those that its descriptor states.
fn verified(folder: &Path, descriptor: &Descriptor) -> Result<PathBuf> {
    let digest = descriptor
        .as_digest_sha256()
        .with_context(|| format!("digest {} is not of SHA-256", descriptor.digest()))?;
    let path = folder.join("blobs/sha256").join(digest);
    let file = File::open(&path).with_context(|| format!("{} lacks a file", folder.display()))?;
    let mut hash = Sha256::new();
    let size = io::copy(&mut file.take(descriptor.size() + 1), &mut hash)?;
    ensure!(
        size == descriptor.size() && format!("{:x}", hash.finalize()) == digest,
        "{} is damaged: its content is not what its name says; build the image again",
        path.display()
    );
    Ok(path)
}
