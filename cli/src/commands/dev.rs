//! `dev`: server, konnector and an example on two clusters, and their removal.

mod cluster;
mod definitions;
mod down;
mod example;
mod up;

use std::io::Write;

use super::Context;
use crate::{
    args::dev::{DevArgs, DevCommand},
    errors::Failure,
};

/// `kubectl bind dev`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &DevArgs) -> Result<(), Failure> {
    if context.settings.cluster.context.is_some() {
        return Err(Failure::Usage(
            "--context names one cluster: `kubectl bind dev` names both, with --provider and --consumer".to_owned(),
        ));
    }
    match &args.command {
        DevCommand::Up(args) => Box::pin(up::run(context, args)).await,
        DevCommand::Down(args) => Box::pin(down::run(context, args)).await,
    }
}
