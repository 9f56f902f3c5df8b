//! Separates a program from its debug information, and embeds the list of its crates.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{Image, workspace::output};

/// The section in which scanners look for the crates of a program, as `cargo auditable` writes it.
const CRATES_SECTION: &str = ".dep-v0";

/// The C library of Debian 12.
const GLIBC_MAX: (u32, u32) = (2, 36);

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

/// Fails if a program of an image needs a newer C library than that of Debian 12, because users run it on their own machines.
pub(crate) fn check_glibc(image: &Image, program: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(program);
    fs::write(&path, image.file(&format!("usr/bin/{program}"))?)?;
    let mut readelf = Command::new("readelf");
    let text = output(readelf.args(["--version-info", "--wide"]).arg(&path))?;
    let newest =
        newest_glibc(&String::from_utf8_lossy(&text)).context("the program names no version of the C library")?;
    ensure!(
        newest <= GLIBC_MAX,
        "{program} needs version {}.{} of the C library; the archives promise {}.{}: make the release on Debian 12",
        newest.0,
        newest.1,
        GLIBC_MAX.0,
        GLIBC_MAX.1
    );
    Ok(())
}

/// Returns the newest version in texts such as `Name: GLIBC_2.34  Flags: none`.
fn newest_glibc(text: &str) -> Option<(u32, u32)> {
    let versions = text.split("GLIBC_").skip(1).filter_map(|it| {
        let end = it.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(it.len());
        let mut numbers = it[..end].split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
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
    fn the_newest_version_of_the_c_library_is_found() {
        let text =
            "  0x0010: Name: GLIBC_2.4  Flags: none\n  0x0020:   Name: GLIBC_2.34  Flags\n  GLIBC_PRIVATE GLIBC_2.2.5";
        assert_eq!(newest_glibc(text), Some((2, 34)));
        assert_eq!(newest_glibc("no version"), None);
    }

    #[test]
    fn needed_libraries_are_read() {
        let text = "Dynamic section at offset 0x1 contains 3 entries:\n\
             \x20 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]\n\
             \x20 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n\
             \x20 0x000000000000000c (INIT)               0x1000\n";
        assert_eq!(parse_needed(text), ["libgcc_s.so.1", "libc.so.6"]);
    }
}
