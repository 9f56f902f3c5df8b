//! `share`: lets groups use a contract as its owner does.

use std::io::Write;

use bindery_proto::v1alpha2::ShareContractRequest;
use jiff::Timestamp;

use super::{Context, provider::contract_text, revoke};
use crate::{
    args::ShareArgs,
    contracts::shown::ShownContract,
    errors::Failure,
    render::output::{Format, joined},
};

/// `kubectl bind share NAME`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &ShareArgs) -> Result<(), Failure> {
    let (contract, uid) = match &args.contract {
        Some(contract) => (contract.clone(), None),
        None => revoke::contract_of(context, args.name.as_deref().unwrap_or_default(), args.bundle).await?,
    };
    let provider = context.settings.provider()?;
    let request = ShareContractRequest {
        contract,
        uid: uid.unwrap_or_default(),
        add_groups: args.group.clone(),
        remove_groups: args.remove_group.clone(),
        validate_only: args.dry_run,
    };
    let shared = ShownContract::from(provider.share(request).await?);
    let groups = joined(&shared.owner_groups);
    if args.dry_run {
        context.steps.note(&format!(
            "owner groups of contract {} would be: {groups} (dry run)",
            shared.name
        ));
    } else {
        context
            .steps
            .done(&format!("owner groups of contract {}: {groups}", shared.name));
    }
    let now = Timestamp::now();
    match context.printer.format() {
        Format::Table | Format::Wide => context.printer.text(&contract_text(&shared, now)),
        _ => context.printer.one(&shared, now),
    }
}
