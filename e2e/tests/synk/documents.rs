//! Rendered charts: streams of YAML that are changed document by document.

use anyhow::{Result, ensure};

/// The documents of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Documents(Vec<String>);

impl Documents {
    pub(crate) fn of(stream: &str) -> Self {
        Self(stream.split("---\n").map(str::to_owned).collect())
    }

    /// The stream.
    pub(crate) fn text(&self) -> String {
        self.0.join("---\n")
    }

    /// With another text in place of one that is there once.
    pub(crate) fn with(&self, from: &str, to: &str) -> Result<Self> {
        let text = self.text();
        let times = text.matches(from).count();
        ensure!(times == 1, "{from:?} is there {times} times");
        Ok(Self::of(&text.replace(from, to)))
    }

    /// Without the one document that holds all of this.
    pub(crate) fn without(&self, parts: &[&str]) -> Result<Self> {
        let goes = |document: &String| parts.iter().all(|part| document.contains(part));
        let (gone, rest): (Vec<_>, Vec<_>) = self.0.clone().into_iter().partition(goes);
        ensure!(gone.len() == 1, "{parts:?} is in {} documents", gone.len());
        Ok(Self(rest))
    }
}
