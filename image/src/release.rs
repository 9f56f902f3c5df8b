//! Makes a release: a folder with all that users get of one version.
//!
//! | path | what it is | module |
//! |---|---|---|
//! | `images/NAME`, `charts/NAME` | images and charts, as OCI image layouts | `chart` |
//! | `images/NAME.sig`, `charts/NAME.sig` | their signatures, as OCI image layouts | `signature` |
//! | `charts/NAME-VERSION.tgz` | the charts, as `helm package` makes them | `chart` |
//! | `NAME_VERSION_linux_ARCH.tar.gz` | the programs for the command line | `archive` |
//! | `krew/bind.yaml` | where Krew finds `kubectl bind` | `krew` |
//! | `sbom/`, `debug/` | what each program is made of, and its debug information | |
//! | `sdks/` | the packages of the SDKs | |
//! | `DIGESTS` | the digests of images and charts | |
//! | `SHA256SUMS`, `SHA256SUMS.sig` | checksums of all files above, and their signature | `checksums` |

mod archive;
mod chart;
mod checksums;
mod krew;
mod signature;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use oci_spec::image::ANNOTATION_VERSION;

pub use self::{checksums::CHECKSUMS, signature::SigningKey};
use crate::{
    Image, Profile, Program, Workspace, executable,
    layout::{self, beside},
};

/// The file that lists digests, paths and tags of images and charts.
const DIGESTS: &str = "DIGESTS";
/// The programs that users run on their own machines.
const COMMAND_LINES: [&str; 2] = ["kubectl-bind", "synk"];

/// How a release is made.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The folder that gets the release. An earlier release in it is replaced.
    pub output: &'a Path,
    /// How its programs were compiled.
    pub profile: Profile,
    /// The program Helm.
    pub helm: &'a Path,
    /// The folder with the packages of the SDKs.
    pub sdks: &'a Path,
    /// The key that signs the release.
    pub key: Option<&'a SigningKey>,
    /// The address that users will find the files of the release under, for Krew.
    pub downloads: Option<&'a str>,
}

/// An image or a chart of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The path of its layout from the folder of the release.
    pub path: String,
    /// The tag that it is meant for.
    pub tag: String,
    /// The digest of its manifest.
    pub digest: String,
}

/// Makes a release of the images that [`build`](crate::build::build) wrote into the folder `images`. Returns its images and charts.
pub fn write(workspace: &Workspace, images: &Path, options: Options<'_>) -> Result<Vec<Published>> {
    check_output(options.output)?;
    let folder = beside(options.output, "unfinished")?;
    layout::remove(&folder)?;
    let release = Release {
        workspace,
        images,
        folder: &folder,
        options,
    };
    let published = release.write()?;
    layout::replace(&folder, options.output)?;
    Ok(published)
}

/// Fails if a release in this folder would replace a file that is not part of an earlier release.
pub fn check_output(folder: &Path) -> Result<()> {
    beside(folder, "unfinished")?;
    if !folder.exists() {
        return Ok(());
    }
    let listed = fs::read_to_string(folder.join(CHECKSUMS)).unwrap_or_default();
    let listed = checksums::paths(&listed);
    let own = [CHECKSUMS, &signature_name()].map(str::to_owned);
    let files = checksums::files(folder)?;
    let foreign = files
        .iter()
        .find(|path| !own.contains(path) && !listed.contains(path.as_str()));
    let is_release = files.is_empty() || listed.contains(DIGESTS);
    ensure!(
        foreign.is_none() && is_release,
        "{} holds {}, which is not part of a release and would be deleted: name another folder",
        folder.display(),
        foreign.or_else(|| files.first()).map_or("a file", String::as_str)
    );
    Ok(())
}

/// The name of the file with the signature of the checksums.
fn signature_name() -> String {
    format!("{CHECKSUMS}.sig")
}

/// A release in the making.
struct Release<'a> {
    workspace: &'a Workspace,
    images: &'a Path,
    folder: &'a Path,
    options: Options<'a>,
}

impl Release<'_> {
    fn write(&self) -> Result<Vec<Published>> {
        let mut published = Vec::new();
        for program in Program::ALL {
            let image = self.image(program);
            published.push(image.with_context(|| format!("cannot release the image {}", program.name))?);
        }
        for source in chart::sources(self.workspace)? {
            let chart = self.chart(&source);
            published.push(chart.with_context(|| format!("cannot release {}", source.display()))?);
        }
        copy(self.options.sdks, &self.folder.join("sdks"))?;
        let digests = published
            .iter()
            .map(|it| format!("{} {}:{}\n", it.digest, it.path, it.tag));
        self.file(DIGESTS, digests.collect::<String>().as_bytes())?;
        let checksums = checksums::of(self.folder)?;
        self.file(CHECKSUMS, checksums.as_bytes())?;
        if let Some(key) = self.options.key {
            let signature = key.sign(checksums.as_bytes())?;
            self.file(&signature_name(), format!("{signature}\n").as_bytes())?;
        }
        Ok(published)
    }

    /// Adds an image, and what else users get of its program.
    fn image(&self, program: Program) -> Result<Published> {
        let layout = self.images.join(program.name);
        let image = Image::open(&layout)?;
        let version = image.label(ANNOTATION_VERSION).context("the image has no version")?;
        let system = format!("linux_{}", self.workspace.platform.name);
        let name = format!("{}_{version}_{system}", program.name);
        let sbom = image.file(&format!("usr/share/sbom/{}.cdx.json", program.name))?;
        self.file(&format!("sbom/{name}.cdx.json"), &sbom)?;
        let debug = self.folder.join(format!("debug/{name}.debug"));
        copy(&beside(&layout, "debug")?, &debug)?;
        if COMMAND_LINES.contains(&program.name) {
            executable::check_glibc(&image, program.name)?;
            let archive = archive::of(&image, program.name, self.workspace, self.options.profile)?;
            let archive_name = format!("{name}.tar.gz");
            self.file(&archive_name, &archive)?;
            if let Some(downloads) = self.options.downloads.filter(|_| program.name == krew::PROGRAM) {
                let address = format!("{}/{archive_name}", downloads.trim_end_matches('/'));
                let manifest = krew::manifest(&address, &archive, version, self.workspace.platform)?;
                self.file("krew/bind.yaml", manifest.as_bytes())?;
            }
        }
        let path = format!("images/{}", program.name);
        copy(&layout, &self.folder.join(&path))?;
        self.publish(path, version.to_owned(), image.digest().to_owned())
    }

    fn chart(&self, source: &Path) -> Result<Published> {
        let chart = chart::package(self.options.helm, source, self.workspace, self.options.profile)?;
        self.file(&format!("charts/{}-{}.tgz", chart.name, chart.version), &chart.archive)?;
        let path = format!("charts/{}", chart.name);
        let digest = chart.write(&self.folder.join(&path))?;
        self.publish(path, chart.version, digest)
    }

    /// Signs an artifact, if there is a key.
    fn publish(&self, path: String, tag: String, digest: String) -> Result<Published> {
        if let Some(key) = self.options.key {
            let name = path.rsplit('/').next().unwrap_or(&path);
            let folder = self.folder.join(format!("{path}.sig"));
            signature::write(&folder, key, name, &tag, &digest)?;
        }
        Ok(Published { path, tag, digest })
    }

    fn file(&self, path: &str, content: &[u8]) -> Result<()> {
        let path = self.folder.join(path);
        let folder = path.parent().unwrap_or(self.folder);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, content))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Copies a file or a folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("cannot copy {} to {}", from.display(), to.display());
    if from.is_dir() {
        for entry in fs::read_dir(from).with_context(failed)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    let folder = to.parent().map(PathBuf::from).unwrap_or_default();
    fs::create_dir_all(folder)
        .and_then(|()| fs::copy(from, to))
        .with_context(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_release_or_nothing_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        check_output(&folder.path().join("absent")).unwrap();
        check_output(folder.path()).unwrap();
        let file = |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
        file(DIGESTS, "");
        file(CHECKSUMS, "0123  DIGESTS\n");
        file("SHA256SUMS.sig", "");
        check_output(folder.path()).unwrap();
        file("thesis.txt", "years of work");
        let error = check_output(folder.path()).unwrap_err().to_string();
        assert!(error.contains("thesis.txt"), "{error}");
        // Checksums of something else, as they lie beside downloads.
        fs::remove_file(folder.path().join(DIGESTS)).unwrap();
        file(CHECKSUMS, "0123  thesis.txt\n");
        let error = check_output(folder.path()).unwrap_err().to_string();
        assert!(error.contains("not part of a release"), "{error}");
    }
}
