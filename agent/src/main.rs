//! The konnector's binary.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    bindery_runtime::shutdown::end_on_panic();
    Box::pin(bindery_agent::run::run(bindery_agent::args::Args::parse())).await
}
