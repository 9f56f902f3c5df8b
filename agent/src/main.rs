//! The binary of the konnector.

use clap::Parser as _;
use tikv_jemallocator::Jemalloc;

/// Returns memory to the system after a burst, as `.cargo/config.toml` configures it.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    bindery_runtime::shutdown::end_on_panic();
    Box::pin(bindery_agent::run::run(bindery_agent::args::Args::parse())).await
}
