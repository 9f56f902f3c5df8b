//! The short forms: `kubectl bind TEMPLATE` for `kubectl bind apiservice TEMPLATE`, and `kubectl bind` alone.

use std::ffi::OsString;

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};

use super::{Args, Command};

/// The command that `kubectl bind` alone is short for. No template has such a name.
pub(super) const NEXT: &str = "next_steps";

/// Parses the command line, including the short forms.
pub(crate) fn parse(mut words: Vec<OsString>) -> Result<Args, clap::Error> {
    if words.len() == 1 {
        words.push(NEXT.into());
    }
    let args = Args::try_parse_from(&words)?;
    let Command::Short(rest) = &args.command else {
        return Ok(args);
    };
    refuse_near_miss(rest)?;
    words.insert(words.len() - rest.len(), "apiservice".into());
    Args::try_parse_from(&words)
}

/// Refuses a short form whose template is nearly the name of a command, which is probably a typing error.
fn refuse_near_miss(rest: &[OsString]) -> Result<(), clap::Error> {
    let Some(word) = rest.first().and_then(|word| word.to_str()) else {
        return Ok(());
    };
    let mut command = Args::command();
    let meant = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .chain(["help"])
        .find(|name| is_near(word, name))
        .map(str::to_owned);
    match meant {
        None => Ok(()),
        Some(meant) => Err(command.error(
            ErrorKind::InvalidSubcommand,
            format!(
                "{word:?} is close to the command {meant:?}\n\n  \
                 kubectl bind {meant}\n  kubectl bind apiservice {word}    # if it is a template"
            ),
        )),
    }
}

/// Whether two words differ by at most one letter: added, removed, changed, or swapped with its neighbour.
fn is_near(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let (short, long) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let same = short.iter().zip(&long).take_while(|(a, b)| a == b).count();
    let (short, long) = (&short[same..], &long[same..]);
    match long.len() - short.len() {
        0 => match (short, long) {
            ([], []) => true,
            ([a, b, rest @ ..], [c, d, others @ ..]) if a == d && b == c => rest == others || short[1..] == long[1..],
            _ => short[1..] == long[1..],
        },
        1 => short == &long[1..],
        _ => false,
    }
}

#[cfg(test)]
mod tests;
