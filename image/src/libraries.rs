//! The shared libraries that the programs need, from the Debian packages of this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{output, read};

/// The architecture of the packages, as Debian calls it.
const ARCHITECTURE: &str = "amd64";
/// Names the release of Debian.
const OS_RELEASE: &str = "/etc/os-release";
/// The folder of libraries in which the dynamic linker of Debian looks first.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";
/// The folder of the dynamic linker, which every program names.
const LINKER: &str = "lib64";
/// The oldest C library that looks up hosts, and asks DNS, without a module that it loads while it runs.
const GLIBC_MIN: (u32, u32) = (2, 34);

/// What programs of Rust need: package, file, and the folder that the file has in an image.
const NEEDED: [(&str, &str, &str); 4] = [
    ("libc6", "ld-linux-x86-64.so.2", LINKER),
    ("libc6", "libc.so.6", LIBRARIES),
    ("libc6", "libm.so.6", LIBRARIES),
    ("libgcc-s1", "libgcc_s.so.1", LIBRARIES),
];

/// The licenses of the packages, as SPDX expressions.
const LICENSES: [(&str, &str); 2] = [
    ("libc6", "LGPL-2.1-or-later"),
    ("libgcc-s1", "GPL-3.0-or-later WITH GCC-exception-3.1"),
];

/// The libraries of an image, and where they are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Libraries {
    /// The file that names the release of Debian.
    pub(crate) os_release: Vec<u8>,
    /// The release, such as `debian-12`.
    pub(crate) distribution: String,
    /// The packages.
    pub(crate) packages: Vec<DebianPackage>,
    /// The libraries.
    pub(crate) files: Vec<Library>,
}

/// A Debian package of which an image has files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DebianPackage {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// The SPDX expression of its license.
    pub(crate) license: &'static str,
    /// What dpkg knows of the package, for scanners: a paragraph of `/var/lib/dpkg/status`.
    pub(crate) status: Vec<u8>,
    /// Its licenses in full.
    pub(crate) copyright: Vec<u8>,
}

/// A shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// The path in an image.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// Reads the libraries of this machine. Fails where they are of no Debian package, or too old.
pub(crate) fn read_installed() -> Result<Libraries> {
    let os_release = read(Path::new(OS_RELEASE))?;
    let text = String::from_utf8_lossy(&os_release);
    let distribution = [field(&text, "ID")?, field(&text, "VERSION_ID")?].join("-");
    let packages = LICENSES.map(|(name, license)| package(name, license));
    let files = NEEDED.map(|(package, name, folder)| {
        let content = read(&installed(package, name)?)?;
        Ok(Library {
            name,
            path: format!("{folder}/{name}"),
            content,
        })
    });
    let libraries = Libraries {
        distribution,
        packages: packages.into_iter().collect::<Result<_>>()?,
        files: files.into_iter().collect::<Result<_>>()?,
        os_release,
    };
    for it in &libraries.packages {
        if it.name == "libc6" {
            ensure!(
                glibc(&it.version).is_some_and(|version| version >= GLIBC_MIN),
                "libc6 is of version {}: build images on a machine with version {}.{} or newer",
                it.version,
                GLIBC_MIN.0,
                GLIBC_MIN.1
            );
        }
    }
    Ok(libraries)
}

/// Fails if a program needs a library that images do not have.
pub(crate) fn check(program: &str, needed: &[String]) -> Result<()> {
    let missing = needed.iter().find(|it| NEEDED.iter().all(|(_, name, _)| name != it));
    ensure!(
        missing.is_none(),
        "{program} needs the library {}, which images do not have: add it to image/src/libraries.rs",
        missing.map_or("", String::as_str)
    );
    Ok(())
}

/// Returns the value of a line `KEY=value` or `KEY="value"`.
fn field(os_release: &str, key: &str) -> Result<String> {
    let mut lines = os_release.lines().filter_map(|line| line.split_once('='));
    let (_, value) = lines
        .find(|(found, _)| *found == key)
        .with_context(|| format!("{OS_RELEASE} has no {key}: build images on Debian"))?;
    Ok(value.trim_matches('"').to_owned())
}

fn package(name: &'static str, license: &'static str) -> Result<DebianPackage> {
    let query = |format: &str| {
        let mut command = dpkg_query();
        command.args(["--show", "--showformat", format]);
        output(command.arg(format!("{name}:{ARCHITECTURE}")))
            .context("images take shared libraries from Debian packages: build them on Debian")
    };
    let status = query(
        "Package: ${Package}\nStatus: install ok installed\nSource: ${source:Package} (${source:Version})\nVersion: ${Version}\n\
         Architecture: ${Architecture}\nMaintainer: ${Maintainer}\nDescription: ${binary:Summary}\n",
    )?;
    let copyright = PathBuf::from(format!("/usr/share/doc/{name}/copyright"));
    Ok(DebianPackage {
        name,
        version: String::from_utf8(query("${Version}")?)?,
        license,
        status,
        copyright: read(&copyright)?,
    })
}

/// Returns the path of a file of an installed package.
fn installed(package: &str, file: &str) -> Result<PathBuf> {
    let list = output(dpkg_query().args(["--listfiles", &format!("{package}:{ARCHITECTURE}")]))?;
    let list = String::from_utf8(list)?;
    let mut paths = list.lines().map(Path::new);
    let path = paths.find(|path| path.ends_with(file));
    let path = path.with_context(|| format!("package {package} has no file {file}"))?;
    // The package may have a link to it.
    fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))
}

fn dpkg_query() -> Command {
    Command::new("dpkg-query")
}

/// Reads a version such as `2.36-9+deb12u14`.
fn glibc(version: &str) -> Option<(u32, u32)> {
    let upstream = version.split(['-', '+', '~']).next()?;
    let (major, minor) = upstream.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_c_library_are_compared_as_numbers() {
        assert_eq!(glibc("2.36-9+deb12u14"), Some((2, 36)));
        assert_eq!(glibc("2.41-12"), Some((2, 41)));
        assert_eq!(glibc("2.4.1-1"), Some((2, 4)));
        assert!(glibc("2.4-1") < Some(GLIBC_MIN));
        assert_eq!(glibc("unknown"), None);
    }

    #[test]
    fn a_release_is_read_with_and_without_quotes() {
        let text = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(field(text, "ID").unwrap(), "debian");
        assert_eq!(field(text, "VERSION_ID").unwrap(), "12");
        let error = field(text, "VERSION").unwrap_err().to_string();
        assert!(error.contains("no VERSION"), "{error}");
    }

    #[test]
    fn every_library_is_found_and_has_a_package_with_a_license() {
        let libraries = read_installed().unwrap();
        assert!(libraries.files.iter().all(|it| it.content.starts_with(b"\x7fELF")));
        for (package, ..) in NEEDED {
            let found = libraries.packages.iter().find(|it| it.name == package).unwrap();
            let status = String::from_utf8_lossy(&found.status);
            assert!(status.contains(&format!("Version: {}\n", found.version)), "{status}");
            assert!(!found.copyright.is_empty());
        }
    }

    #[test]
    fn a_library_that_images_lack_is_named() {
        let needed = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        check("synk", &needed(&["libc.so.6", "libm.so.6"])).unwrap();
        let error = check("synk", &needed(&["libc.so.6", "libz.so.1"])).unwrap_err();
        assert!(
            error.to_string().contains("synk needs the library libz.so.1"),
            "{error}"
        );
    }
}
