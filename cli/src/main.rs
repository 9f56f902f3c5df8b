//! kubectl-bind: binds APIs of a provider from the command line.
//!
//! What was typed ([`args`]) becomes what was meant ([`settings`]), and a command ([`commands`]) acts on it. Decisions
//! are pure: what a provider may have installed ([`offer`], [`kubeconfig`]) and may see ([`claims`]), what that is
//! ([`manifests`]), what of it is missing ([`plan`]), what installs the konnector ([`deploy`]), what it would adopt
//! ([`adopt`]), and what an object waits for ([`why`]). Only [`provider`],
//! [`consumer`], [`contract`] and the commands speak to anybody.

mod adopt;
mod applied;
mod args;
mod claims;
mod commands;
mod consumer;
mod contract;
mod deploy;
mod errors;
mod kubeconfig;
mod manifests;
mod offer;
mod output;
mod placement;
mod plan;
mod provider;
mod settings;
mod steps;
mod tree;
mod wait;
mod why;

use std::{io::Write as _, process::ExitCode};

use bindery_runtime::telemetry::{self, LogArgs, LogFormat};

use crate::{
    args::{Args, Command},
    commands::Context,
    errors::{Exit, Failure, Shown},
    output::Printer,
    settings::Settings,
    steps::Steps,
};

fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().collect()) {
        Ok(args) => args,
        Err(error) => {
            // Where nobody reads, there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    match run(args) {
        Ok(()) => Exit::Done.code(),
        Err(failure) => {
            if failure.exit() != Exit::Done {
                let _ = writeln!(std::io::stderr().lock(), "{}", Shown(&failure));
            }
            failure.exit().code()
        }
    }
}

fn run(args: Args) -> Result<(), Failure> {
    log(args.display.verbose)?;
    // Another one may only have been chosen by this process itself.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let command: Command = args.command;
    let settings = Settings::new(args.cluster, args.provider, &args.display)?;
    let context = Context {
        steps: Steps::new(settings.quiet),
        printer: Printer::new(settings.format, std::io::stdout().lock()),
        settings,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(commands::run(context, command))
}

fn log(verbose: u8) -> Result<(), Failure> {
    let log = match verbose {
        0 => return Ok(()),
        1 => "warn,bindery_sdk=debug,bindery_runtime=debug",
        _ => "debug,h2=info,hyper_util=info",
    };
    let args = LogArgs {
        log: log.to_owned(),
        log_format: LogFormat::Text,
    };
    telemetry::init(&args).map_err(|error| Failure::Usage(error.to_string()))
}
