//! Reads and writes files with saved plans. They contain all manifests, so only their owner may read them.

use std::{fs, io::Write as _, path::Path};

use bindery_synk::{Failure as Refused, plan::saved::Saved};
use tempfile::NamedTempFile;

use super::errors::Failure;

/// Reads a saved plan.
pub(super) fn read(path: &Path) -> Result<Saved, Failure> {
    let text = fs::read_to_string(path).map_err(failed("read", path))?;
    Saved::parse(&text).map_err(|problem| {
        let (what, problem) = (format!("the plan {}", path.display()), problem.to_owned());
        Refused::Unreadable { what, problem }.into()
    })
}

/// Saves a plan, completely or not at all.
pub(super) fn write(path: &Path, saved: &Saved) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The file is created with a mode that lets only its owner read it.
    let mut file = NamedTempFile::new_in(folder).map_err(failed("write", path))?;
    file.write_all(saved.text().as_bytes()).map_err(failed("write", path))?;
    file.persist(path).map_err(|error| failed("write", path)(error.error))?;
    Ok(())
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |source| Failure::File {
        what,
        path: path.to_owned(),
        source,
    }
}
