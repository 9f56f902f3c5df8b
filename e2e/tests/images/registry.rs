//! Registries take the images, and give them back as they are.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{Process, binaries, images, process, run};
use bindery_image::{Image, Program};

const LIMIT: Duration = Duration::from_mins(1);

/// A registry that keeps what it gets in memory.
#[derive(Debug)]
pub(crate) struct Registry {
    process: Process,
    /// The address, such as `127.0.0.1:39817`.
    address: String,
}

impl Registry {
    pub(crate) async fn start() -> Result<Self> {
        let mut serve = Command::new(binaries::crane()?);
        serve.args(["registry", "serve", "--address", "127.0.0.1:0"]);
        let mut process = Process::spawn("registry", &serve)?;
        let line = process.wait_for_line("serving on port", LIMIT).await?;
        let port = line.rsplit(' ').next().context("no port")?;
        process.hush();
        Ok(Self {
            address: format!("127.0.0.1:{port}"),
            process,
        })
    }

    /// The full name of an artifact in this registry.
    pub(crate) fn reference(&self, name: &str) -> String {
        format!("{}/bindery/{name}", self.address)
    }

    /// Pushes a layout under a name.
    pub(crate) async fn push(&self, layout: &Path, name: &str) -> Result<()> {
        let pushed = crane(&["push", text(layout)?, &self.reference(name)]).await;
        pushed.map(drop).with_context(|| self.process.log())
    }
}

/// Runs crane and returns its output.
pub(crate) async fn crane(words: &[&str]) -> Result<String> {
    let mut command = Command::new(binaries::crane()?);
    command.args(words);
    let output = process::run(command, LIMIT).await?;
    process::stdout(&output).with_context(|| format!("crane {}", words.join(" ")))
}

#[test]
fn crane_pushes_checks_and_pulls_each_image() -> Result<()> {
    run(async {
        let registry = Registry::start().await?;
        let folder = tempfile::tempdir()?;
        for program in Program::ALL {
            let image = images::open(program.name)?;
            let name = format!("{}:0.1.0", program.name);
            registry.push(&images::folder()?.join(program.name), &name).await?;
            let reference = registry.reference(&name);
            assert_eq!(crane(&["digest", &reference]).await?.trim(), image.digest());
            crane(&["validate", "--remote", &reference]).await?;
            let pulled = folder.path().join(program.name);
            crane(&["pull", "--format=oci", &reference, text(&pulled)?]).await?;
            assert_eq!(Image::open(&pulled)?.digest(), image.digest());
        }
        Ok(())
    })
}

#[test]
fn a_damaged_image_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("synk");
    let status = Command::new("cp")
        .arg("-r")
        .arg(images::folder()?.join("synk"))
        .arg(&copy)
        .status()?;
    ensure!(status.success(), "cannot copy an image");
    let image = Image::open(&copy)?;
    for blob in std::fs::read_dir(copy.join("blobs/sha256"))? {
        std::fs::write(blob?.path(), b"damaged")?;
    }
    let error = image.unpack(&folder.path().join("root")).unwrap_err();
    ensure!(error.to_string().contains("damaged"), "{error:#}");
    let error = Image::open(&copy).unwrap_err();
    ensure!(error.to_string().contains("damaged"), "{error:#}");
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not UTF-8")
}
