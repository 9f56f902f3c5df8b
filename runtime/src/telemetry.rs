//! Logs and metrics.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text, for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// Flags for logging, shared by all binaries.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// What to log, such as `info` or `info,bindery_server=debug`.
    #[arg(long, default_value = "info", env = "BINDERY_LOG", global = true)]
    pub log: String,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t, global = true)]
    pub log_format: LogFormat,
}

/// The metrics of a process, served by its admin port at `/metrics`.
pub type Registry = prometheus_client::registry::Registry;

/// Makes an empty registry, which names its metrics `bindery_…`.
pub fn registry() -> Registry {
    Registry::with_prefix("bindery")
}

/// Starts logging to standard error. Call it once per process. Fails if the filter is not valid.
pub fn init(args: &LogArgs) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = EnvFilter::try_new(directives(args))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

/// The directives of the filter of the log.
pub(crate) fn directives(args: &LogArgs) -> String {
    // kube logs the whole text of an answer that it cannot decode, Secrets included: only its errors are let through.
    format!("{},kube_client=error", args.log)
}
