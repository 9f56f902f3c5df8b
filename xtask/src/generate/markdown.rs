//! Texts of comments and descriptions as Markdown.

/// A text as the cell of a table: one line, without what Markdown would read as the end of a cell or as HTML.
pub(super) fn cell(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    prose(&words.join(" ")).replace('|', "\\|")
}

/// A text as prose. Placeholders such as `<contract>` are no HTML, and stars are no emphasis. Code is left as it is.
pub(super) fn prose(text: &str) -> String {
    let parts: Vec<_> = text.split('`').collect();
    // Without its second backtick, a piece of code is none.
    let is_balanced = parts.len() % 2 == 1;
    let escaped = parts.iter().enumerate().map(|(number, part)| {
        if number % 2 == 1 && is_balanced {
            (*part).to_owned()
        } else {
            part.replace('<', "&lt;").replace('*', "\\*")
        }
    });
    escaped.collect::<Vec<_>>().join("`")
}

#[test]
fn placeholders_are_no_html() {
    assert_eq!(cell("a <b>\n  `<c> | *` | *"), "a &lt;b> `<c> \\| *` \\| \\*");
    assert_eq!(prose("no ` end <x>"), "no ` end &lt;x>");
}
