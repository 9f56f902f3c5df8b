//! Separates a program from its debug information, and embeds the list of its crates.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::workspace::output;

/// The section in which scanners look for the crates of a program, as `cargo auditable` writes it.
const CRATES_SECTION: &str = ".dep-v0";

/// A program without debug information, and the file that debuggers find by the name `NAME.debug`.
#[derive(Debug)]
pub(crate) struct Stripped {
    /// The program.
    pub(crate) program: Vec<u8>,
    /// The file with its debug information.
    pub(crate) debug: PathBuf,
}

/// Strips `executable` in the folder `work`, and embeds `crates`.
pub(crate) fn strip(executable: &Path, crates: &[u8], work: &Path) -> Result<Stripped> {
    let name = executable.file_name().context("a program without a name")?;
    let name = name.to_str().context("the name of a program is not UTF-8")?;
    let (program, debug, section) = (work.join(name), work.join(format!("{name}.debug")), work.join("crates"));
    fs::write(&section, crates).with_context(|| format!("cannot write {}", section.display()))?;
    let mut keep = objcopy();
    keep.args(["--only-keep-debug", "--compress-debug-sections=zlib"])
        .args([executable, &debug]);
    output(&mut keep)?;
    let mut strip = objcopy();
    strip
        .arg("--strip-all")
        .arg(format!("--add-gnu-debuglink={}", debug.display()))
        .arg(format!("--add-section={CRATES_SECTION}={}", section.display()))
        .args([executable, &program]);
    output(&mut strip)?;
    Ok(Stripped {
        program: fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?,
        debug,
    })
}

/// Returns the names of the shared libraries that a program needs, without those that they need in turn.
pub(crate) fn needed(executable: &Path) -> Result<Vec<String>> {
    let mut readelf = Command::new("readelf");
    let text = output(readelf.args(["--dynamic", "--wide"]).arg(executable))?;
    Ok(parse_needed(&String::from_utf8_lossy(&text)))
}

/// Reads lines such as ` 0x0000000000000001 (NEEDED)  Shared library: [libc.so.6]`.
fn parse_needed(text: &str) -> Vec<String> {
    let names = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| {
            let (_, name) = line.split_once('[')?;
            name.strip_suffix(']')
        });
    names.map(str::to_owned).collect()
}

fn objcopy() -> Command {
    Command::new("objcopy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_libraries_are_read() {
        let text = "Dynamic section at offset 0x1 contains 3 entries:\n\
             \x20 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]\n\
             \x20 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n\
             \x20 0x000000000000000c (INIT)               0x1000\n";
        assert_eq!(parse_needed(text), ["libgcc_s.so.1", "libc.so.6"]);
    }
}
