//! Text of an issuer, made fit for an error message.

use bindery_runtime::terminal::printable;

/// No text of an issuer is shown beyond this length, in characters.
const LENGTH_MAX: usize = 300;

/// A text of an issuer on one line, shortened, and without the secrets that were sent to the issuer, which it could quote.
pub(crate) fn redacted(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "[redacted]");
    }
    let text = printable(&text);
    match text.char_indices().nth(LENGTH_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_can_neither_quote_a_secret_nor_flood_the_terminal() {
        assert_eq!(
            redacted("token hunter2 is void\n", &["hunter2", ""]),
            "token [redacted] is void "
        );
        assert_eq!(redacted(&"ä".repeat(1_000), &[]).chars().count(), LENGTH_MAX + 1);
    }
}
