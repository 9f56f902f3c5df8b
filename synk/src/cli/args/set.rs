//! Flags of the commands.

use std::{num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use bindery_runtime::terminal::duration;
use bindery_synk::{SetName, Version, wire::InvalidName};
use clap::{ArgAction, ValueEnum, builder::NonEmptyStringValueParser};

use super::text;

/// Flags of `apply`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = text::APPLY, after_help = "Try --help for what it does, kubectl's connection flags, and examples.", mut_arg("files", |arg| arg.required_unless_present("plan")))]
pub(in crate::cli) struct ApplyArgs {
    #[command(flatten)]
    pub(in crate::cli) source: SourceArgs,
    /// File with a plan that `synk plan --out` saved: what it says is done, or nothing if that has changed.
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["files", "dry_run", "allow_prune", "take_over", "allow_namespaces", "take_fields_of"])]
    pub(in crate::cli) plan: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) how: HowArgs,
}

/// Options of an apply that do not depend on the source of the manifests.
#[derive(clap::Args, Debug)]
pub(in crate::cli) struct HowArgs {
    /// With server, say what would be done and do nothing.
    #[arg(long, value_enum, value_name = "MODE", default_value_t, num_args = 0..=1, require_equals = true,
          default_missing_value = "server")]
    pub(in crate::cli) dry_run: DryRun,
    #[command(flatten)]
    pub(in crate::cli) allow: AllowArgs,
    #[command(flatten)]
    pub(in crate::cli) pace: PaceArgs,
    #[command(flatten)]
    pub(in crate::cli) wait: WaitArgs,
}

/// Flags of `plan`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = text::PLAN, after_help = "Try --help for what the signs mean, kubectl's connection flags, and examples.", mut_arg("files", |arg| arg.required(true)))]
pub(in crate::cli) struct PlanArgs {
    #[command(flatten)]
    pub(in crate::cli) source: SourceArgs,
    /// File to save the plan in, for `synk apply --plan`. It holds all manifests, Secrets included.
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) out: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) allow: AllowArgs,
}

/// The set and its files.
#[derive(clap::Args, Debug)]
pub(in crate::cli) struct SourceArgs {
    /// Name of the set.
    pub(in crate::cli) name: SetName,
    /// File of manifests, or folder of such files, or `-` for standard input; may be given more than once.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    pub(in crate::cli) files: Vec<PathBuf>,
}

/// Lifts guards.
#[derive(clap::Args, Debug, Clone, Default)]
pub(in crate::cli) struct AllowArgs {
    /// Allow an empty set, and one that would delete more than half of what is there.
    #[arg(long)]
    pub(in crate::cli) allow_prune: bool,
    /// Take objects over from another set, or the set to another namespace.
    #[arg(long)]
    pub(in crate::cli) take_over: bool,
    /// Allow objects in this namespace, besides that of the set and kube-system; may be given more than once.
    #[arg(long = "allow-namespace", value_name = "NAME")]
    pub(in crate::cli) allow_namespaces: Vec<String>,
    /// Make all fields synk's that this field manager set, so that those that the manifests do not name go; may be given
    /// more than once. Needed once for what was applied without synk: `kubectl` for kubectl apply --server-side, `helm`.
    #[arg(long, value_name = "MANAGER", value_parser = NonEmptyStringValueParser::new())]
    pub(in crate::cli) take_fields_of: Vec<String>,
}

/// Retries, concurrency and history of an apply.
#[derive(clap::Args, Debug)]
pub(in crate::cli) struct PaceArgs {
    /// How often to start over, every 5 s, after errors that pass; 0 for never.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(in crate::cli) retries: u32,
    /// How many objects to write at once.
    #[arg(long, value_name = "N", default_value = "16")]
    pub(in crate::cli) concurrency: NonZeroUsize,
    /// Of how many versions to keep the manifests for a rollback; 0 keeps none.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(in crate::cli) history: usize,
}

/// Whether to wait until all objects are healthy.
#[derive(clap::Args, Debug)]
pub(in crate::cli) struct WaitArgs {
    /// Wait until all objects of the set are healthy.
    #[arg(long)]
    pub(in crate::cli) wait: bool,
    /// How long to wait, such as 90s or 10m.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m", requires = "wait")]
    pub(in crate::cli) timeout: Duration,
}

/// Whether the command writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum DryRun {
    /// The command writes.
    #[default]
    None,
    /// The API server answers dry runs, and nothing is written.
    Server,
}

/// Flags of `delete`.
#[derive(clap::Args, Debug)]
#[command(after_help = text::DELETE)]
pub(in crate::cli) struct DeleteArgs {
    /// Name of the set, or NAME.vN for one version of it.
    pub(in crate::cli) name: Named,
    /// Whether to wait until all is gone.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(in crate::cli) wait: bool,
    /// How long to wait, such as 90s or 10m.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub(in crate::cli) timeout: Duration,
    /// Succeed if there is no such set or version.
    #[arg(long)]
    pub(in crate::cli) ignore_not_found: bool,
}

/// A set, or one version of a set.
#[derive(Clone, Debug)]
pub(in crate::cli) enum Named {
    Set(SetName),
    Version(Version),
}

/// Flags of `history`.
#[derive(clap::Args, Debug)]
#[command(after_help = text::HISTORY)]
pub(in crate::cli) struct HistoryArgs {
    /// Name of the set.
    pub(in crate::cli) name: SetName,
}

/// Flags of `rollback`.
#[derive(clap::Args, Debug)]
#[command(after_help = text::ROLLBACK)]
pub(in crate::cli) struct RollbackArgs {
    /// The version to go back to, NAME.vN.
    pub(in crate::cli) version: Version,
    #[command(flatten)]
    pub(in crate::cli) how: HowArgs,
}

/// Flags of `status`.
#[derive(clap::Args, Debug)]
#[command(after_help = text::STATUS)]
pub(in crate::cli) struct StatusArgs {
    /// Name of the set; all sets if left out.
    pub(in crate::cli) name: Option<SetName>,
}

/// Flags of `completion`.
#[derive(clap::Args, Debug)]
#[command(after_help = text::COMPLETION)]
pub(in crate::cli) struct CompletionArgs {
    /// The shell.
    pub(in crate::cli) shell: clap_complete::Shell,
}

impl FromStr for Named {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match text.parse() {
            Ok(version) => Ok(Self::Version(version)),
            // The text is neither. The error about a set name says more.
            Err(InvalidName::NotVersion(_)) => text.parse().map(Self::Set),
            Err(error) => Err(error),
        }
    }
}
