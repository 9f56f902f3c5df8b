//! Completion as kubectl asks a plugin for it: what may stand at the end of a command line.
//!
//! kubectl runs `kubectl_complete-bind` with the words after `kubectl bind`, of which the last is to be completed. The answer has a
//! candidate a line, with a description after a tab, and ends with a line `:DIRECTIVE`, a sum of Cobra's directives. Nothing here
//! does I/O, except that a flag for a file shows the files that are there.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    sync::Arc,
};

use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate, SubcommandCandidates, complete};

use super::{Args, ClusterArgs, ProviderArgs};

/// The word before those of kubectl. No template has such a name.
const COMPLETE: &str = "__complete";
/// A word that is no command, and no value of anything.
const PROBE: &str = "_";
/// Cobra's directive to write no space after the candidate.
const NO_SPACE: u8 = 2;
/// Cobra's directive not to offer the files of this folder.
const NO_FILES: u8 = 4;

/// Names that depend on where the user is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    Templates,
    Collections,
    /// Templates and collections.
    Offers,
    Bindings,
    /// Bindings and bundles.
    Owners,
    Contracts,
    /// Namespaces of this cluster.
    Namespaces,
    /// Servers that the user has logged in to.
    Servers,
    /// Issuers that the user has logged in at.
    Issuers,
    /// Contexts of the kubeconfig.
    Contexts,
}

/// The flags that say where names are found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) cluster: ClusterArgs,
    pub(crate) provider: ProviderArgs,
}

/// The words to complete, if the command line asks for a completion.
pub(crate) fn asked(words: &[OsString]) -> Option<Vec<OsString>> {
    let asks = words.get(1).is_some_and(|word| word == COMPLETE);
    asks.then(|| words.iter().skip(2).cloned().collect())
}

/// Completes the last of these words. `lookup` finds names, and is asked only for those that may stand there.
pub(crate) fn answer(
    words: Vec<OsString>,
    lookup: impl Fn(Names, &Place) -> Vec<String> + Send + Sync + 'static,
) -> String {
    let words = written_out(words);
    let last = words.len() - 1;
    let word = words[last].to_string_lossy().into_owned();
    let place = Place::of(&words[..last]);
    let mut command = with_names(&word, move |names| lookup(names, &place));
    let candidates = complete(&mut command, words, last, env::current_dir().ok().as_deref());
    rendered(&word, &candidates.unwrap_or_default())
}

/// The whole command line: with the program, at least one more word, and the command that a short form leaves out.
fn written_out(typed: Vec<OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = std::iter::once("kubectl-bind".into()).chain(typed).collect();
    if words.len() == 1 {
        words.push(OsString::new());
    }
    let last = words.len() - 1;
    let probed = matches(words[..last].iter().map(OsString::as_os_str).chain([OsStr::new(PROBE)]));
    if let Some((name, rest)) = probed.as_ref().and_then(ArgMatches::subcommand)
        && name != PROBE
        && Args::command().find_subcommand(name).is_none()
    {
        let behind = rest.get_many::<OsString>("").map_or(0, Iterator::count);
        words.insert(last.saturating_sub(behind), "apiservice".into());
    }
    words
}

/// What the words mean as far as they mean something.
fn matches<'a>(words: impl Iterator<Item = &'a OsStr>) -> Option<ArgMatches> {
    Args::command().ignore_errors(true).try_get_matches_from(words).ok()
}

/// The command line with what finds its names, for this word. Before a flag nothing else can stand.
fn with_names(word: &str, lookup: impl Fn(Names) -> Vec<String> + Send + Sync + 'static) -> Command {
    let lookup = Arc::new(lookup);
    let candidates = move |names: Names| {
        let lookup = Arc::clone(&lookup);
        move || {
            lookup(names)
                .into_iter()
                .map(CompletionCandidate::new)
                .collect::<Vec<_>>()
        }
    };
    let (is_flag, has_value) = (word.starts_with('-'), word.contains('='));
    let named = |arg: Arg, names: Names| {
        if is_flag && (!has_value || arg.is_positional()) {
            return arg;
        }
        arg.add(ArgValueCandidates::new(candidates(names)))
    };
    let command = with_named(Args::command(), &[], &named);
    if is_flag {
        return command;
    }
    let commands: Vec<_> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let offers = candidates(Names::Offers);
    // A name of a command is the command.
    let offers = move || {
        let mut offers = offers();
        offers.retain(|offer| !commands.iter().any(|name| offer.get_value() == name.as_str()));
        offers
    };
    command.add(SubcommandCandidates::new(offers))
}

/// Changes each argument of a command and its subcommands that is a name. `path` leads to the command.
fn with_named(command: Command, path: &[String], change: &dyn Fn(Arg, Names) -> Arg) -> Command {
    let command = command.mut_args(|arg| match names(path, arg.get_id().as_str()) {
        Some(names) => change(arg, names),
        None => arg,
    });
    command.mut_subcommands(|sub| {
        let path = [path, &[sub.get_name().to_owned()]].concat();
        with_named(sub, &path, change)
    })
}

/// What an argument is the name of.
fn names(path: &[String], argument: &str) -> Option<Names> {
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    match (path.as_slice(), argument) {
        (["apiservice"], "template") => Some(Names::Offers),
        (_, "template") | (["templates"], "name") => Some(Names::Templates),
        (_, "collection") | (["collections"], "name") => Some(Names::Collections),
        (_, "binding") => Some(Names::Bindings),
        (["status" | "renew" | "revoke" | "share"], "name") => Some(Names::Owners),
        (_, "contract") => Some(Names::Contracts),
        (_, "namespace" | "konnector_namespace") => Some(Names::Namespaces),
        (_, "url" | "server") => Some(Names::Servers),
        (_, "issuer") => Some(Names::Issuers),
        (_, "context" | "provider_context") | (["dev", ..], "provider" | "consumer") => Some(Names::Contexts),
        _ => None,
    }
}

/// The candidates in the protocol. Flags are shown once the word begins with a dash.
fn rendered(word: &str, candidates: &[CompletionCandidate]) -> String {
    // After `--flag=`, shells complete the value alone.
    let flag = word.find('=').filter(|_| word.starts_with('-')).map(|at| &word[..=at]);
    let (mut text, mut directive) = (String::new(), NO_FILES);
    for candidate in candidates {
        let Some(value) = candidate.get_value().to_str() else {
            continue;
        };
        let value = flag.and_then(|flag| value.strip_prefix(flag)).unwrap_or(value);
        let is_flag = value.starts_with('-') && !word.starts_with('-');
        // Names come from others, and a line is one candidate.
        if value.is_empty() || is_flag || value.contains(char::is_control) {
            continue;
        }
        if value.ends_with('/') {
            directive |= NO_SPACE;
        }
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = match help.lines().next() {
            Some(help) => writeln!(text, "{value}\t{help}"),
            None => writeln!(text, "{value}"),
        };
    }
    text + &format!(":{directive}\n")
}

impl Place {
    fn of(words: &[OsString]) -> Self {
        let Some(matches) = matches(words.iter().map(OsString::as_os_str)) else {
            return Self::default();
        };
        Self {
            cluster: ClusterArgs::from_arg_matches(&matches).unwrap_or_default(),
            provider: ProviderArgs::from_arg_matches(&matches).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
