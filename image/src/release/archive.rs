//! The archive of a program for the command line.

use anyhow::Result;

use crate::{Image, Profile, Workspace, files::ImageFile, layer, notices::NOTICES};

/// Packs the program of an image, with its licenses and its SBOM, as a tar archive that is compressed by gzip.
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
    let files = files.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(layer::pack(&files, workspace.seconds()?, profile)?.compressed)
}
