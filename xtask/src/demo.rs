//! `cargo xtask demo`: the main job on two real clusters, each step with its time. Server and konnector are installed as users
//! install them, and run in Pods from their images.

mod headless;
mod interactive;
mod observed;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use bindery_image::Profile;

use crate::{image, say::show};

const NAMESPACE: &str = "wild-west";
const COWBOY: &str = "billy-the-kid";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bind without `kubectl bind` and without a user: from an empty consumer and one Secret, by `kubectl apply` alone.
    #[arg(long)]
    headless: bool,
    /// Leave everything running at the end, and print what to try.
    #[arg(long)]
    keep: bool,
    /// Have a Prometheus scrape both programs, with the rules that are shipped. With --keep it runs on.
    #[arg(long, conflicts_with = "headless")]
    observe: bool,
}

/// The steps so far, with their times.
#[derive(Default)]
struct Steps {
    done: Vec<(&'static str, Duration)>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    image::build_all(Profile::Dev).context("cannot provide the images")?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        tokio::select! {
            outcome = demo(args) => outcome,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

async fn demo(args: &Args) -> Result<()> {
    if args.headless {
        Box::pin(headless::run(args.keep)).await
    } else {
        Box::pin(interactive::run(args.keep, args.observe)).await
    }
}

impl Steps {
    fn record(&mut self, name: &'static str, start: Instant) -> Result<()> {
        self.took(name, start.elapsed())
    }

    fn took(&mut self, name: &'static str, took: Duration) -> Result<()> {
        self.done.push((name, took));
        show(&format!("[{:>8.3} s] {name}\n", took.as_secs_f64()))
    }

    fn table(&self) -> Result<()> {
        let width = self.done.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        show(&format!("\n{:<width$}  {:>9}\n", "step", "seconds"))?;
        for (name, took) in &self.done {
            show(&format!("{name:<width$}  {:>9.3}\n", took.as_secs_f64()))?;
        }
        Ok(())
    }
}
