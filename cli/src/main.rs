//! kubectl-bind: binds APIs of a provider from the command line.
//!
//! [`args`] parses the command line, and a command of [`commands`] acts on it. [`consumer`] and [`provider`] hold the
//! clients of the two clusters and what they answer; [`install`] plans what a bind writes, [`konnector`] what installs the
//! konnector, [`server`] what installs the server, [`dev`] what installs both with an example. [`login`] logs a person in. [`claims`], [`adopt`], [`why`], [`check`] and [`top`] decide without I/O, as [`install`] and [`konnector`] do. [`render`] prints.

mod adopt;
mod args;
mod check;
mod claims;
mod commands;
mod consumer;
mod contracts;
mod dev;
mod errors;
mod install;
mod konnector;
mod login;
mod provider;
mod render;
mod server;
mod text;
mod top;
mod why;

use std::{ffi::OsString, io::Write as _, process::ExitCode};

use bindery_runtime::terminal;

use crate::{
    args::{Args, Command, settings::Settings},
    commands::Context,
    errors::{Exit, Failure},
    login::store::Folder,
    render::{output::Printer, steps::Steps},
};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(words) = args::complete::asked(&words) {
        return complete(words);
    }
    let args = match args::parse(words) {
        Ok(args) => args,
        Err(error) => {
            // A closed standard error leaves no way to report this.
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

/// Answers a completion. A shell shows no error.
fn complete(words: Vec<OsString>) -> ExitCode {
    let _ = terminal::set_up(None);
    let _ = std::io::stdout()
        .lock()
        .write_all(commands::complete::answer(words).as_bytes());
    Exit::Done.into()
}

fn run(args: Args) -> Result<(), Failure> {
    let log = match args.display.verbose {
        0 => None,
        1 => Some("warn,bindery_sdk=debug,bindery_runtime=debug"),
        _ => Some("debug,h2=info,hyper_util=info"),
    };
    terminal::set_up(log).map_err(|error| Failure::Usage(error.to_string()))?;
    let command: Command = args.command;
    let provider = command.provider(args.provider);
    let settings = Settings::new(args.cluster, provider, &args.display, Folder::from_env())?;
    let context = Context {
        steps: Steps::new(settings.quiet),
        printer: Printer::new(settings.format, std::io::stdout().lock()),
        settings,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(commands::run(context, command))
}
