//! The programs that benchmarks run beside Bindery's own, so that what is measured and what measures are both release
//! builds: `load` makes changes and sees them arrive, `floor` and `relay` do the least that could be done, `list` reads both
//! sides once, `agents` are thousands of konnectors as the server sees them, `strangers` attack its port.

mod agents;
mod body;
mod floor;
mod h2_frames;
mod input;
mod list;
mod load;
mod order;
mod output;
mod percentiles;
mod relay;
mod resource;
mod schedule;
mod send;
mod sides;
mod stand_in;
mod strangers;
mod tap;
mod writes;

use clap::{Parser, Subcommand};

/// What benchmarks run beside Bindery's own programs.
#[derive(Debug, Parser)]
#[command(name = "bindery-bench")]
struct Args {
    #[command(subcommand)]
    program: Program,
}

#[derive(Debug, Subcommand)]
enum Program {
    /// Makes changes on one side and sees them arrive on the other.
    Load(load::Args),
    /// Holds the watches of a konnector, and makes just the writes that one must make.
    Floor(floor::Args),
    /// For each line of a watch makes the writes that a konnector must make.
    Relay(relay::Args),
    /// Lists both sides once.
    List(list::Args),
    /// Follows exports as thousands of konnectors do.
    Agents(agents::Args),
    /// Attack the server's port.
    Strangers(strangers::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Only a second one could be refused.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match Args::parse().program {
        Program::Load(args) => load::run(args).await,
        Program::Floor(args) => floor::run(args).await,
        Program::Relay(args) => relay::run(args).await,
        Program::List(args) => list::run(args).await,
        Program::Agents(args) => agents::run(args).await,
        Program::Strangers(args) => strangers::run(args).await,
    }
}
