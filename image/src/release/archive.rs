//! The archive of a program for the command line.

use anyhow::Result;

use crate::{Built, Image, Profile, Workspace, files::ImageFile, layer};

/// An archive, as users download it.
#[derive(Clone, Debug)]
pub(super) struct Archive {
    /// The name of the file.
    pub(super) name: String,
    /// The content of the file: a tar archive, compressed by gzip.
    pub(super) content: Vec<u8>,
}

/// Packs the program of an image, with its license and its SBOM.
pub(super) fn of(built: &Built, system: &str, workspace: &Workspace, profile: Profile) -> Result<Archive> {
    let image = Image::open(&built.layout)?;
    let name = built.name;
    let files = [
        (format!("usr/bin/{name}"), name.to_owned(), 0o755),
        (
            format!("usr/share/licenses/{name}/LICENSE"),
            "LICENSE".to_owned(),
            0o644,
        ),
        (
            format!("usr/share/sbom/{name}.cdx.json"),
            format!("{name}.cdx.json"),
            0o644,
        ),
    ];
    let files = files.map(|(from, path, mode)| {
        let content = image.file(&from)?;
        Ok(ImageFile {
            path,
            mode,
            owner: 0,
            content: Some(content),
        })
    });
    let files = files.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(Archive {
        name: format!("{name}_{}_{system}.tar.gz", built.version),
        content: layer::pack(&files, workspace.seconds()?, profile)?.compressed,
    })
}
