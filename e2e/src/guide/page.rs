//! Reads the fenced blocks of a page.

use anyhow::{Context as _, Result, bail, ensure};

/// A page of documentation.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) blocks: Vec<Block>,
}

/// A fenced block that the reader of the page runs, writes or compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Commands to run.
    Commands { line: usize, text: String },
    /// A file to write.
    File { name: String, text: String },
    /// The expected output of the block before it.
    Output { line: usize, of: usize, text: String },
}

impl Page {
    /// Reads a page. Fails on blocks of any other kind, which would be neither run nor checked.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut page = Self::default();
        let mut lines = text.lines().zip(1..);
        while let Some((opening, line)) = lines.next() {
            let Some(kind) = opening.trim_start().strip_prefix("```") else {
                continue;
            };
            let indent = opening.len() - opening.trim_start().len();
            let mut text = String::new();
            loop {
                let (next, _) = lines
                    .next()
                    .with_context(|| format!("line {line}: a block that does not end"))?;
                if next.trim_start().starts_with("```") {
                    break;
                }
                text.push_str(next.get(indent..).unwrap_or_default());
                text.push('\n');
            }
            page.add(kind, line, text)
                .with_context(|| format!("the block in line {line}"))?;
        }
        ensure!(
            page.blocks.iter().any(|block| matches!(block, Block::Commands { .. })),
            "no commands"
        );
        Ok(page)
    }

    /// Whether a line of the commands begins with this program.
    pub(super) fn uses(&self, program: &str) -> bool {
        self.blocks.iter().any(|block| match block {
            Block::Commands { text, .. } => text.lines().any(|line| line.split_whitespace().next() == Some(program)),
            Block::File { .. } | Block::Output { .. } => false,
        })
    }

    fn add(&mut self, kind: &str, line: usize, text: String) -> Result<()> {
        match kind {
            "sh" => self.blocks.push(Block::Commands { line, text }),
            "yaml" => {
                let name = file_name(&text).context("begins with no `# NAME.yaml`")?;
                self.blocks.push(Block::File { name, text });
            }
            "console" => {
                let of = self.blocks.len().checked_sub(1).context("no commands before it")?;
                ensure!(
                    matches!(self.blocks[of], Block::Commands { .. }),
                    "is no output of commands"
                );
                self.blocks.push(Block::Output { line, of, text });
            }
            "text" => {}
            other => bail!("of kind {other:?} is neither run nor checked"),
        }
        Ok(())
    }
}

/// The section of a page below a heading of the second level, without its heading.
pub fn section<'a>(text: &'a str, heading: &str) -> Result<&'a str> {
    let (_, rest) = text
        .split_once(&format!("\n## {heading}\n"))
        .with_context(|| format!("there is no section {heading:?}"))?;
    Ok(rest.split_once("\n## ").map_or(rest, |(section, _)| section))
}

/// The name in the first line of a file, which is one in the folder itself.
fn file_name(text: &str) -> Option<String> {
    let name = text.lines().next()?.strip_prefix("# ")?;
    let stem = name.strip_suffix(".yaml")?;
    let is_plain = stem.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
    is_plain.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_what_they_mean() {
        let page = Page::parse(concat!(
            "# A page\n\n1. In a list:\n\n   ```sh\n   echo a\n     b\n\n   ```\n",
            "```console\na b\n```\n\n```text\nA -> B\n```\n```yaml\n# b.yaml\nkind: B\n```\n",
        ))
        .unwrap();
        let commands = Block::Commands {
            line: 5,
            text: "echo a\n  b\n\n".to_owned(),
        };
        let output = Block::Output {
            line: 10,
            of: 0,
            text: "a b\n".to_owned(),
        };
        let file = Block::File {
            name: "b.yaml".to_owned(),
            text: "# b.yaml\nkind: B\n".to_owned(),
        };
        assert_eq!(page.blocks, [commands, output, file]);
    }

    #[test]
    fn a_section_ends_where_the_next_one_begins() {
        let page = "# A\n\n## One\n\n1\n\n### Part\n\n2\n\n## Two\n3\n";
        assert_eq!(section(page, "One").unwrap(), "\n1\n\n### Part\n\n2\n");
        assert_eq!(section(page, "Two").unwrap(), "3\n");
        assert!(section(page, "Part").is_err());
    }

    #[track_caller]
    fn check(text: &str, says: &str) {
        let refused = format!("{:#}", Page::parse(text).unwrap_err());
        assert!(refused.contains(says), "{refused}");
    }

    #[test]
    fn nothing_is_shown_that_is_not_run() {
        check("words\n", "no commands");
        check("```sh\necho\n", "line 1: a block that does not end");
        check("```sh ignore\necho\n```\n", "neither run nor checked");
        check("```json\n{}\n```\n", "neither run nor checked");
        check("```\nwhat\n```\n", "neither run nor checked");
        check("```console\na\n```\n", "no commands before it");
        check(
            "```sh\ntrue\n```\n```console\na\n```\n```console\nb\n```\n",
            "is no output of commands",
        );
        check("```yaml\nkind: A\n```\n", "begins with no `# NAME.yaml`");
        check("```yaml\n# ../a.yaml\n```\n", "begins with no `# NAME.yaml`");
    }
}
