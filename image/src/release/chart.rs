//! Charts: as `helm package` makes them, and as registries store them.

use std::{
    collections::HashMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use oci_spec::image::{
    ANNOTATION_CREATED, ANNOTATION_DESCRIPTION, ANNOTATION_REVISION, ANNOTATION_TITLE, ANNOTATION_VERSION, MediaType,
};
use serde_json::Value;
use tar::Archive;

use crate::{
    Profile, Workspace,
    files::ImageFile,
    layer,
    layout::{self, Artifact, Blob},
    workspace::{output, read},
};

/// The media types by which Helm knows a chart in a registry.
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The file that says what a chart is.
const METADATA: &str = "Chart.yaml";
/// The permissions of the files of a chart.
const MODE: u32 = 0o644;

/// A chart, packaged.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) name: String,
    pub(super) version: String,
    /// What `Chart.yaml` says.
    metadata: Value,
    annotations: HashMap<String, String>,
    /// The archive that Helm installs.
    pub(super) archive: Vec<u8>,
}

/// Returns the folders of the project's charts, sorted.
pub(super) fn sources(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let folder = workspace.root().join("deploy/charts");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut charts = Vec::new();
    for entry in entries {
        let path = entry?.path();
        charts.extend(path.join(METADATA).is_file().then_some(path));
    }
    charts.sort();
    ensure!(!charts.is_empty(), "there is no chart in {}", folder.display());
    Ok(charts)
}

/// Packages the chart of a folder.
pub(super) fn package(helm: &Path, source: &Path, workspace: &Workspace, profile: Profile) -> Result<Chart> {
    let metadata: Value = serde_saphyr::from_slice(&read(&source.join(METADATA))?)?;
    let text = |key: &str| -> Result<String> {
        let text = metadata[key].as_str();
        Ok(text.with_context(|| format!("{METADATA} has no {key}"))?.to_owned())
    };
    let (name, version) = (text("name")?, text("version")?);
    let annotations = [
        (ANNOTATION_TITLE, name.clone()),
        (ANNOTATION_VERSION, version.clone()),
        (ANNOTATION_DESCRIPTION, text("description")?),
        (ANNOTATION_CREATED, workspace.time.to_string()),
        (ANNOTATION_REVISION, workspace.revision.clone()),
    ];
    let work = tempfile::tempdir()?;
    run(helm, source, work.path())?;
    let packaged = read(&work.path().join(format!("{name}-{version}.tgz")))?;
    // Helm packs the times of the files of this machine.
    let files = files(&packaged)?;
    Ok(Chart {
        archive: layer::pack(&files, workspace.seconds()?, profile)?.compressed,
        annotations: annotations
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect(),
        name,
        version,
        metadata,
    })
}

/// Runs `helm package` with configuration and caches of its own.
fn run(helm: &Path, source: &Path, work: &Path) -> Result<()> {
    let mut command = Command::new(helm);
    command.arg("package").arg(source).arg("--destination").arg(work);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, work.join(variable));
    }
    output(&mut command).map(drop)
}

/// Returns the files of an archive, in their order.
fn files(archive: &[u8]) -> Result<Vec<ImageFile>> {
    let mut archive = Archive::new(GzDecoder::new(archive));
    let files = archive.entries()?.map(|entry| {
        let mut entry = entry?;
        let path = entry.path()?.to_str().context("a path is not UTF-8")?.to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        Ok(ImageFile {
            path,
            mode: MODE,
            owner: 0,
            content: Some(content),
        })
    });
    files.collect()
}

impl Chart {
    /// Writes the chart as an OCI image layout. Returns its digest.
    pub(super) fn write(&self, folder: &Path) -> Result<String> {
        let config = layout::json(&self.metadata)?;
        let artifact = Artifact {
            tag: &self.version,
            platform: None,
            config: Blob::new(MediaType::Other(CONFIG.to_owned()), &config),
            layers: vec![Blob::new(MediaType::Other(CONTENT.to_owned()), &self.archive)],
            annotations: self.annotations.clone(),
        };
        layout::write(folder, &artifact)
    }
}
