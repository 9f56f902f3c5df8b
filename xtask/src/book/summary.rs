//! The table of contents names every page of the book once, and nothing else.

use std::{collections::BTreeSet, fs};

use anyhow::{Result, ensure};

use super::pages::{Page, SUMMARY, below, docs};

#[test]
fn summary_names_every_page_once() -> Result<()> {
    let folder = docs();
    let named = Page::parse(&fs::read_to_string(folder.join(SUMMARY))?).links;
    let unique: BTreeSet<_> = named.iter().map(|link| folder.join(link)).collect();
    ensure!(unique.len() == named.len(), "docs/{SUMMARY} names a page twice");
    let there: BTreeSet<_> = below(&folder)?
        .into_iter()
        .filter(|path| !path.ends_with(SUMMARY))
        .collect();
    let (missing, unknown): (Vec<_>, Vec<_>) =
        (there.difference(&unique).collect(), unique.difference(&there).collect());
    ensure!(
        missing.is_empty() && unknown.is_empty(),
        "docs/{SUMMARY}: add {missing:?}, remove {unknown:?}"
    );
    Ok(())
}
