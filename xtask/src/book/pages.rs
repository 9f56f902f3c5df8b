//! Reads Markdown pages: their links, and the anchors that links may name.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::cargo::root;

/// The file that mdbook reads the table of contents from.
pub(super) const SUMMARY: &str = "SUMMARY.md";

/// A page, as readers and links see it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// The targets of links and pictures, in their order.
    pub(super) links: Vec<String>,
    /// The anchors of headings.
    pub(super) anchors: HashSet<String>,
}

impl Page {
    /// Reads a page. Code is text: what looks like a link there is none.
    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let mut times = HashMap::new();
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    // A second heading of the same words has a number.
                    let before: &mut usize = times.entry(anchor.clone()).or_default();
                    page.anchors.insert(match *before {
                        0 => anchor,
                        number => format!("{anchor}-{number}"),
                    });
                    *before += 1;
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor that mdbook and code hosts make of the words of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|char| match char {
        char if char.is_whitespace() => Some('-'),
        char if char.is_alphanumeric() || char == '-' || char == '_' => Some(char.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// The folder of the book.
pub(super) fn docs() -> PathBuf {
    root().join("docs")
}

/// The Markdown files below a folder, sorted.
pub(super) fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut pages, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

#[test]
fn links_are_those_of_prose_and_anchors_are_made_of_headings() {
    let page = Page::parse(concat!(
        "## 2. Ask for `a_b`: a [way](x.md#y)\n\n![picture](i.svg) `[c](d)` [kept\nlong](z.md)\n\n",
        "```sh\n[e](f)\n## no heading\n```\n\n| a |\n|---|\n| [g](h) |\n\n## Twice\n\n## Twice\n",
    ));
    assert_eq!(page.links, ["x.md#y", "i.svg", "z.md", "h"]);
    let mut anchors: Vec<_> = page.anchors.iter().map(String::as_str).collect();
    anchors.sort_unstable();
    assert_eq!(anchors, ["2-ask-for-a_b-a-way", "twice", "twice-1"]);
}
