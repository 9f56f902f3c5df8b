//! The program of the simulator.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people and for scripts"
)]

use std::process::ExitCode;

use bindery_simulator::command;
use clap::Parser as _;
use tikv_jemallocator::Jemalloc;

// Half of a seed is JSON that is copied and dropped.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let args = command::Args::parse();
    match command::run(&args, &mut |line| println!("{line}")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
