//! The commands `version`, `cluster-identity` and `completion`.

use std::io::Write;

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use super::Context;
use crate::{
    args::{Args, CompletionArgs},
    consumer::Consumer,
    errors::Failure,
    provider::Provider,
    render::output::{Format, printable},
};

/// `kubectl bind version`
pub(crate) async fn version<W: Write>(context: &mut Context<W>) -> Result<(), Failure> {
    let client = env!("CARGO_PKG_VERSION");
    let server = match context.settings.any_backend() {
        Some(backend) => Some(Provider::new(backend, context.settings.timeout)?.describe().await?),
        None => None,
    };
    match context.printer.format() {
        Format::Json | Format::Yaml => context.printer.document(&json!({
            "client": { "version": client },
            "server": server.map(|server| json!({
                "name": server.pretty_name,
                "version": server.version,
                "apiVersions": server.api_versions,
                "features": server.features,
            })),
        })),
        _ => {
            let server = server.map_or_else(String::new, |server| {
                format!(
                    "Server: {} ({})\n",
                    printable(&server.version),
                    printable(&server.pretty_name)
                )
            });
            context.printer.text(&format!("Client: {client}\n{server}"))
        }
    }
}

/// `kubectl bind cluster-identity`
pub(crate) async fn cluster_identity<W: Write>(context: &mut Context<W>) -> Result<(), Failure> {
    let identity = Consumer::connect(&context.settings).await?.identity().await?;
    match context.printer.format() {
        Format::Json | Format::Yaml => context.printer.document(&json!({ "identity": identity })),
        _ => context.printer.text(&format!("{identity}\n")),
    }
}

/// The program that kubectl runs for completions.
const FOR_KUBECTL: &str = include_str!("../../kubectl_complete-bind");

/// `kubectl bind completion KUBECTL|SHELL`
pub(crate) fn completion<W: Write>(context: &mut Context<W>, args: &CompletionArgs) -> Result<(), Failure> {
    match args.reader.shell() {
        Some(shell) => context.printer.text(&script(shell)),
        None => context.printer.text(FOR_KUBECTL),
    }
}

/// The completion script for a shell.
fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "kubectl-bind", &mut script);
    // clap_complete writes a dash in the name of the program in two ways for bash, so flags of commands would not complete.
    String::from_utf8_lossy(&script).replace("kubectl__subcmd__bind", "kubectl__bind")
}

#[cfg(test)]
mod tests;
