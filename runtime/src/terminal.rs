//! Output and input of commands: tables, ages, durations, YAML, errors and exit codes.

mod exit;

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use jiff::Timestamp;
use serde::Serialize;

pub use exit::{Exit, error_text};

use crate::telemetry::{self, LogArgs, LogFormat};

/// Formats the first `columns` columns of a table as kubectl does.
pub fn table(headings: &[&str], rows: impl Iterator<Item = Vec<String>>, columns: usize) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headings.iter().take(columns));
    for row in rows {
        table.add_row(row.into_iter().take(columns).map(|cell| printable(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    format!("{}\n", table.trim_fmt())
}

/// Formats how long ago a time was, as kubectl does: `5s`, `3m`, `2h`, `4d`; `<unknown>` without a time.
pub fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || "<unknown>".to_owned(),
        |since| span(now.as_second() - since.as_second()),
    )
}

/// Formats seconds in the largest unit of which there are at least two; negative ones as `0s`.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Parses a duration such as `90s` or `1m30s`; zero and negative ones are refused.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "write a duration such as 90s or 1m30s".to_owned())?;
    match Duration::try_from(parsed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be longer than zero".to_owned()),
    }
}

/// Replaces characters by spaces that could rewrite the terminal or turn around what it shows: names and messages come from others.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|char| if is_deceptive(char) { ' ' } else { char })
        .collect()
}

/// Whether a character is a control character, or changes the direction or the lines of the text around it.
fn is_deceptive(char: char) -> bool {
    char.is_control() || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Replaces characters that could rewrite the terminal by spaces, but for line feeds and tabs.
pub fn printable_text(text: &str) -> Cow<'_, str> {
    let is_harmful = |char: char| is_deceptive(char) && !matches!(char, '\n' | '\t');
    if !text.contains(is_harmful) {
        return text.into();
    }
    text.chars()
        .map(|char| if is_harmful(char) { ' ' } else { char })
        .collect()
}

/// Serializes a JSON document for people, without a line feed at its end. Characters that could rewrite a terminal are escaped.
pub fn json(document: &impl Serialize) -> Result<String, String> {
    let text = serde_json::to_string_pretty(document).map_err(|error| error.to_string())?;
    Ok(escaped_json(text))
}

/// Escapes the characters of a JSON text that could rewrite a terminal, which stand in strings alone.
fn escaped_json(text: String) -> String {
    let is_harmful = |char: char| is_deceptive(char) && char != '\n';
    if !text.contains(is_harmful) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_harmful(char) {
            // All of them are in the first plane of Unicode. Writing to a String cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(char));
        } else {
            escaped.push(char);
        }
    }
    escaped
}

/// Replaces control characters in each line of a text by spaces.
pub fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Prepares the process of a command: its TLS provider, and a log on standard error if `log` has a filter for it.
pub fn set_up(log: Option<&str>) -> Result<(), tracing_subscriber::filter::ParseError> {
    // Only this process itself may have chosen another one before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let Some(log) = log else { return Ok(()) };
    telemetry::init(&LogArgs {
        log: log.to_owned(),
        log_format: LogFormat::Text,
    })
}

/// Serializes a YAML document, with a line feed at its end. One with characters that could rewrite a terminal is written as JSON, which
/// is YAML too, and escapes them.
pub fn yaml(document: &impl Serialize) -> Result<String, String> {
    // A detour through JSON, so that quantities and times look as they do there.
    let value = serde_json::to_value(document).map_err(|error| error.to_string())?;
    let mut text = serde_saphyr::to_string(&value).map_err(|error| error.to_string())?;
    if text.contains(|char| is_deceptive(char) && char != '\n') {
        text = json(&value)?;
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (seconds, expect) in [(-5, "0s"), (119, "119s"), (120, "2m"), (7_200, "2h"), (172_800, "2d")] {
            assert_eq!(span(seconds), expect);
        }
    }

    #[test]
    fn durations_have_a_unit_and_are_not_empty() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for nonsense in ["", "90", "0s", "-5s", "soon"] {
            assert!(duration(nonsense).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn no_document_and_no_text_rewrites_the_terminal() {
        let hostile = "a\u{1b}[2J\u{9b}1m\u{202e}b\r\n";
        let document = serde_json::json!({"name": hostile, "plain": "a\nb"});
        for text in [json(&document).unwrap(), yaml(&document).unwrap()] {
            assert!(!text.contains(|char| is_deceptive(char) && char != '\n'), "{text:?}");
            let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(read, document, "it says the same");
        }
        assert_eq!(printable_text("a\tb\n"), "a\tb\n");
        assert_eq!(printable_text(hostile), "a [2J 1m b \n");
        assert_eq!(yaml(&serde_json::json!({"a": "b"})).unwrap(), "a: b\n");
    }

    #[test]
    fn a_cell_cannot_rewrite_the_terminal() {
        let rows = [vec!["a\u{1b}[2Jb".to_owned(), "c".to_owned()]];
        let expect = "ONE      TWO\na [2Jb   c\n";
        assert_eq!(table(&["ONE", "TWO", "THREE"], rows.into_iter(), 2), expect);
    }
}
