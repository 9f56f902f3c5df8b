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

use bindery_runtime::terminal;

use crate::{
    args::{Args, Command},
    commands::Context,
    errors::{Exit, Failure},
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
            return if error.use_stderr() { Exit::Usage } else { Exit::Done }.into();
        }
    };
    match run(args) {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            if failure.exit() != Exit::Done {
                let _ = std::io::stderr().lock().write_all(failure.shown().as_bytes());
            }
            failure.exit().into()
        }
    }
}

fn run(args: Args) -> Result<(), Failure> {
    let log = match args.display.verbose {
        0 => None,
        1 => Some("warn,bindery_sdk=debug,bindery_runtime=debug"),
        _ => Some("debug,h2=info,hyper_util=info"),
    };
    terminal::set_up(log).map_err(|error| Failure::Usage(error.to_string()))?;
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
