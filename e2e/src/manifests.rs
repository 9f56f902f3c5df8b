//! Manifests as text, such as those that ship in `deploy/`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// All YAML files of a folder of `deploy/`, in the order of their names, as one stream.
pub fn folder(name: &str) -> Result<String> {
    stream(&deploy().join(name))
}

/// All YAML files of a folder, in the order of their names, as one stream.
pub(crate) fn stream(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        files.push(entry?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    ensure!(!files.is_empty(), "no manifests in {}", folder.display());
    files.sort();
    let texts: Result<Vec<_>, _> = files.iter().map(std::fs::read_to_string).collect();
    Ok(texts?.join("\n---\n"))
}

/// One file of `deploy/`.
pub fn file(name: &str) -> Result<String> {
    let path = deploy().join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Each document of a stream of YAML.
pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Option<Value>> = serde_saphyr::from_multiple(yaml).context("manifests that are no YAML")?;
    Ok(documents.into_iter().flatten().collect())
}

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}
