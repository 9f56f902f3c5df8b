//! `cargo xtask release`: all that users get of one version, in one folder.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{binaries, sdks};
use bindery_image::{
    Options, Profile, Program, Workspace, build,
    release::{self, Published, SigningKey},
};

use crate::say::show;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask release                                  into target/dist, without signatures
  cargo xtask release --signing-key ~/.config/bindery/release.pem --output dist --download-url https://example.com/bindery/v0.1.0

docs/reference/releases.md says what is in a release, and how to publish and verify it.")]
pub(crate) struct Args {
    /// The folder that gets the release. A release that is in it is replaced. The default is `target/dist`.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Signs with this private key: PEM, of the curve P-256. Without it, the release has no signatures.
    #[arg(long, value_name = "FILE")]
    signing_key: Option<PathBuf>,
    /// The address that the files of the release will be below. With it, the release has a manifest for Krew.
    #[arg(long, value_name = "URL")]
    download_url: Option<String>,
    /// The address of the sources, for the label `org.opencontainers.image.source` of the images.
    #[arg(long, value_name = "URL")]
    source: Option<String>,
    /// How the programs are compiled: `release` for users, `dev` to try the command itself.
    #[arg(long, default_value_t = Profile::Release)]
    profile: Profile,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // What is missing is known before the long build.
    let key = args.signing_key.as_deref().map(SigningKey::read).transpose()?;
    let helm = binaries::helm().context("cannot provide Helm")?;
    let workspace = Workspace::read()?;
    let output = args.output.clone().unwrap_or_else(|| workspace.target().join("dist"));
    release::check_output(&output)?;
    ensure!(
        key.is_none() || (workspace.is_clean() && args.profile == Profile::Release),
        "only a release of profile release is signed, from a commit without changes: commit or stash them (git status)"
    );
    let options = Options {
        profile: args.profile,
        output: workspace.images(args.profile),
        source: args.source.clone(),
    };
    // A program that is missing here fails before the long build.
    let packages = workspace.target().join("sdks/packages");
    // An earlier run leaves its files.
    let _ = fs::remove_dir_all(&packages);
    sdks::packages(&packages, workspace.seconds()?)?;
    build(&workspace, &Program::ALL, &options)?;
    let published = release::write(
        &workspace,
        &options.output,
        release::Options {
            output: &output,
            profile: args.profile,
            helm: &helm,
            sdks: &packages,
            key: key.as_ref(),
            downloads: args.download_url.as_deref(),
        },
    )?;
    show(&table(&published))?;
    show(&format!("the release is in {}\n", output.display()))
}

fn table(published: &[Published]) -> String {
    let rows = published
        .iter()
        .map(|it| format!("{:<26} {:<8} {}\n", it.path, it.tag, it.digest));
    rows.collect()
}
