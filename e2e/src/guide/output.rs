//! Compares the output of commands with what a page shows.

use anyhow::{Result, bail};

/// Stands for any text within a line, and on a line of its own for any number of lines.
const ANY: &str = "…";

/// Fails unless all lines agree. Runs of spaces count as one: columns are as wide as their longest value.
pub(super) fn compare(shown: &str, printed: &str) -> Result<()> {
    let words = |text: &str| -> Vec<String> { text.trim_end().lines().map(one_spaced).collect() };
    if lines_agree(&words(shown), &words(printed)) {
        return Ok(());
    }
    bail!("is not what was printed:\n{printed}--- but was shown:\n{shown}")
}

fn one_spaced(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn lines_agree(shown: &[String], printed: &[String]) -> bool {
    let Some((line, rest)) = shown.split_first() else {
        return printed.is_empty();
    };
    if line == ANY {
        return (0..=printed.len()).any(|skipped| lines_agree(rest, &printed[skipped..]));
    }
    let printed = printed.split_first();
    printed.is_some_and(|(first, others)| line_agrees(line, first) && lines_agree(rest, others))
}

fn line_agrees(shown: &str, printed: &str) -> bool {
    let Some((before, after)) = shown.split_once(ANY) else {
        return shown == printed;
    };
    let Some(rest) = printed.strip_prefix(before) else {
        return false;
    };
    let mut ends = rest.char_indices().map(|(at, _)| at).chain(std::iter::once(rest.len()));
    ends.any(|at| line_agrees(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shown: &str, printed: &str, expect: bool) {
        assert_eq!(compare(shown, printed).is_ok(), expect, "{shown:?} {printed:?}");
    }

    #[test]
    fn all_lines_agree() {
        check("NAME  READY\nwest  True\n", "NAME   READY\nwest   True\n", true);
        check("west\n", "west\neast\n", false);
        check("west\neast\n", "west\n", false);
        check("", "west\n", false);
        check("", "", true);
    }

    #[test]
    fn what_varies_is_left_out() {
        check("age …s of …\n", "age 5s of all\n", true);
        check("age …s\n", "age 5m\n", false);
        check("a\n…\nz\n", "a\nb\nc\nz\n", true);
        check("a\n…\nz\n", "a\nz\n", true);
        check("a\n…\nz\n", "a\nb\nc\n", false);
        check("…-é…\n", "x-éy\n", true);
        check("…\n", "anything\nat all\n", true);
    }
}
