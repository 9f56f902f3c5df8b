//! The Rust SDK makes exactly the manifests of the golden files.

use std::{env, fs, path::Path};

use anyhow::{Context as _, Result};
use bindery_contract::golden::{Input, Outcome, render};
use serde::{Deserialize, Serialize};

/// A golden file.
#[derive(Serialize, Deserialize)]
struct Golden {
    name: String,
    shows: String,
    input: Input,
    #[serde(flatten)]
    outcome: Option<Outcome>,
}

#[test]
fn manifests_are_those_of_the_golden_files() -> Result<()> {
    let is_blessed = env::var_os("BINDERY_BLESS").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let mut count = 0;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let mut golden: Golden =
            serde_json::from_slice(&fs::read(&path)?).with_context(|| format!("cannot read {}", path.display()))?;
        assert_eq!(path.file_stem().unwrap(), golden.name.as_str());
        let made = render(&golden.input).with_context(|| golden.name.clone())?;
        if is_blessed {
            golden.outcome = Some(made);
            fs::write(&path, serde_json::to_string_pretty(&golden)? + "\n")?;
        } else {
            assert_eq!(
                golden.outcome.as_ref(),
                Some(&made),
                "{}: {}",
                golden.name,
                golden.shows
            );
        }
        count += 1;
    }
    assert!(count >= 25, "{count} files");
    Ok(())
}
