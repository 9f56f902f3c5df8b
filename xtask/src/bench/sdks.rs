//! `cargo xtask bench sdks`: the client of each SDK beside the bare stubs of its language, in one run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Result;
use bindery_e2e::sdks;
use serde::{Deserialize, Serialize};

use super::{program::Program, table::Table};

/// The most that a client may cost, as a multiple of the bare stubs.
const BAR: f64 = 1.2;
/// Time limit for the server to tell its address.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each language is measured; the medians are printed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

/// What a benchmark of a language prints.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Measured {
    calls: Pair,
    watches: Watches,
}

/// Calls per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Pair {
    sdk: f64,
    raw: f64,
}

/// Bytes of memory by which the process grows.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Watches {
    count: u32,
    sdk: f64,
    raw: f64,
}

/// What the server prints when it is ready.
#[derive(Debug, Deserialize)]
struct Server {
    address: String,
    ca: String,
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    languages: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    language: &'static str,
    #[serde(flatten)]
    measured: Measured,
    /// Bare calls per second over those of the client.
    slower: f64,
    /// Memory of the client over that of the bare stubs.
    larger: f64,
}

pub(super) fn run(bench: &super::Args, args: Args) -> Result<impl super::Report + use<>> {
    let folder = bench.release("bindery-contract", &["--bin", "sdk-bench-server"])?;
    bench.release("bindery-sdk", &["--example", "bench"])?;
    super::until_interrupted(async {
        let scratch = std::env::temp_dir().join(format!("bindery-bench-sdks-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        let mut server = Program::start("server", Command::new(folder.join("sdk-bench-server")), &scratch).await?;
        let ready: Server = server.hear(LIMIT).await?;
        let ca = scratch.join("ca.pem");
        fs::write(&ca, ready.ca)?;
        let mut languages = Vec::new();
        for (language, words) in programs(&folder)? {
            eprintln!("==> {language}");
            let mut runs = Vec::new();
            for _ in 0..args.repeat {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).env("PYTHONPATH", sdks::python_sources());
                command.arg(&ready.address).arg(&ca).arg("a-token-of-the-benchmark");
                runs.push(Program::once::<Measured>(language, command, &scratch).await?);
            }
            languages.push(Row::new(language, &runs));
        }
        fs::remove_dir_all(&scratch)?;
        Ok(Report {
            bench: "sdks",
            languages,
        })
    })
}

/// The benchmark of each language, with the arguments before address, CA and token.
fn programs(release: &Path) -> Result<[(&'static str, Vec<PathBuf>); 4]> {
    let python = sdks::python_sources().with_file_name("bench.py");
    let typescript = sdks::typescript()?.join("build/test/bench.js");
    Ok([
        ("rust", vec![release.join("examples/bench")]),
        ("go", vec![sdks::go("internal/bench")?]),
        ("python", vec![sdks::python()?, python]),
        ("typescript", vec!["node".into(), typescript]),
    ])
}

impl Row {
    fn new(language: &'static str, runs: &[Measured]) -> Self {
        let of = |value: fn(&Measured) -> f64| median(runs.iter().map(value).collect());
        let measured = Measured {
            calls: Pair {
                sdk: of(|run| run.calls.sdk),
                raw: of(|run| run.calls.raw),
            },
            watches: Watches {
                count: runs.first().map_or(0, |run| run.watches.count),
                sdk: of(|run| run.watches.sdk),
                raw: of(|run| run.watches.raw),
            },
        };
        Self {
            language,
            measured,
            // Ratios within a run, which was as busy for the one as for the other.
            slower: of(|run| run.calls.raw / run.calls.sdk),
            larger: of(|run| run.watches.sdk / run.watches.raw),
        }
    }
}

impl super::Report for Report {
    fn table(&self) -> String {
        let mut table = Table::new(
            &[
                "language",
                "calls/s",
                "bare",
                "ratio",
                "MiB of watches",
                "bare",
                "ratio",
            ],
            1,
        );
        for row in &self.languages {
            let Measured { calls, watches } = &row.measured;
            let mebibytes = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
            table.line([
                row.language.to_owned(),
                format!("{:.0}", calls.sdk),
                format!("{:.0}", calls.raw),
                format!("{:.2}", row.slower),
                mebibytes(watches.sdk),
                mebibytes(watches.raw),
                format!("{:.2}", row.larger),
            ]);
        }
        format!("{table}at most {BAR} is wanted of each ratio\n")
    }

    fn missed(&self) -> Option<String> {
        let above = |row: &&Row| row.slower > BAR || row.larger > BAR;
        let missed: Vec<_> = self.languages.iter().filter(above).map(|row| row.language).collect();
        (!missed.is_empty()).then(|| format!("more than {BAR} times the bare stubs: {}", missed.join(", ")))
    }
}

/// The middle one of some numbers, the upper one of an even number.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{super::Report as _, *};

    #[test]
    fn a_language_above_the_bar_is_named() {
        let run = |calls, bytes| Measured {
            calls: Pair {
                sdk: calls,
                raw: 1000.0,
            },
            watches: Watches {
                count: 1000,
                sdk: bytes,
                raw: 1000.0,
            },
        };
        let report = Report {
            bench: "sdks",
            languages: vec![
                Row::new("rust", &[run(900.0, 1100.0), run(1.0, 9999.0), run(910.0, 1000.0)]),
                Row::new("go", &[run(800.0, 1000.0)]),
                Row::new("python", &[run(1000.0, 1300.0)]),
            ],
        };
        assert!(report.missed().is_some_and(|missed| missed.ends_with("go, python")));
    }
}
