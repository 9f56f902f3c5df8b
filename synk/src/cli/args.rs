//! Parses the command line.

mod connection;
mod set;
mod text;

use std::num::NonZeroU32;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};

pub(super) use connection::ConnectionArgs;
pub(super) use set::{
    AllowArgs, ApplyArgs, CompletionArgs, DeleteArgs, DryRun, HistoryArgs, Named, PaceArgs, PlanArgs, RollbackArgs,
    StatusArgs, WaitArgs,
};

/// Applies sets of Kubernetes manifests, versioned and pruned.
///
/// A set is what one apply is given: files of manifests, under a name. Each apply that changes something makes a new version
/// of the set, a ResourceSet NAME.vN that owns all of it. What was in the version before and is not in this one is deleted.
#[derive(Parser, Debug)]
#[command(
    name = "synk",
    version,
    after_long_help = text::EXAMPLES,
    after_help = "Try --help for kubectl's connection flags, examples, exit codes and what prune does.",
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    #[command(flatten)]
    pub(super) display: DisplayArgs,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Output, verbosity and request rate.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(super) struct DisplayArgs {
    /// Namespace of the set; that of the context for a new set.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// Format of the result on standard output.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(super) output: Format,
    /// Send no more requests in a second than this; 0 for no limit.
    #[arg(long = "max-qps", global = true, value_name = "N", default_value = "0", value_parser = qps,
          hide_default_value = true)]
    pub(super) max_qps: Qps,
    /// Show more: unchanged objects, all field changes, where objects stand. Twice logs requests too.
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    pub(super) verbose: u8,
    /// Show no progress, only the result and errors.
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
}

/// Requests per second; `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Qps(pub(super) Option<NonZeroU32>);

/// Format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A text or a table for people.
    #[default]
    Table,
    /// One JSON document, also if the command fails.
    Json,
    /// One YAML document, also if the command fails.
    Yaml,
}

/// The command.
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Install the definition of ResourceSets on the cluster, once.
    Init,
    /// Apply a set: create, change and prune what it takes.
    Apply(Box<ApplyArgs>),
    /// Say what an apply would do, and do nothing.
    Plan(PlanArgs),
    /// Delete a set with all that it holds, or one version of it.
    Delete(DeleteArgs),
    /// List the versions of a set and which of them can be rolled back to.
    History(HistoryArgs),
    /// Apply a former version of a set again, as a new version.
    Rollback(RollbackArgs),
    /// Show a set and how its objects are, or list all sets.
    Status(StatusArgs),
    /// Print a completion script for a shell.
    Completion(CompletionArgs),
    /// Show the version of this command.
    Version,
}

fn qps(text: &str) -> Result<Qps, String> {
    let number: u32 = text
        .parse()
        .map_err(|_| "write a whole number, such as 50".to_owned())?;
    Ok(Qps(NonZeroU32::new(number)))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use clap::{CommandFactory as _, error::ErrorKind};

    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("synk").chain(line.split_whitespace()))
    }

    #[track_caller]
    fn check_refused(line: &str, kind: ErrorKind, says: &str) {
        let error = parse(line).expect_err(line);
        assert_eq!(error.kind(), kind, "{line:?}: {error}");
        assert_eq!(error.exit_code(), 2, "{line:?}");
        assert!(error.to_string().contains(says), "{line:?}: {error}");
    }

    #[track_caller]
    fn apply(line: &str) -> ApplyArgs {
        match parse(line).unwrap().command {
            Command::Apply(args) => *args,
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[test]
    fn flags_do_not_contradict_each_other() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_is_left_out_has_a_meaning() {
        let plain = apply("apply web -f -");
        assert_eq!(plain.source.name.as_str(), "web");
        assert_eq!(plain.source.files, [Path::new("-")]);
        assert_eq!(plain.how.dry_run, DryRun::None);
        assert_eq!(
            (
                plain.how.pace.retries,
                plain.how.pace.history,
                plain.how.pace.concurrency.get()
            ),
            (60, 3, 16)
        );
        assert!(!plain.how.wait.wait && plain.how.wait.timeout == Duration::from_mins(5));
        let display = parse("status").unwrap().display;
        assert_eq!(
            (display.output, display.max_qps, display.namespace),
            (Format::Table, Qps(None), None)
        );
    }

    #[test]
    fn the_flags_of_the_go_synk_are_understood() {
        let line = "apply web -n shop -f a.yaml --filename b --max-qps 50 --retries=0 --context c --server https://x";
        let args = parse(line).unwrap();
        assert_eq!(args.display.max_qps, Qps(NonZeroU32::new(50)));
        assert_eq!(args.display.namespace.as_deref(), Some("shop"));
        let apply = apply(line);
        assert_eq!(apply.source.files, [Path::new("a.yaml"), Path::new("b")]);
        assert_eq!(apply.how.pace.retries, 0);
    }

    #[test]
    fn a_dry_run_asks_the_server() {
        for (line, expect) in [
            ("apply web -f x --dry-run", DryRun::Server),
            ("apply web -f x --dry-run=server", DryRun::Server),
            ("apply web -f x --dry-run=none", DryRun::None),
        ] {
            assert_eq!(apply(line).how.dry_run, expect, "{line}");
        }
        check_refused("apply web -f x --dry-run=client", ErrorKind::InvalidValue, "server");
    }

    #[test]
    fn a_set_comes_from_manifests_or_from_a_plan() {
        let saved = apply("apply web --plan p.json");
        assert_eq!(saved.plan.as_deref(), Some(Path::new("p.json")));
        check_refused("apply web", ErrorKind::MissingRequiredArgument, "--filename");
        check_refused("apply web -f x --plan p", ErrorKind::ArgumentConflict, "--plan");
        check_refused("apply web --plan p --dry-run", ErrorKind::ArgumentConflict, "--plan");
        check_refused(
            "apply web --plan p --allow-prune",
            ErrorKind::ArgumentConflict,
            "--plan",
        );
        check_refused(
            "apply web --plan p --take-fields-of helm",
            ErrorKind::ArgumentConflict,
            "--plan",
        );
        check_refused("plan web", ErrorKind::MissingRequiredArgument, "--filename");
    }

    #[test]
    fn managers_are_named_one_by_one() {
        let line = "apply web -f x --take-fields-of kubectl --take-fields-of=helm";
        assert_eq!(apply(line).how.allow.take_fields_of, ["kubectl", "helm"]);
        check_refused("apply web -f x --take-fields-of=", ErrorKind::InvalidValue, "");
    }

    #[test]
    fn names_are_those_of_sets_and_versions() {
        check_refused("apply web.v1 -f x", ErrorKind::ValueValidation, "without `.vN`");
        check_refused(
            "apply Web -f x",
            ErrorKind::ValueValidation,
            "cannot be the name of a set",
        );
        check_refused("rollback web", ErrorKind::ValueValidation, "NAME.vN");
        let delete = |line| match parse(line).unwrap().command {
            Command::Delete(delete) => delete,
            other => panic!("{other:?}"),
        };
        assert!(matches!(delete("delete web").name, Named::Set(set) if set.as_str() == "web"));
        assert!(matches!(delete("delete web.v2").name, Named::Version(version) if version.number == 2));
        check_refused(
            "delete we_b.v2",
            ErrorKind::ValueValidation,
            "cannot be the name of a set",
        );
    }

    #[test]
    fn waiting_can_be_switched() {
        for (line, expect) in [
            ("delete web", true),
            ("delete web --wait", true),
            ("delete web --wait=false", false),
        ] {
            let Command::Delete(delete) = parse(line).unwrap().command else {
                panic!("{line:?} is a delete");
            };
            assert_eq!(delete.wait, expect, "{line}");
        }
        assert_eq!(
            apply("apply web -f x --wait --timeout 90s").how.wait.timeout,
            Duration::from_secs(90)
        );
        check_refused(
            "apply web -f x --timeout 90s",
            ErrorKind::MissingRequiredArgument,
            "--wait",
        );
        check_refused("apply web -f x --wait --timeout 90", ErrorKind::ValueValidation, "90s");
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        check_refused("", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, "");
        check_refused("status -o xml", ErrorKind::InvalidValue, "");
        check_refused("status -q -v", ErrorKind::ArgumentConflict, "");
        check_refused("apply web -f x --concurrency 0", ErrorKind::ValueValidation, "");
        check_refused("apply web -f x --max-qps -1", ErrorKind::UnknownArgument, "");
        check_refused("aply web -f x", ErrorKind::InvalidSubcommand, "apply");
        check_refused("status --token x --token-file y", ErrorKind::UnknownArgument, "");
    }

    #[test]
    fn a_token_is_not_shown() {
        let args = parse("status --token hunter2").unwrap();
        assert!(!format!("{args:?}").contains("hunter2"));
    }

    #[test]
    fn the_help_teaches() {
        let help = Args::command().render_long_help().to_string();
        for word in ["Examples:", "Exit codes:", "3  ", "130  ", "prune", "helm template"] {
            assert!(help.contains(word), "{word}");
        }
        for command in Args::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            let name = command.get_name();
            let is_small = ["init", "completion", "version"].contains(&name);
            assert!(is_small || help.contains("Examples:"), "{name}");
        }
    }

    #[test]
    fn what_the_help_says_at_length_fits_on_a_narrow_terminal() {
        let texts = [
            text::EXAMPLES,
            text::APPLY,
            text::PLAN,
            text::DELETE,
            text::HISTORY,
            text::ROLLBACK,
            text::STATUS,
            text::COMPLETION,
        ];
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
    }
}
