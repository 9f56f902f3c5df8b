//! Writes an image as a folder in the form of an OCI image layout.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    str::FromStr as _,
};

use anyhow::{Context as _, Result};
use oci_spec::image::{
    ANNOTATION_REF_NAME, Arch, ConfigBuilder, Descriptor, DescriptorBuilder, HistoryBuilder, ImageConfiguration,
    ImageConfigurationBuilder, ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder, Os,
    PlatformBuilder, RootFsBuilder, SCHEMA_VERSION, Sha256Digest,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::{
    files::{CA_BUNDLE, USER},
    layer::Layer,
};

/// The file in a layout that lists its images.
pub(crate) const INDEX: &str = "index.json";
/// The version of the form of a layout.
const LAYOUT_VERSION: &str = "1.0.0";
/// How long a program may be asked to end.
const STOP_SIGNAL: &str = "SIGTERM";

/// What an image says of itself.
#[derive(Debug)]
pub(crate) struct Description {
    /// The name of the program.
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// The time of the sources, as RFC 3339.
    pub(crate) created: String,
    /// Labels, which are also annotations of the manifest.
    pub(crate) labels: HashMap<String, String>,
}

/// Writes the layout into a folder, and replaces what is there. Returns the digest of the manifest.
pub(crate) fn write(folder: &Path, description: &Description, layers: &[Layer]) -> Result<String> {
    let unfinished = beside(folder, "unfinished");
    remove(&unfinished)?;
    let digest = write_new(&unfinished, description, layers)?;
    remove(folder)?;
    fs::rename(&unfinished, folder).with_context(|| format!("cannot write {}", folder.display()))?;
    Ok(digest)
}

/// Returns the path `FOLDER.SUFFIX`.
pub(crate) fn beside(folder: &Path, suffix: &str) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(".");
    path.push(suffix);
    PathBuf::from(path)
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn write_new(folder: &Path, description: &Description, layers: &[Layer]) -> Result<String> {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("cannot create {}", blobs.display()))?;
    let layer_descriptors = layers
        .iter()
        .map(|layer| blob(&blobs, MediaType::ImageLayerGzip, &layer.compressed))
        .collect::<Result<Vec<_>>>()?;
    let config = json(&configuration(description, layers)?)?;
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(blob(&blobs, MediaType::ImageConfig, &config)?)
        .layers(layer_descriptors)
        .annotations(description.labels.clone())
        .build()?;
    let manifest = blob(&blobs, MediaType::ImageManifest, &json(&manifest)?)?;
    let digest = manifest.digest().to_string();
    let platform = PlatformBuilder::default()
        .os(Os::Linux)
        .architecture(Arch::Amd64)
        .build()?;
    let manifest = DescriptorBuilder::default()
        .media_type(manifest.media_type().clone())
        .size(manifest.size())
        .digest(manifest.digest().clone())
        .platform(platform)
        .annotations(HashMap::from([(
            ANNOTATION_REF_NAME.to_owned(),
            description.version.clone(),
        )]))
        .build()?;
    let index = ImageIndexBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageIndex)
        .manifests([manifest])
        .build()?;
    fs::write(folder.join(INDEX), json(&index)?)?;
    let layout = OciLayoutBuilder::default()
        .image_layout_version(LAYOUT_VERSION)
        .build()?;
    fs::write(folder.join("oci-layout"), json(&layout)?)?;
    Ok(digest)
}

fn configuration(description: &Description, layers: &[Layer]) -> Result<ImageConfiguration> {
    let config = ConfigBuilder::default()
        .user(format!("{USER}:{USER}"))
        .env(["PATH=/usr/bin".to_owned(), format!("SSL_CERT_FILE=/{CA_BUNDLE}")])
        .entrypoint([format!("/usr/bin/{}", description.name)])
        .working_dir("/")
        .labels(description.labels.clone())
        .stop_signal(STOP_SIGNAL)
        .build()?;
    let root = RootFsBuilder::default()
        .typ("layers")
        .diff_ids(layers.iter().map(|layer| layer.diff_id.clone()).collect::<Vec<_>>())
        .build()?;
    let history = HistoryBuilder::default()
        .created(description.created.clone())
        .created_by("cargo xtask image")
        .build()?;
    let configuration = ImageConfigurationBuilder::default()
        .created(description.created.clone())
        .architecture(Arch::Amd64)
        .os(Os::Linux)
        .config(config)
        .rootfs(root)
        .history(vec![history; layers.len()])
        .build()?;
    Ok(configuration)
}

/// Stores bytes under their digest.
fn blob(blobs: &Path, media_type: MediaType, content: &[u8]) -> Result<Descriptor> {
    let digest = format!("{:x}", Sha256::digest(content));
    let path = blobs.join(&digest);
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    let size = content.len().try_into()?;
    Ok(Descriptor::new(media_type, size, Sha256Digest::from_str(&digest)?))
}

/// Prints a value as JSON with sorted keys: the order of labels is random in memory.
fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut value = serde_json::to_value(value)?;
    value.sort_all_objects();
    Ok(serde_json::to_vec(&value)?)
}
