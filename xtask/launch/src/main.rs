//! What `cargo xtask` runs: it builds xtask, and hands over to it.
//!
//! Cargo decides by the packages that it builds at once which features their dependencies have. An alias can build one package only, for
//! which most dependencies would be compiled a second time. So the build of this program, which has none, begins one with the features that
//! all builds for tests share.
#![expect(clippy::print_stderr, reason = "a command line tells what failed")]

use std::{
    env, io,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
};

fn main() -> ExitCode {
    let error = match launch() {
        Ok(code) => return code,
        Err(error) => error,
    };
    eprintln!("cargo xtask: {error}");
    ExitCode::FAILURE
}

/// Replaces this process by xtask. Returns if xtask could not be built or started.
fn launch() -> io::Result<ExitCode> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--locked", "--workspace", "--examples", "--bin", "xtask"];
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new(cargo).args(build).current_dir(folder).status()?;
    if !status.success() {
        // Cargo has said why.
        return Ok(ExitCode::FAILURE);
    }
    let program = env::current_exe()?.with_file_name("xtask");
    Err(Command::new(program).args(env::args_os().skip(1)).exec())
}
