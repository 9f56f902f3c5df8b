//! The command line: [`args`] parses, [`commands`] calls the library, [`progress`] reports while it works, and
//! [`render`] formats the [`answer`].

mod answer;
mod args;
mod commands;
mod connection;
mod errors;
mod plan_file;
mod progress;
mod render;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use bindery_runtime::terminal;
use clap::Parser as _;

use self::{
    answer::{Answer, Stop},
    args::{Args, Format},
    errors::{Exit, Failure},
};

/// Runs the command.
pub(crate) fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let (format, result) = match Args::try_parse_from(&words) {
        Ok(args) => (args.display.output, run(args)),
        Err(error) => {
            // If standard output is closed, there is nobody to report to.
            let _ = error.print();
            if !error.use_stderr() {
                return Exit::Done.into();
            }
            let text = error.to_string();
            let message = text
                .trim_start_matches("error: ")
                .split("\n\n")
                .next()
                .unwrap_or_default();
            let failure = Failure::Usage(message.to_owned());
            (asked(&words), Err(failure.into()))
        }
    };
    let said = answer::say(format, &result);
    let mut exit = said.exit;
    if let Err(error) = write_out(&said.out) {
        exit = Failure::Output(error).exit();
    }
    let _ = io::stderr().lock().write_all(said.err.as_bytes());
    exit.into()
}

fn run(args: Args) -> Result<Answer, Stop> {
    let log = match args.display.verbose {
        0 | 1 => None,
        2 => Some("warn,bindery_synk=debug,bindery_runtime=debug"),
        _ => Some("debug,h2=info,hyper_util=info"),
    };
    terminal::set_up(log).map_err(|error| Failure::Setup(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::Setup(error.to_string()))?;
    runtime.block_on(commands::run(args))
}

fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns the output format of a command line that is wrong otherwise, because programs that read documents need one
/// for every failure.
fn asked(words: &[OsString]) -> Format {
    let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
    match (0..words.len()).find_map(|index| value(&words, index)) {
        Some("json") => Format::Json,
        Some("yaml") => Format::Yaml,
        _ => Format::Table,
    }
}

/// Returns the value of `-o`, if `words[index]` is that flag.
fn value<'a>(words: &[&'a str], index: usize) -> Option<&'a str> {
    match words[index] {
        "-o" | "--output" => words.get(index + 1).copied(),
        word => ["--output=", "-o=", "-o"]
            .iter()
            .find_map(|flag| word.strip_prefix(flag)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_found_on_a_wrong_command_line() {
        for (line, expect) in [
            ("apply --nonsense -o json", Format::Json),
            ("apply -ojson", Format::Json),
            ("-o=yaml", Format::Yaml),
            ("--output=json x", Format::Json),
            ("--output yaml x", Format::Yaml),
            ("x -o", Format::Table),
            ("x", Format::Table),
        ] {
            let words: Vec<_> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(asked(&words), expect, "{line}");
        }
    }
}
