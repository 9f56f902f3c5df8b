//! The images of the programs, as `cargo xtask image --profile dev` builds them.

use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use bindery_image::{Image, Profile, Workspace};
use nix::unistd::geteuid;

/// Where the images are. Cargo is asked once, which takes part of a second.
static FOLDER: LazyLock<Result<PathBuf>> = LazyLock::new(|| Ok(Workspace::read()?.images(Profile::Dev)));

/// The folder with the layout of an image, `NAME`, and with the debug information of its program, `NAME.debug`.
pub fn folder() -> Result<&'static Path> {
    let folder = FOLDER.as_ref();
    folder
        .map(PathBuf::as_path)
        .map_err(|error| anyhow!("cannot find the images: {error:#}"))
}

/// Opens the image of a program. The error says how to build it.
pub fn open(name: &str) -> Result<Image> {
    Image::open(&folder()?.join(name))
        .with_context(|| format!("there is no image of {name}: build it with `cargo xtask image --profile dev`"))
}

/// Unpacks an image, with the owners of its files. Only root may.
pub fn unpack(image: &Image, root: &Path) -> Result<()> {
    ensure!(
        geteuid().is_root(),
        "images are unpacked with the owners of their files, which only root may do: run the tests as root"
    );
    image.unpack(root)
}
