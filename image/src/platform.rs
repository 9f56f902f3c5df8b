//! The platforms that images are built for. An image is built on a machine of its own platform.

use std::env;

use anyhow::{Context as _, Result};
use oci_spec::image::Arch;

/// Linux on one architecture.
#[derive(Debug, PartialEq, Eq)]
pub struct Platform {
    /// The name of the architecture in Rust.
    arch: &'static str,
    /// The target of the compiler.
    pub(crate) target: &'static str,
    /// The name of the architecture in OCI, in Go and in Debian.
    pub name: &'static str,
    /// The folder of libraries in which the dynamic linker of Debian looks first.
    pub(crate) libraries: &'static str,
    /// The dynamic linker, by the path that every program names.
    pub(crate) linker: &'static str,
}

const PLATFORMS: [Platform; 2] = [
    Platform {
        arch: "x86_64",
        target: "x86_64-unknown-linux-gnu",
        name: "amd64",
        libraries: "lib/x86_64-linux-gnu",
        linker: "lib64/ld-linux-x86-64.so.2",
    },
    // Not tried.
    Platform {
        arch: "aarch64",
        target: "aarch64-unknown-linux-gnu",
        name: "arm64",
        libraries: "lib/aarch64-linux-gnu",
        linker: "lib/ld-linux-aarch64.so.1",
    },
];

impl Platform {
    /// The platform of this machine.
    pub fn host() -> Result<&'static Self> {
        Self::of(env::consts::OS, env::consts::ARCH)
    }

    fn of(os: &str, arch: &str) -> Result<&'static Self> {
        let mut platforms = PLATFORMS.iter();
        let found = platforms.find(|it| os == "linux" && it.arch == arch);
        found.with_context(|| {
            format!("images are built on Linux on x86_64 or aarch64, and this machine runs {os} on {arch}")
        })
    }

    /// The architecture, as OCI knows it.
    pub(crate) fn architecture(&self) -> Arch {
        self.name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_platforms_are_refused_by_name() {
        assert_eq!(Platform::of("linux", "x86_64").unwrap().architecture(), Arch::Amd64);
        assert_eq!(Platform::of("linux", "aarch64").unwrap().architecture(), Arch::ARM64);
        let error = Platform::of("macos", "aarch64").unwrap_err().to_string();
        assert!(error.contains("macos on aarch64"), "{error}");
    }
}
