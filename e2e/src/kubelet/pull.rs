//! Finds images by the names that Pods give them, and unpacks each of them once.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use bindery_image::Image;
use parking_lot::Mutex;

use crate::{Workdir, charts::CHARTS, images, process::cargo_bin_path};

/// The images that this process has unpacked, by their names.
static PULLED: LazyLock<Mutex<BTreeMap<String, Arc<Pulled>>>> = LazyLock::new(Mutex::default);
/// The folder of the unpacked images. It is removed at the end of the test process.
static ROOTS: LazyLock<Result<Workdir>> = LazyLock::new(|| Workdir::new("images"));

/// An image with its files.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) image: Image,
    pub(super) root: PathBuf,
}

/// Returns the image of that name. Fails as a registry does if it was not built. Blocks while it unpacks the image.
pub(super) fn pull(reference: &str) -> Result<Arc<Pulled>> {
    let mut all = PULLED.lock();
    if let Some(pulled) = all.get(reference) {
        return Ok(Arc::clone(pulled));
    }
    let image = resolve(images::folder()?, reference)?;
    let roots = ROOTS
        .as_ref()
        .map_err(|error| anyhow!("no folder for images: {error:#}"))?;
    let root = roots.path().join(all.len().to_string());
    images::unpack(&image, &root)?;
    let pulled = Arc::new(Pulled { image, root });
    all.insert(reference.to_owned(), Arc::clone(&pulled));
    Ok(pulled)
}

/// Opens the image that a reference names: `[REGISTRY/]NAME:VERSION` or `[REGISTRY/]NAME@DIGEST`. Any registry will do.
fn resolve(folder: &Path, reference: &str) -> Result<Image> {
    let not_found = || format!("failed to pull image {reference:?}: not found");
    let last = reference.rsplit('/').next().unwrap_or(reference);
    let (name, digest) = match last.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (last, None),
    };
    let (name, version) = name.split_once(':').unwrap_or((name, "latest"));
    let image = Image::open(&folder.join(name)).with_context(not_found)?;
    let labels = image.configuration().labels_of_config();
    let built = labels.and_then(|it| it.get("org.opencontainers.image.version"));
    let is_it = match digest {
        Some(digest) => image.digest() == digest,
        None => built.map(String::as_str) == Some(version),
    };
    ensure!(is_it, not_found());
    check_age(folder, name)?;
    Ok(image)
}

/// Fails if an image of a chart is missing or older than its program. Whoever installs the chart would wait for minutes for Pods that
/// cannot start.
pub(super) fn are_current() -> Result<()> {
    for name in CHARTS {
        images::open(name)?;
        check_age(images::folder()?, name)?;
    }
    Ok(())
}

/// Fails if an image is older than the program of the tests that it holds.
fn check_age(folder: &Path, name: &str) -> Result<()> {
    let modified = |path: &Path| fs::metadata(path).and_then(|it| it.modified());
    ensure!(
        modified(&folder.join(name))? >= modified(&cargo_bin_path(name)?)?,
        "the image of {name} is older than its program: build it with `cargo xtask image --profile dev`"
    );
    Ok(())
}
