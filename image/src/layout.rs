//! Writes an artifact, such as an image, as a folder in the form of an OCI image layout.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    str::FromStr as _,
};

use anyhow::{Context as _, Result};
use oci_spec::image::{
    ANNOTATION_REF_NAME, Descriptor, DescriptorBuilder, ImageIndexBuilder, ImageManifestBuilder, MediaType,
    OciLayoutBuilder, Os, PlatformBuilder, SCHEMA_VERSION, Sha256Digest,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::Platform;

/// The file in a layout that lists what it holds.
pub(crate) const INDEX: &str = "index.json";
/// The version of the form of a layout.
const LAYOUT_VERSION: &str = "1.0.0";

/// What registries store under a name and a tag: an image, a chart, or a signature.
#[derive(Debug)]
pub(crate) struct Artifact<'a> {
    /// The tag that it is meant for.
    pub(crate) tag: &'a str,
    /// The platform, if what it holds runs on one.
    pub(crate) platform: Option<&'static Platform>,
    pub(crate) config: Blob<'a>,
    pub(crate) layers: Vec<Blob<'a>>,
    /// Annotations of the manifest.
    pub(crate) annotations: HashMap<String, String>,
}

/// A file of an artifact.
#[derive(Debug)]
pub(crate) struct Blob<'a> {
    pub(crate) media_type: MediaType,
    pub(crate) content: &'a [u8],
    pub(crate) annotations: HashMap<String, String>,
}

impl<'a> Blob<'a> {
    pub(crate) fn new(media_type: MediaType, content: &'a [u8]) -> Self {
        Self {
            media_type,
            content,
            annotations: HashMap::new(),
        }
    }
}

/// Writes the layout into a folder, and replaces what is there. Returns the digest of the manifest.
pub(crate) fn write(folder: &Path, artifact: &Artifact<'_>) -> Result<String> {
    let unfinished = beside(folder, "unfinished")?;
    remove(&unfinished)?;
    let digest = write_new(&unfinished, artifact)?;
    replace(&unfinished, folder)?;
    Ok(digest)
}

/// Returns the path `FOLDER.SUFFIX`, also if the folder is written with a slash behind it.
pub(crate) fn beside(folder: &Path, suffix: &str) -> Result<PathBuf> {
    let name = folder.file_name();
    let mut name = name
        .with_context(|| format!("{} has no name: name the folder itself", folder.display()))?
        .to_owned();
    name.push(".");
    name.push(suffix);
    Ok(folder.with_file_name(name))
}

/// Moves a folder to the place of another one, which is removed after that.
pub(crate) fn replace(new: &Path, folder: &Path) -> Result<()> {
    let failed = || format!("cannot write {}", folder.display());
    let former = beside(folder, "former")?;
    remove(&former)?;
    match fs::rename(folder, &former) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).with_context(failed),
        _ => {}
    }
    fs::rename(new, folder).with_context(failed)?;
    remove(&former)
}

/// Removes a folder, if it is there.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the digest of bytes, as in `sha256:9f86d081…`.
pub(crate) fn digest(content: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(content))
}

/// Prints a value as JSON with sorted keys: the order of annotations is random in memory.
pub(crate) fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut value = serde_json::to_value(value)?;
    value.sort_all_objects();
    Ok(serde_json::to_vec(&value)?)
}

fn write_new(folder: &Path, artifact: &Artifact<'_>) -> Result<String> {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("cannot create {}", blobs.display()))?;
    let layers = artifact.layers.iter().map(|layer| store(&blobs, layer));
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(store(&blobs, &artifact.config)?)
        .layers(layers.collect::<Result<Vec<_>>>()?)
        .annotations(artifact.annotations.clone())
        .build()?;
    let manifest = store(&blobs, &Blob::new(MediaType::ImageManifest, &json(&manifest)?))?;
    let digest = manifest.digest().to_string();
    let tag = HashMap::from([(ANNOTATION_REF_NAME.to_owned(), artifact.tag.to_owned())]);
    let mut listed = DescriptorBuilder::default()
        .media_type(manifest.media_type().clone())
        .size(manifest.size())
        .digest(manifest.digest().clone())
        .annotations(tag);
    if let Some(platform) = artifact.platform {
        let platform = PlatformBuilder::default()
            .os(Os::Linux)
            .architecture(platform.architecture())
            .build()?;
        listed = listed.platform(platform);
    }
    let index = ImageIndexBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageIndex)
        .manifests([listed.build()?])
        .build()?;
    fs::write(folder.join(INDEX), json(&index)?)?;
    let layout = OciLayoutBuilder::default()
        .image_layout_version(LAYOUT_VERSION)
        .build()?;
    fs::write(folder.join("oci-layout"), json(&layout)?)?;
    Ok(digest)
}

/// Stores bytes under their digest.
fn store(blobs: &Path, blob: &Blob<'_>) -> Result<Descriptor> {
    let name = format!("{:x}", Sha256::digest(blob.content));
    let path = blobs.join(&name);
    fs::write(&path, blob.content).with_context(|| format!("cannot write {}", path.display()))?;
    let size = blob.content.len().try_into()?;
    let mut descriptor = Descriptor::new(blob.media_type.clone(), size, Sha256Digest::from_str(&name)?);
    if !blob.annotations.is_empty() {
        descriptor.set_annotations(Some(blob.annotations.clone()));
    }
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_behind_a_folder_changes_nothing() {
        for (folder, expected) in [("dist", "dist.new"), ("dist/", "dist.new"), ("/a/b//", "/a/b.new")] {
            assert_eq!(
                beside(Path::new(folder), "new").unwrap(),
                Path::new(expected),
                "{folder}"
            );
        }
        for folder in [".", "..", "/"] {
            let error = beside(Path::new(folder), "new").unwrap_err().to_string();
            assert!(error.contains("has no name"), "{error}");
        }
    }

    #[test]
    fn a_folder_takes_the_place_of_another_or_of_none() {
        let root = tempfile::tempdir().unwrap();
        let (new, folder) = (root.path().join("new"), root.path().join("dist/"));
        for content in ["one", "two"] {
            fs::create_dir(&new).unwrap();
            fs::write(new.join("file"), content).unwrap();
            replace(&new, &folder).unwrap();
            assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), content);
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "only the folder is left");
        }
    }

    #[test]
    fn a_folder_stays_while_nothing_takes_its_place() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("dist");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "one").unwrap();
        let artifact = Artifact {
            tag: "1",
            platform: None,
            config: Blob::new(MediaType::ImageConfig, b"{}"),
            layers: Vec::new(),
            annotations: HashMap::new(),
        };
        // A file where the unfinished folder would be.
        fs::write(root.path().join("dist.unfinished"), "").unwrap();
        write(&folder, &artifact).unwrap_err();
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "one");
    }
}
