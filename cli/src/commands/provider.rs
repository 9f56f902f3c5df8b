//! `provider`: contracts, grants and released objects, as the provider's admin sees them.

mod contracts;
mod grant;
mod released;
mod transfer;

pub(super) use contracts::text as contract_text;

use std::io::Write;

use super::{Context, revoke};
use crate::{
    args::{AdminArgs, AdminCommand},
    errors::Failure,
};

/// `kubectl bind provider COMMAND`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &AdminArgs) -> Result<(), Failure> {
    match &args.command {
        AdminCommand::Contracts(args) => contracts::list(context, args).await,
        AdminCommand::Get(args) => contracts::get(context, args).await,
        AdminCommand::Grant(args) => grant::grant(context, args).await,
        AdminCommand::Take(args) => grant::take(context, args).await,
        AdminCommand::Released(args) => released::run(context, args).await,
        AdminCommand::Revoke(args) => Box::pin(revoke::run(context, &args.revoke())).await,
        AdminCommand::Transfer(args) => Box::pin(transfer::run(context, args)).await,
    }
}
