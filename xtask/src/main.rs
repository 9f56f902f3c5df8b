//! The developer's commands: `cargo xtask demo`, `test`, `simulate`, `soak`, `bench`, `image`, `release`, `sdk`, `gen` and `book`.
#![expect(clippy::print_stderr, reason = "a command line tells what it does")]

mod bench;
mod book;
mod cargo;
mod demo;
mod generate;
mod image;
mod patch;
mod release;
mod say;
mod sdk;
mod simulate;
mod soak;
mod test;
mod tool;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The developer's commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the main job on two real clusters: bind an API, sync objects, unbind. Builds what it needs the first time.
    Demo(demo::Args),
    /// Runs all checks: format, lints, docs, unit tests, end-to-end tests.
    Test(test::Args),
    /// Runs konnectors and servers in one process under faults, by seed, and the mutants that this has to find.
    Simulate(simulate::Args),
    /// Kills server and konnector at random moments, round after round, and fuzzes what reads the bytes of strangers.
    Soak(soak::Args),
    /// Measures what something costs, beside the least that it could cost, in the same run.
    Bench(bench::Args),
    /// Builds the OCI images of the programs.
    Image(image::Args),
    /// Makes a release: images, charts, archives of the command lines, checksums, SBOMs and signatures.
    Release(release::Args),
    /// Checks the .proto files, and writes the generated code of the SDKs.
    Sdk(sdk::Args),
    /// Writes the generated files: `deploy/crds`, `deploy/server` and `deploy/konnector`, and the references of flags, values, gRPC, CRDs
    /// and conditions.
    Gen,
    /// Builds the book of `docs` as HTML. Installs mdbook the first time.
    Book(book::Args),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Release(args) => release::run(&args),
        Command::Sdk(args) => sdk::run(&args),
        Command::Gen => generate::run(),
        Command::Book(args) => book::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
