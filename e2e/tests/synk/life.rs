//! The life of a set: applied, applied again, changed, rolled back, deleted.

use anyhow::{Result, ensure};

use crate::{
    case::{Asks, Case},
    look,
};

/// A set while it lives.
pub(crate) struct Life<'a> {
    case: &'a Case,
    stream: String,
    version: u64,
    /// The paths of all that was ever listed, CRDs apart.
    owned: Vec<String>,
    definitions: Vec<String>,
}

impl<'a> Life<'a> {
    /// The first apply, after which this many objects are there.
    pub(crate) async fn begin(case: &'a Case, stream: &str, objects: usize) -> Result<Self> {
        let mut life = Self {
            case,
            stream: String::new(),
            version: 0,
            owned: Vec::new(),
            definitions: Vec::new(),
        };
        life.apply(stream, objects).await?;
        Ok(life)
    }

    /// An apply of something else, after which this many objects are there; and the same again, which does nothing.
    pub(crate) async fn apply(&mut self, stream: &str, objects: usize) -> Result<()> {
        stream.clone_into(&mut self.stream);
        self.case.apply_text(stream, &[]).await?.done()?;
        self.next(objects).await?;
        self.again().await.map(drop)
    }

    /// The same again: no version, no write, and reads as there are kinds and namespaces.
    pub(crate) async fn again(&self) -> Result<Asks> {
        let since = self.case.now()?;
        self.case.apply_text(&self.stream, &[]).await?.done()?;
        let asks = self.case.asked(since)?;
        let set = self.case.settled(self.version).await?;
        asks.are_few(&set)?;
        Ok(asks)
    }

    /// A rollback, after which this many objects are there.
    pub(crate) async fn roll_back(&mut self, to: u64, objects: usize) -> Result<()> {
        let version = format!("{}.v{to}", self.case.name);
        self.case.run(&["rollback", &version]).await?.done()?;
        self.next(objects).await
    }

    /// The deletion: nothing is left but CRDs.
    pub(crate) async fn end(self) -> Result<()> {
        let ran = self.case.delete().await?.done()?;
        // The garbage collector, which the command relies on, may not know kinds yet that the set brought.
        if self.definitions.is_empty() {
            for path in &self.owned {
                ensure!(self.case.read(path).await?.is_none(), "{path} outlived the command");
            }
        }
        self.case.nothing_left(&self.owned).await?;
        for path in &self.definitions {
            let definition = self.case.read(path).await?;
            let stays = definition.is_some_and(|definition| definition["metadata"]["deletionTimestamp"].is_null());
            ensure!(stays, "{path} is gone");
            let name = path.rsplit('/').next().unwrap_or_default();
            ensure!(
                ran.all().contains(name),
                "it is not said that {name} stays: {}",
                ran.all()
            );
        }
        Ok(())
    }

    async fn next(&mut self, objects: usize) -> Result<()> {
        self.version += 1;
        let there = self.case.whole(self.version).await?;
        ensure!(there == objects, "{there} objects instead of {objects}");
        for (path, is_crd) in look::listed(&self.case.settled(self.version).await?) {
            let paths = if is_crd { &mut self.definitions } else { &mut self.owned };
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        Ok(())
    }
}
