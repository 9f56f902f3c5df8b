//! `version`, `cluster-identity` and `completion`.

use std::io::Write;

use clap::CommandFactory as _;
use serde_json::json;

use super::Context;
use crate::{
    args::{Args, CompletionArgs},
    consumer::Consumer,
    errors::Failure,
    output::{Format, printable},
    provider::Provider,
};

/// `kubectl bind version`
pub(crate) async fn version<W: Write>(context: &mut Context<W>) -> Result<(), Failure> {
    let client = env!("CARGO_PKG_VERSION");
    let server = match context.settings.any_backend() {
        Some(backend) => Some(Provider::with(&context.settings, backend)?.describe().await?),
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

/// `kubectl bind completion SHELL`
pub(crate) fn completion<W: Write>(context: &mut Context<W>, args: &CompletionArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "kubectl-bind", &mut script);
    context.printer.text(&String::from_utf8_lossy(&script))
}
