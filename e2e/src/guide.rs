//! Runs the commands of a page of `docs/guides`, or of a section of the README, in their order, as their reader would.
//!
//! A page has four kinds of fenced blocks and no others, so that nothing is shown that is not run:
//!
//! - `sh`: run with bash, all blocks of a page in one shell, which stops at the first failure;
//! - `console`: what the block before it prints to standard output, line by line; `…` stands for anything within a line,
//!   and as a line of its own for any number of lines;
//! - `yaml`: a file, whose first line is `# NAME.yaml`, written to the folder in which the commands run;
//! - `text`: a picture.
//!
//! Nothing is put in by the runner but the contexts `provider` and `consumer` and those of other clusters, the folder `deploy`, kubectl,
//! kubectl-bind, synk and, if the page uses it, helm, an empty folder for logins, and variables that the page names as
//! given. The caller runs a [`Kubelet`](crate::Kubelet) on each cluster on which the page installs programs.

mod output;
mod page;

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{ControlPlane, Kubeconfig, Process, Workdir, binaries, process::cargo_bin_path};

pub use self::page::section;
use self::page::{Block, Page};

/// The longest time for a whole page, on a busy machine.
const LIMIT: Duration = Duration::from_mins(10);

/// The script of a page's shell. It records which block it runs, and writes the output of each block into a file of its own.
const PROLOGUE: &str = "set -euo pipefail\n";

/// The clusters and variables with which a page is run.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The cluster of the context `provider`.
    pub provider: &'a ControlPlane,
    /// The cluster of the context `consumer`.
    pub consumer: &'a ControlPlane,
    /// Other clusters, by their contexts.
    pub others: Vec<(&'static str, &'a ControlPlane)>,
    /// The variables that the page names as given.
    pub given: BTreeMap<&'static str, String>,
}

/// Where a page is run.
struct Desk {
    folder: Workdir,
}

impl Reader<'_> {
    /// Runs the commands of `docs/guides/NAME`; a page of `docs` itself is `../NAME`. Fails if a command fails or prints something other
    /// than the page shows.
    pub async fn follow(&self, name: &str) -> Result<()> {
        let path = docs().join("guides").join(name);
        self.run(name.trim_start_matches("../"), &read(&path)?).await
    }

    /// Runs the commands of a section of the project's README, which is found by its heading, as [`Reader::follow`] does.
    pub async fn follow_readme(&self, heading: &str) -> Result<()> {
        let text = read(&docs().join("../README.md"))?;
        self.run("README.md", section(&text, heading)?).await
    }

    async fn run(&self, name: &str, text: &str) -> Result<()> {
        let page = Page::parse(text).with_context(|| name.to_owned())?;
        for variable in self.given.keys() {
            ensure!(text.contains(variable), "{name} does not say that {variable} is given");
        }
        let desk = Desk::prepare(name, &page, self)?;
        let outcome = desk.work(name, &page, self).await;
        outcome.with_context(|| format!("following {name}"))
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

impl Desk {
    fn prepare(name: &str, page: &Page, reader: &Reader<'_>) -> Result<Self> {
        let folder = Workdir::new(name)?;
        let path = folder.path();
        symlink(docs().join("../deploy"), path.join("deploy"))?;
        fs::create_dir_all(path.join(".guide/bin"))?;
        symlink(reader.provider.kubectl_path(), path.join(".guide/bin/kubectl"))?;
        for program in ["kubectl-bind", "synk"] {
            symlink(cargo_bin_path(program)?, path.join(".guide/bin").join(program))?;
        }
        if page.uses("helm") {
            symlink(binaries::helm()?, path.join(".guide/bin/helm"))?;
        }
        let both = [("provider", reader.provider), ("consumer", reader.consumer)];
        let all = both.iter().chain(&reader.others);
        let all: Vec<_> = all.map(|(name, plane)| (*name, plane.kubeconfig())).collect();
        folder.write(".guide/kubeconfig", Kubeconfig::joined(&all)?)?;
        for (number, block) in page.blocks.iter().enumerate() {
            if let Block::File { text, .. } = block {
                folder.write(&format!(".guide/{number}.file"), text)?;
            }
        }
        folder.write(".guide/script", script(page))?;
        Ok(Self { folder })
    }

    async fn work(&self, name: &str, page: &Page, reader: &Reader<'_>) -> Result<()> {
        let mut shell = Process::spawn(name, &self.command(reader)?)?;
        let ended = shell.wait(LIMIT).await;
        shell.hush();
        let at = |how: &str| format!("{how} at {}", self.reached(page));
        let failed = match ended {
            Ok(status) if status.success() => None,
            Ok(status) => Some(at(&status.to_string())),
            Err(error) => Some(at(&format!("{error:#}"))),
        };
        // What was printed otherwise may be why a later block failed.
        let wrong: Vec<_> = failed.into_iter().chain(self.misprints(page)).collect();
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }

    fn command(&self, reader: &Reader<'_>) -> Result<Command> {
        let at = |name: &str| self.folder.path().join(".guide").join(name);
        let before = env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(at("bin")).chain(env::split_paths(&before));
        let mut command = Command::new("bash");
        command
            .arg(at("script"))
            .current_dir(self.folder.path())
            .env("PATH", env::join_paths(folders)?)
            .env("KUBECONFIG", at("kubeconfig"))
            .env("KUBECACHEDIR", at("cache"))
            .env("XDG_CONFIG_HOME", at("config"))
            .env_remove("BINDERY_CONFIG")
            .envs(&reader.given);
        Ok(command)
    }

    /// The block that was the last, with what it printed.
    fn reached(&self, page: &Page) -> String {
        let Some((number, Block::Commands { line, text })) =
            self.last().and_then(|number| Some((number, page.blocks.get(number)?)))
        else {
            return "its beginning".to_owned();
        };
        let [out, err] = ["out", "err"].map(|end| self.printed(&format!("{number}.{end}")));
        format!("line {line}:\n{text}\n--- printed:\n{out}{err}")
    }

    /// Each block whose output is not as shown, of those that ended.
    fn misprints(&self, page: &Page) -> Vec<String> {
        let outputs = page.blocks.iter().filter_map(|block| match block {
            Block::Output { line, of, text } if Some(*of) < self.last() || self.has_ended() => Some((line, of, text)),
            _ => None,
        });
        let compared = outputs.map(|(line, of, text)| {
            let printed = self.printed(&format!("{of}.out"));
            output::compare(text, &printed)
                .err()
                .map(|error| format!("the output shown in line {line} {error}"))
        });
        compared.flatten().collect()
    }

    /// Returns the number of the last block of commands that began.
    fn last(&self) -> Option<usize> {
        self.printed("at").trim().parse().ok()
    }

    fn has_ended(&self) -> bool {
        self.printed("ended").trim() == "yes"
    }

    fn printed(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.path().join(".guide").join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Builds the script that bash runs.
fn script(page: &Page) -> String {
    let blocks = page.blocks.iter().enumerate().map(|(number, block)| match block {
        Block::Commands { text, .. } => {
            format!("echo {number} >.guide/at\n{{\n{text}\n}} >.guide/{number}.out 2>.guide/{number}.err\n")
        }
        Block::File { name, .. } => format!("cp .guide/{number}.file {name}\n"),
        Block::Output { .. } => String::new(),
    });
    PROLOGUE.to_owned() + &blocks.collect::<String>() + "echo yes >.guide/ended\n"
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_share_a_shell_and_their_outputs_are_kept_apart() {
        let page = Page::parse(concat!(
            "```yaml\n# a.yaml\nkind: A\n```\n",
            "```sh\nname=x\ncat <<END\n$name\nEND\n```\n",
            "```sh\ngrep kind a.yaml\necho $name >&2\n```\n",
            "```console\nkind: A\n```\n",
        ))
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".guide")).unwrap();
        fs::write(folder.path().join(".guide/0.file"), "kind: A\n").unwrap();
        fs::write(folder.path().join(".guide/script"), script(&page)).unwrap();
        let status = Command::new("bash")
            .arg(".guide/script")
            .current_dir(folder.path())
            .status();
        assert!(status.unwrap().success());
        let read = |name: &str| fs::read_to_string(folder.path().join(".guide").join(name)).unwrap();
        assert_eq!(
            ["1.out", "2.out", "2.err", "at"].map(read),
            ["x\n", "kind: A\n", "x\n", "2\n"]
        );
    }
}
