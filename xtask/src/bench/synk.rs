//! `cargo xtask bench synk`: a set of ConfigMaps, beside a client that only sends the same writes, and beside kubectl.

mod contestant;
mod counts;
mod input;
mod report;
mod stage;

use anyhow::Result;
use serde_json::json;

use self::{
    contestant::Contestant,
    report::{Report, Row, Sample},
    stage::{Stage, Turn},
};
use super::{measure::measure, quiet::quiet};

/// The most that a first apply may cost, as a multiple of the bare client's cost.
const BAR: f64 = 1.3;

/// With fewer objects, bars are not checked: most of the cost is the records of the set (versions, Lease, history).
const JUDGED: u32 = 1000;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many ConfigMaps.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    objects: u32,
    /// Bytes of content in each.
    #[arg(long, default_value_t = 512)]
    size: usize,
    /// How many requests are under way at once.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// How often each is measured, in turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

/// What is done to a set, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing of it is there.
    First,
    /// All of it is as it is to be. The floor is to read it.
    Unchanged,
    /// One object differs. A new version owns all, so that the floor is to write all.
    OneChanged,
    /// Half of the objects left the set. The floor is to write one half and to delete the other.
    HalfPruned,
}

/// What was measured of one contestant in one step.
struct Lane {
    step: Step,
    contestant: Contestant,
    samples: Vec<Sample>,
}

pub(super) fn run(bench: &super::Args, args: Args) -> Result<impl super::Report + use<>> {
    let folder = bench.release("bindery-synk", &["--bin", "synk"])?;
    // By itself, so that what only tests need does not reach into synk.
    bench.release("bindery-synk", &["--example", "bare"])?;
    super::until_interrupted(async {
        let stage = Stage::prepare(folder, args).await?;
        let mut lanes = Lane::all();
        // What a server does for the first time takes longer, and is nobody's to pay for.
        stage.round(0, &[Step::First], &mut []).await?;
        for round in 1..=args.repeat {
            eprintln!("==> round {round} of {}", args.repeat);
            stage.round(round, &Step::ALL, &mut lanes).await?;
        }
        Ok(report(&args, &lanes))
    })
}

fn report(args: &Args, lanes: &[Lane]) -> Report {
    let rows: Vec<_> = lanes.iter().map(|lane| lane.row(args, lanes)).collect();
    let first = rows.first().and_then(|row| row.ratio).map(|ratio| ratio.median);
    let first = first.unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let notes = vec![
        format!("first apply: {first:.2} times the bare client; at most {BAR} is wanted of {JUDGED} objects or more"),
        "ratio: median of the ratios within a round; floor of an unchanged apply: one list of the objects".to_owned(),
        format!("{cores} cores, shared with the control plane; reads include discovery"),
    ];
    Report {
        bench: "synk",
        settings: json!({
            "objects": args.objects, "size": args.size, "concurrency": args.concurrency, "repeat": args.repeat,
            "cores": cores,
        }),
        rows,
        notes,
        missed: missed(args.objects, first),
    }
}

/// Why a first apply takes too long.
fn missed(objects: u32, first: f64) -> Option<String> {
    (objects >= JUDGED && first > BAR)
        .then(|| format!("a first apply takes {first:.2} times as long as the bare client: more than {BAR}"))
}

// === impl Step ===

impl Step {
    const ALL: [Self; 4] = [Self::First, Self::Unchanged, Self::OneChanged, Self::HalfPruned];

    fn name(self) -> &'static str {
        match self {
            Self::First => "first apply",
            Self::Unchanged => "unchanged",
            Self::OneChanged => "one changed",
            Self::HalfPruned => "half pruned",
        }
    }

    /// How many objects are left after it.
    fn left(self, args: &Args) -> u32 {
        match self {
            Self::HalfPruned => args.objects.div_ceil(2),
            _ => args.objects,
        }
    }
}

// === impl Lane ===

impl Lane {
    fn all() -> Vec<Self> {
        let lane = |step, contestant| Self {
            step,
            contestant,
            samples: Vec::new(),
        };
        let steps = Step::ALL.into_iter();
        steps
            .flat_map(|step| Contestant::ALL.map(|contestant| lane(step, contestant)))
            .collect()
    }

    fn row(&self, args: &Args, lanes: &[Self]) -> Row {
        let is_floor = |lane: &&Self| lane.step == self.step && lane.contestant == Contestant::Bare;
        let floor = lanes
            .iter()
            .find(is_floor)
            .filter(|_| self.contestant != Contestant::Bare);
        let objects = args.objects as usize;
        let floor = floor.map(|floor| floor.samples.as_slice());
        Row::new(self.step.name(), self.contestant.name(), objects, &self.samples, floor)
    }
}

// === impl Stage ===

impl Stage {
    /// All steps by all contestants, each step by one after the other; who is the first of them changes with the round.
    async fn round(&self, round: u32, steps: &[Step], lanes: &mut [Lane]) -> Result<()> {
        for contestant in Contestant::ALL {
            self.open(contestant, round).await?;
        }
        for step in steps {
            for contestant in Contestant::in_turn(round) {
                let sample = self
                    .turn(Turn {
                        round,
                        step: *step,
                        contestant,
                    })
                    .await?;
                let of_it = |lane: &&mut Lane| lane.step == *step && lane.contestant == contestant;
                if let Some(lane) = lanes.iter_mut().find(of_it) {
                    lane.samples.push(sample);
                }
            }
            if *step == Step::First {
                self.same_writes(round).await?;
            }
        }
        self.clear(round).await
    }

    async fn turn(&self, turn: Turn) -> Result<Sample> {
        let commands = self.commands(turn).await?;
        quiet(&self.plane).await?;
        let audit = self.plane.audit()?;
        let from = audit.now()?;
        let cost = measure(commands, &self.plane.workdir().path().join("contestant.log")).await?;
        let counted = counts::since(audit, from, turn.contestant)?;
        counts::check(turn, &self.args, &counted)?;
        self.check_left(turn).await?;
        self.end(turn).await?;
        Ok(Sample {
            cost,
            reads: counted.reads,
            writes: counted.writes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_apply_above_the_bar_is_a_failure() {
        assert_eq!(missed(1000, BAR), None);
        assert_eq!(missed(10, 5.0), None);
        assert!(missed(1000, 1.31).is_some_and(|missed| missed.contains("1.31")));
    }
}
