//! `cargo xtask image`: the OCI images of the programs.

use std::path::PathBuf;

use anyhow::Result;
use bindery_image::{Built, Options, Profile, Program, Workspace, build};

use crate::say::show;

const MEGABYTE: f64 = 1e6;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask image                                  all images, as for users, in target/images/release
  cargo xtask image bindery-server --profile dev     one image, as for tests, in target/images/dev

docs/reference/images.md says what is in an image, and how to verify and push it.")]
pub(crate) struct Args {
    /// Names of images: bindery-server, bindery-konnector, synk, kubectl-bind. All of them, if none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// How the programs are compiled: `release` as for users, `dev` as for tests.
    #[arg(long, default_value_t = Profile::Release)]
    profile: Profile,
    /// The folder that gets an OCI image layout for each image. The default is `target/images/PROFILE`.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The address of the sources, for the label `org.opencontainers.image.source`.
    #[arg(long, value_name = "URL")]
    source: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let programs = match &args.names[..] {
        [] => Program::ALL.to_vec(),
        names => names.iter().map(|name| Program::named(name)).collect::<Result<_>>()?,
    };
    let workspace = Workspace::read()?;
    let output = args.output.clone();
    let options = Options {
        profile: args.profile,
        output: output.unwrap_or_else(|| workspace.images(args.profile)),
        source: args.source.clone(),
    };
    let images = build(&workspace, &programs, &options)?;
    show(&table(&images))
}

/// Builds all images into the default folder.
pub(crate) fn build_all(profile: Profile) -> Result<()> {
    let workspace = Workspace::read()?;
    let options = Options {
        profile,
        output: workspace.images(profile),
        source: None,
    };
    build(&workspace, &Program::ALL, &options).map(drop)
}

/// Sizes are those of the layers, in millions of bytes.
fn table(images: &[Built]) -> String {
    let header = format!(
        "{:<18} {:>10} {:>10}  {:<71}  layout\n",
        "image", "compressed", "unpacked", "digest"
    );
    let rows = images.iter().map(|image| {
        format!(
            "{:<18} {:>7.2} MB {:>7.2} MB  {}  {}\n",
            image.name,
            megabytes(image.compressed),
            megabytes(image.uncompressed),
            image.digest,
            image.layout.display()
        )
    });
    std::iter::once(header).chain(rows).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a size is shown with two digits")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / MEGABYTE
}
