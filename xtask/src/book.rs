//! `cargo xtask book`: builds `docs` with mdbook. The unit tests below check pages and links without mdbook.

#[cfg(test)]
mod links;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod reasons;
#[cfg(test)]
mod summary;

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{cargo::root, tool};

/// The version of mdbook, which is installed from crates.io once per user.
const VERSION: &str = "0.5.4";
/// Neither the server nor the watcher of mdbook is used, which halves what is built.
const FEATURES: [&str; 3] = ["--no-default-features", "--features", "search"];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The book is in target/book; open target/book/index.html with a browser.
`cargo xtask test links` and `cargo xtask test summary` check links and the table of contents, without mdbook.")]
pub(crate) struct Args {
    /// Opens the book in a browser once it is built.
    #[arg(long)]
    open: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mdbook = tool::install("mdbook", VERSION, &FEATURES)?;
    let mut command = Command::new(mdbook);
    command.arg("build").current_dir(root());
    if args.open {
        command.arg("--open");
    }
    let status = command.status().context("cannot run mdbook")?;
    ensure!(status.success(), "mdbook could not build the book: {status}");
    Ok(())
}
