//! The reference of the flags, made of what the programs print for `--help`.

use std::{collections::HashSet, fmt::Write as _, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::process::cargo_bin_path;

/// The path of the page from the folder of the project.
pub const PAGE: &str = "docs/reference/flags.md";

/// The programs, as files, with the words by which users call them.
const PROGRAMS: [(&str, &str); 4] = [
    ("kubectl-bind", "kubectl bind"),
    ("bindery-server", "bindery-server"),
    ("bindery-konnector", "bindery-konnector"),
    ("synk", "synk"),
];

const HEAD: &str = "\
# Flags

<!-- Written by `cargo xtask gen` from what the programs print for --help. -->

What each program and each of its commands prints for `--help`. Flags that all commands of a program have stand with the program, and
are left out with its commands. [kubectl bind](kubectl-bind.md) and [synk](synk.md) explain the commands; [Values of the
charts](charts.md) says which values of Helm set which flags.
";

/// Makes the page. `help` returns what a program prints for `--help` after these words.
pub fn page(help: impl Fn(&str, &[&str]) -> Result<String>) -> Result<String> {
    let mut page = HEAD.to_owned();
    for (program, name) in PROGRAMS {
        let text = help(program, &[])?;
        let common: HashSet<_> = sections(&text)
            .into_iter()
            .filter(|section| is_flags(section))
            .collect();
        write!(page, "\n## {name}\n\n```text\n{text}```\n")?;
        add_commands(&mut page, &help, (program, name), &[], &text, &common)?;
    }
    Ok(page)
}

/// Adds the commands that a help text lists, and the commands below these.
fn add_commands(
    page: &mut String,
    help: &impl Fn(&str, &[&str]) -> Result<String>,
    (program, name): (&str, &str),
    words: &[&str],
    text: &str,
    common: &HashSet<String>,
) -> Result<()> {
    for command in commands(text) {
        let words = [words, &[command]].concat();
        let text = help(program, &words)?;
        let own: Vec<_> = sections(&text)
            .into_iter()
            .filter(|section| !common.contains(section))
            .collect();
        write!(
            page,
            "\n### {name} {}\n\n```text\n{}\n```\n",
            words.join(" "),
            own.join("\n\n")
        )?;
        add_commands(page, help, (program, name), &words, &text, common)?;
    }
    Ok(())
}

/// Runs a program of the workspace with `--help`, without any variable of the environment, and returns what it prints.
pub fn help(program: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new(cargo_bin_path(program)?);
    let output = command.args(words).arg("--help").env_clear().output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {} --help: {}",
        words.join(" "),
        output.status
    );
    let lines = String::from_utf8(output.stdout)?;
    Ok(lines
        .lines()
        .fold(String::new(), |text, line| text + line.trim_end() + "\n"))
}

/// The parts of a help text: each begins with a line that is not indented, after an empty line.
fn sections(text: &str) -> Vec<String> {
    let mut sections: Vec<String> = Vec::new();
    let mut is_after_empty = true;
    for line in text.lines() {
        match sections.last_mut() {
            Some(section) if line.is_empty() || line.starts_with(' ') || !is_after_empty => {
                section.push('\n');
                section.push_str(line);
            }
            _ => sections.push(line.to_owned()),
        }
        is_after_empty = line.is_empty();
    }
    sections.iter().map(|section| section.trim_end().to_owned()).collect()
}

/// Whether a part lists flags, under a heading.
fn is_flags(section: &str) -> bool {
    let (head, rest) = section.split_once('\n').unwrap_or((section, ""));
    head.ends_with(':') && rest.lines().any(|line| line.trim_start().starts_with('-'))
}

/// The commands that a help text lists.
fn commands(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    let names = lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "\
Does it.

Usage: kubectl bind COMMAND

Commands:
  get   Gets one
        thing
  help  Print this

Options:
  -h, --help  Print help

Display:
  -o, --output <FORMAT>
          Format

";

    #[test]
    fn a_command_has_its_own_flags_and_not_those_of_all() {
        let help = |_: &str, words: &[&str]| {
            Ok(match words {
                [] => ROOT.to_owned(),
                _ => "Gets one\n\nUsage: get\n\nOptions:\n  -x\n\nDisplay:\n  -o, --output <FORMAT>\n          Format\n\nMore words\nand words\n".to_owned(),
            })
        };
        let page = page(help).unwrap();
        assert!(page.contains("\n## kubectl bind\n\n```text\nDoes it.\n"), "{page}");
        let own = "\n### kubectl bind get\n\n```text\nGets one\n\nUsage: get\n\nOptions:\n  -x\n\nMore words\nand words\n```\n";
        assert!(page.contains(own), "{page}");
        assert!(!page.contains("bind help"), "{page}");
    }
}
