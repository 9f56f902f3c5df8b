//! The archive of a program for the command line.

use std::fs;

use anyhow::{Context as _, Result};

use super::krew;
use crate::{Image, Profile, Workspace, files::ImageFile, layer, notices::NOTICES};

/// The program beside `kubectl-bind` that kubectl runs for completions.
const COMPLETION: &str = "kubectl_complete-bind";

/// Packs the program of an image, with its licenses, its SBOM and what completes it in kubectl, as a tar archive that is compressed by gzip.
pub(super) fn of(image: &Image, name: &str, workspace: &Workspace, profile: Profile) -> Result<Vec<u8>> {
    let sbom = format!("{name}.cdx.json");
    let files = [
        (format!("usr/bin/{name}"), name, 0o755),
        (format!("usr/share/licenses/{name}/LICENSE"), "LICENSE", 0o644),
        (format!("usr/share/licenses/{name}/{NOTICES}"), NOTICES, 0o644),
        (format!("usr/share/sbom/{sbom}"), &sbom, 0o644),
    ];
    let files = files.map(|(from, path, mode)| {
        let content = image.file(&from)?;
        Ok(ImageFile {
            path: path.to_owned(),
            mode,
            owner: 0,
            content: Some(content),
        })
    });
    let mut files = files.into_iter().collect::<Result<Vec<_>>>()?;
    if name == krew::PROGRAM {
        let path = workspace.metadata.workspace_root.join("cli").join(COMPLETION);
        let content = fs::read(&path).with_context(|| format!("cannot read {path}"))?;
        files.push(ImageFile {
            path: COMPLETION.to_owned(),
            mode: 0o755,
            owner: 0,
            content: Some(content),
        });
    }
    Ok(layer::pack(&files, workspace.seconds()?, profile)?.compressed)
}
