//! Links between the pages lead somewhere.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// README and all pages of `docs` and of the examples.
fn pages() -> Result<Vec<PathBuf>> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs"), root().join("deploy/examples")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    Ok(pages)
}

/// Targets of links in a text, outside of fenced blocks.
fn links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let rests = prose.flat_map(|prose| prose.split("](").skip(1));
    rests.filter_map(|rest| rest.split(')').next()).collect()
}

/// The anchor of a heading, as it is made of its words.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter_map(|char| match char {
            ' ' => Some('-'),
            char if char.is_alphanumeric() || char == '-' || char == '_' => Some(char.to_ascii_lowercase()),
            _ => None,
        });
    kept.collect()
}

#[test]
fn links_lead_somewhere() -> Result<()> {
    for page in pages()? {
        let text = fs::read_to_string(&page)?;
        let folder = page.parent().context("a folder")?;
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                folder.join(file)
            };
            ensure!(target.exists(), "{}: {link} leads nowhere", page.display());
            let found = || -> Result<bool> {
                let text = fs::read_to_string(&target)?;
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                Ok(headings.any(|heading| anchor(heading) == section))
            };
            ensure!(
                section.is_empty() || found()?,
                "{}: {link} has no such heading",
                page.display()
            );
        }
    }
    Ok(())
}

#[test]
fn anchors_are_made_of_headings() {
    assert_eq!(anchor("## 2. Ask for a binding"), "2-ask-for-a-binding");
    assert_eq!(links("a [b](c#d) `x`\n```sh\n[e](f)\n```\n[g](h)"), ["c#d", "h"]);
}
