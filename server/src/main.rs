//! `bindery-server`: the backend of a provider.

use std::process::ExitCode;

use bindery_server::args::Args;
use clap::Parser as _;

mod run;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run::run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "bindery-server ends");
            ExitCode::FAILURE
        }
    }
}
