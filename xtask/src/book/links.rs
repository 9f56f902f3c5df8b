//! Links between pages lead somewhere: to a file that exists, and to a heading of it.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::pages::{Page, below, docs};
use crate::cargo::root;

/// Returns what is wrong with the links of a page: one line for each.
fn broken(path: &Path, pages: &mut HashMap<PathBuf, Page>) -> Result<Vec<String>> {
    let folder = path.parent().context("a page is in a folder")?;
    let mut wrong = Vec::new();
    for link in read(path, pages)?.links.clone() {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let target = if file.is_empty() {
            path.to_owned()
        } else {
            folder.join(file)
        };
        if !target.exists() {
            wrong.push(format!("{}: {link} leads nowhere", path.display()));
        } else if !anchor.is_empty() && !read(&target, pages)?.anchors.contains(anchor) {
            wrong.push(format!("{}: {link}: there is no such heading", path.display()));
        }
    }
    Ok(wrong)
}

/// Reads a page once.
fn read<'a>(path: &Path, pages: &'a mut HashMap<PathBuf, Page>) -> Result<&'a Page> {
    if !pages.contains_key(path) {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        pages.insert(path.to_owned(), Page::parse(&text));
    }
    pages.get(path).context("it was read")
}

#[test]
fn links_of_all_pages_lead_somewhere() -> Result<()> {
    let mut all = below(&docs())?;
    all.extend(below(&root().join("deploy/examples"))?);
    let top = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
    all.extend(top.map(|name| root().join(name)));
    let mut pages = HashMap::new();
    let mut wrong = Vec::new();
    for path in &all {
        wrong.extend(broken(path, &mut pages)?);
    }
    ensure!(all.len() > 40, "only {} pages", all.len());
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let folder = std::env::temp_dir().join(format!("bindery-links-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let page = folder.join("a.md");
    fs::write(
        &page,
        "# A\n\n[b](b.md) [c](a.md#c) [a](#a) [web](https://example.com/x.md)\n",
    )
    .unwrap();
    let found = broken(&page, &mut HashMap::new()).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let ends: Vec<_> = found
        .iter()
        .filter_map(|line| line.split_once("a.md: "))
        .map(|(_, end)| end)
        .collect();
    assert_eq!(ends, ["b.md leads nowhere", "a.md#c: there is no such heading"]);
}
