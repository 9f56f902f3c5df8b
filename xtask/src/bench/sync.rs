//! `cargo xtask bench sync`: measures how the konnector syncs objects of a bound API, and compares it with clients that
//! send only the necessary writes.

mod api;
mod backlog;
mod burst;
mod consumers;
mod contestant;
mod counts;
mod lanes;
mod load;
mod memory;
mod namespaces;
mod order;
mod rate;
mod report;
mod restart;
mod row;
mod same;
mod stage;
mod traces;
mod turn;

use std::path::PathBuf;

use anyhow::Result;
use bindery_e2e::process::Programs;
use clap::ValueEnum;
use serde_json::json;

use self::report::{Report, Section};
use super::plot::Plot;

/// How to begin.
const EXAMPLES: &str = "\
Examples:
  cargo xtask bench sync                                          a burst of 1,000 objects, and 20 and 50 changes per second
  cargo xtask bench sync --measure burst --objects 10000          a longer burst
  cargo xtask bench sync --measure rate --rate 100 --plot a.svg   another rate, with a picture of all latencies
  cargo xtask bench sync --output json > result.json              for programs

Two control planes, the server and the konnector run as processes of their own on this machine. Whom the konnector is
measured beside has its credentials and its watches, and works in its stead on the same binding: the floor is told by the
driver what to write, the relay passes on what its watches bring. They take turns, and who is first changes. What is too small
to be judged is said to be so.";

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What is measured, by comma.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Measure::Burst, Measure::Rate])]
    measure: Vec<Measure>,
    /// How many objects; each measure has a number of its own if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    objects: Option<u32>,
    /// Bytes of each object, as JSON.
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Over how many namespaces objects are spread; if not given, one, or as many as a measure is about.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    namespaces: Option<u32>,
    /// How often each is measured, in turns; if not given, 3 times a burst and a restart, 4 times a rate, twice consumers.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,
    /// Rate: changes per second, by comma.
    #[arg(long, value_delimiter = ',', default_values_t = [20, 50], value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: Vec<u32>,
    /// Rate and backlog: for how long changes are made, in seconds; if not given, 8 in each phase of a rate, and 30 of a
    /// backlog.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Consumers: how many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    consumers: u32,
    /// Requests of the driver under way at once, in a burst.
    #[arg(long, default_value_t = order::CONCURRENCY, value_parser = clap::value_parser!(u32).range(1..=1024))]
    concurrency: u32,
    /// Objects that a floor works on at once: as many as the konnector's, if not given.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    floor_concurrency: u16,
    /// Writes the time of each change over time to this SVG file, of the first round.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// All at once: objects per second, beside the floor. 0.8 of it is wanted.
    Burst,
    /// At a rate: the time of each change, beside the relay. p50 within 1.5 and p99 within 2 times its own is wanted.
    Rate,
    /// Memory of the konnector: idle, with 10,000 objects in sync, when all are gone, and restarted with as many. 20 MiB
    /// idle, 64 with 10,000 and 320 with 100,000 objects are wanted.
    Memory,
    /// A restart with 10,000 objects in sync: no write to any of them, and all in sync within twice the time of listing both
    /// sides.
    Restart,
    /// Single changes in one binding while 5,000 objects are made in another: p99 within 3 times its own without.
    Backlog,
    /// 500 namespaces, in either scope of informers: connections, watches and memory.
    Namespaces,
    /// 20 konnectors at once on one provider, 200 objects each: objects per second beside as many floors. 0.7 is wanted.
    Consumers,
    /// At the highest rate: the konnector with traces of one change in a hundred, beside itself without traces. The median of
    /// its rounds, of p50 and of processor time, is wanted no higher than the highest of the rounds without.
    Traces,
}

/// What measures work with.
pub(super) struct Bench {
    programs: Programs,
    args: Args,
}

pub(super) fn run(bench: &super::Args, args: &Args) -> Result<impl super::Report + use<>> {
    // Each by itself, so that what one needs does not reach into another.
    bench.release("bindery-server", &["--bin", "bindery-server"])?;
    bench.release("bindery-agent", &["--bin", "bindery-konnector"])?;
    bench.release("bindery-cli", &["--bin", "kubectl-bind"])?;
    let folder = bench.release("bindery-bench", &["--bin", "bindery-bench"])?;
    let bench = Bench {
        programs: Programs::in_folder(folder),
        args: args.clone(),
    };
    super::until_interrupted(async {
        let mut sections = Vec::new();
        for measure in &bench.args.measure {
            eprintln!("==> {}", measure.name());
            sections.push(bench.measure(*measure).await?);
        }
        bench.draw(&sections)?;
        Ok(bench.report(sections))
    })
}

impl Bench {
    async fn measure(&self, measure: Measure) -> Result<Section> {
        match measure {
            Measure::Burst => Box::pin(burst::run(self)).await,
            Measure::Rate => Box::pin(rate::run(self)).await,
            Measure::Memory => Box::pin(memory::run(self)).await,
            Measure::Restart => Box::pin(restart::run(self)).await,
            Measure::Backlog => Box::pin(backlog::run(self)).await,
            Measure::Namespaces => Box::pin(namespaces::run(self)).await,
            Measure::Consumers => Box::pin(consumers::run(self)).await,
            Measure::Traces => Box::pin(traces::run(self)).await,
        }
    }

    fn draw(&self, sections: &[Section]) -> Result<()> {
        let panels: Vec<_> = sections.iter().flat_map(|section| section.panels.clone()).collect();
        match &self.args.plot {
            Some(path) if !panels.is_empty() => {
                let title = "time from a change to what it causes".to_owned();
                Plot { title, panels }.write(path)
            }
            _ => Ok(()),
        }
    }

    fn report(&self, sections: Vec<Section>) -> Report {
        let Args {
            objects,
            size,
            namespaces,
            repeat,
            rate,
            seconds,
            consumers,
            concurrency,
            floor_concurrency,
            ..
        } = &self.args;
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        Report {
            bench: "sync",
            settings: json!({
                "objects": objects, "size": size, "namespaces": namespaces, "repeat": repeat, "rate": rate,
                "seconds": seconds, "consumers": consumers, "concurrency": concurrency,
                "floorConcurrency": floor_concurrency, "cores": cores,
            }),
            sections,
        }
    }
}

// === impl Args ===

impl Args {
    /// How many objects, if not given.
    fn objects_or(&self, usual: u32) -> u32 {
        self.objects.unwrap_or(usual)
    }
}

// === impl Measure ===

impl Measure {
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
