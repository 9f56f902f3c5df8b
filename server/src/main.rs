//! `bindery-server`: the backend of a provider.

use std::{io::Write as _, process::ExitCode};

use bindery_server::args::Args;
use clap::Parser as _;
use tikv_jemallocator::Jemalloc;

mod run;

/// The allocator returns memory to the system after a burst; `.cargo/config.toml` configures it.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match Box::pin(run::run(&args)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&error);
            ExitCode::FAILURE
        }
    }
}

/// Reports why the server ends, in the log or, without one, on stderr.
fn tell(error: &anyhow::Error) {
    if tracing::dispatcher::has_been_set() {
        tracing::error!(error = format!("{error:#}"), "bindery-server ends");
    } else {
        // If stderr is closed, the error cannot be reported.
        let _ = writeln!(std::io::stderr().lock(), "bindery-server: {error:#}");
    }
}
