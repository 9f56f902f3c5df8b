//! The konnector's binary.

use clap::Parser as _;
use tikv_jemallocator::Jemalloc;

/// Gives memory back after a burst. How is set in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    bindery_runtime::shutdown::end_on_panic();
    Box::pin(bindery_agent::run::run(bindery_agent::args::Args::parse())).await
}
