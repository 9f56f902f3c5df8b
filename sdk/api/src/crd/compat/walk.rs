//! The position in two schemas that are compared, and the first incompatible change.

use super::Incompatible;

#[derive(Default)]
pub(super) struct Walk {
    version: Option<String>,
    path: Vec<String>,
    first: Option<Incompatible>,
    more: usize,
}

// === impl Walk ===

impl Walk {
    /// Compares one version.
    pub(super) fn version(&mut self, name: &str, look: impl FnOnce(&mut Self)) {
        self.version = Some(name.to_owned());
        look(self);
        self.version = None;
    }

    /// Compares one level below: a field, `*` for fields of any name, `[]` for the items of a list.
    pub(super) fn at(&mut self, step: &str, look: impl FnOnce(&mut Self)) {
        self.path.push(step.to_owned());
        look(self);
        self.path.pop();
    }

    /// Records an incompatible change at this position.
    pub(super) fn found(&mut self, change: impl Into<String>) {
        if self.first.is_some() {
            self.more += 1;
            return;
        }
        self.first = Some(Incompatible {
            version: self.version.clone(),
            path: self.path.join(".").replace(".[]", "[]"),
            change: change.into(),
            more: 0,
        });
    }

    pub(super) fn verdict(self) -> Result<(), Incompatible> {
        match self.first {
            None => Ok(()),
            Some(first) => Err(Incompatible {
                more: self.more,
                ..first
            }),
        }
    }
}
