//! `bindery-server`: the backend of a provider.

use std::{io::Write as _, process::ExitCode};

use bindery_server::args::Args;
use clap::Parser as _;
use tikv_jemallocator::Jemalloc;

mod run;

/// Gives memory back after a burst. How is set in `.cargo/config.toml`.
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

/// Says why the server ends: in the log, or, where even that cannot be begun, as it is.
fn tell(error: &anyhow::Error) {
    if tracing::dispatcher::has_been_set() {
        tracing::error!(error = format!("{error:#}"), "bindery-server ends");
    } else {
        // Where nobody reads, there is nobody to tell.
        let _ = writeln!(std::io::stderr().lock(), "bindery-server: {error:#}");
    }
}
