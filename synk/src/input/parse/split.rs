//! Splits a stream into documents, so that an error in one does not hide errors in others.

/// A document with the comments around it, or several JSON documents.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk<'a> {
    pub(super) text: &'a str,
    /// The line on which the chunk begins.
    pub(super) line: u64,
}

/// Splits a text at `---` and `...` at the beginning of a line. No line inside a document may begin so.
pub(super) fn chunks(text: &str) -> Vec<Chunk<'_>> {
    let mut chunks = Vec::new();
    let mut begin = Begin::at(text, 0, 1);
    let mut offset = 0;
    for (line, number) in text.split_inclusive('\n').zip(1..) {
        let end = offset + line.len();
        let bare = line.trim_start_matches(BOM);
        if is_marker(bare, "---") {
            if !(begin.is_blank && begin.has_directives) {
                chunks.push(begin.until(text, offset));
                begin = Begin::at(text, offset, number);
            }
            begin.is_blank = false;
        } else if is_marker(bare, "...") {
            chunks.push(begin.until(text, offset));
            begin = Begin::at(text, end, number + 1);
        } else if begin.is_blank {
            begin.see(bare);
        }
        offset = end;
    }
    chunks.push(begin.until(text, offset));
    chunks.retain(|chunk| !chunk.text.is_empty());
    chunks
}

const BOM: char = '\u{feff}';

struct Begin {
    offset: usize,
    line: u64,
    /// Nothing but comments and directives up to now.
    is_blank: bool,
    /// The `---` that follows belongs to the same document.
    has_directives: bool,
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

// === impl Begin ===

impl Begin {
    fn at(text: &str, offset: usize, line: u64) -> Self {
        let rest = &text[offset..];
        Self {
            offset: offset + (rest.len() - rest.trim_start_matches(BOM).len()),
            line,
            is_blank: true,
            has_directives: false,
        }
    }

    fn see(&mut self, line: &str) {
        if line.starts_with('%') {
            self.has_directives = true;
        } else if !is_blank(line) {
            self.is_blank = false;
        }
    }

    fn until<'a>(&self, text: &'a str, end: usize) -> Chunk<'a> {
        Chunk {
            text: text.get(self.offset..end).unwrap_or_default(),
            line: self.line,
        }
    }
}

// === impl Chunk ===

impl<'a> Chunk<'a> {
    pub(super) fn last_line(&self) -> u64 {
        self.line + (self.text.lines().count() as u64).saturating_sub(1)
    }

    /// Returns the text from the first JSON character on and its line, if the chunk looks like JSON.
    pub(super) fn json(&self) -> Option<(&'a str, u64)> {
        let mut text = self.text;
        if is_marker(text, "---") {
            text = &text[3..];
        }
        let mut number = self.line;
        for line in text.split_inclusive('\n') {
            if !is_blank(line) {
                break;
            }
            text = &text[line.len()..];
            number += u64::from(line.ends_with('\n'));
        }
        text.trim_start().starts_with('{').then_some((text, number))
    }
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[(u64, &str)]) {
        let chunks: Vec<_> = chunks(text).iter().map(|chunk| (chunk.line, chunk.text)).collect();
        assert_eq!(chunks, expect);
    }

    #[test]
    fn the_last_line_is_one_of_the_chunk() {
        let lines: Vec<_> = chunks("a\nb\n---\nc\n---").iter().map(Chunk::last_line).collect();
        assert_eq!(lines, [2, 4, 5]);
    }

    #[test]
    fn markers_part_documents() {
        check("", &[]);
        check("a", &[(1, "a")]);
        check("a\n---\nb\n", &[(1, "a\n"), (2, "---\nb\n")]);
        check("---\r\na\r\n--- # c\r\nb", &[(1, "---\r\na\r\n"), (3, "--- # c\r\nb")]);
        check("a\n...\n# c\n---\nb", &[(1, "a\n"), (3, "# c\n"), (4, "---\nb")]);
        check("a: |\n ---\n----\n", &[(1, "a: |\n ---\n----\n")]);
    }

    #[test]
    fn a_directive_stays_with_its_document() {
        check(
            "# c\n%YAML 1.2\n---\na\n---\nb",
            &[(1, "# c\n%YAML 1.2\n---\na\n"), (5, "---\nb")],
        );
        check("a\n%b\n---\nc", &[(1, "a\n%b\n"), (3, "---\nc")]);
    }

    #[test]
    fn byte_order_marks_are_left_out() {
        check("\u{feff}a\n\u{feff}---\nb", &[(1, "a\n"), (2, "---\nb")]);
        check("\u{feff}", &[]);
    }

    #[test]
    fn json_is_known_by_its_brace() {
        let json = |text: &'static str| chunks(text)[0].json();
        assert_eq!(json("--- {}"), Some((" {}", 1)));
        assert_eq!(json("---\n# c\n\n {}\n"), Some((" {}\n", 4)));
        assert_eq!(json("a: {}"), None);
        assert_eq!(json("---"), None);
        assert_eq!(json("# {}"), None);
    }
}
