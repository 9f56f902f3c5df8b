//! `apiservice` and the short form: bind a template, or all templates of a collection, to this cluster.

mod bind;
mod dry_run;
mod target;

use std::{io::Write, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

use super::Context;
use crate::{
    args::BindArgs,
    claims,
    consumer::Consumer,
    errors::Failure,
    install::owner::CredentialOwner,
    provider::offer::Offer,
    render::{output::joined, steps::Steps},
};
use bind::Bind;

/// How long the bind of one template may take, unless `--timeout` says otherwise for all of them.
const PATIENCE: Duration = Duration::from_mins(2);

/// `kubectl bind apiservice NAME`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &BindArgs) -> Result<(), Failure> {
    let provider = context.settings.provider()?;
    let address = &context.settings.backend()?.address;
    let consumer = Consumer::connect(&context.settings).await?;
    bind::check_typed(args)?;
    let target = target::find(&provider, args).await?;
    let identity = match &args.cluster_identity {
        Some(identity) => identity.clone(),
        None => consumer.identity().await?,
    };
    context.steps.done(&format!("this cluster is {identity}"));
    let mut binds = Vec::with_capacity(target.templates.len());
    for template in &target.templates {
        let (name, spec) = (&template.name, template.spec.clone());
        let request = bind::request(name, &identity, args, target.is_collection)?;
        let bind = Bind::prepare(args, request, spec, &consumer, &provider, address);
        let bind = Box::pin(bind).await?;
        context.steps.done(&offered(&bind.offer, &address.to_string()));
        bind.explain(&context.steps);
        binds.push(bind);
    }
    let claimed: Vec<_> = binds.iter().flat_map(|bind| bind.offer.claims.clone()).collect();
    claims::check_rejected(&claimed, &args.answers.reject_claims)?;
    target::refuse_overlap(
        binds
            .iter()
            .map(|bind| (bind.request.template.as_str(), &bind.offer.resources)),
    )?;
    if args.dry_run {
        return dry_run::run(context, &binds);
    }
    for bind in &binds {
        bind.consent()?;
    }
    let all = u32::try_from(binds.len()).unwrap_or(u32::MAX);
    let deadline = Instant::now() + context.settings.patience(PATIENCE.saturating_mul(all));
    let steps = &mut context.steps;
    for (done, bind) in binds.iter().enumerate() {
        let bound = Box::pin(bind.bind(&provider, deadline, steps)).await;
        told(bound, done, &binds, steps)?;
    }
    let mut ready = Vec::with_capacity(binds.len());
    for (done, bind) in binds.iter().enumerate() {
        let owner = Box::pin(bind.ready(deadline, steps)).await;
        ready.push(told(owner, done, &binds, steps)?);
    }
    let now = Timestamp::now();
    match ready.as_slice() {
        [one] if !target.is_collection => context.printer.owner(one, now),
        all => {
            let bindings: Vec<_> = all.iter().filter_map(CredentialOwner::as_binding).cloned().collect();
            context.printer.list(&bindings, now)
        }
    }
}

/// Says before an error how far a bind of several templates has come: what is done stays, and the same command goes on.
fn told<T>(outcome: Result<T, Failure>, done: usize, binds: &[Bind<'_>], steps: &Steps) -> Result<T, Failure> {
    if outcome.is_err() && binds.len() > 1 {
        let left = binds.iter().skip(done).map(|bind| &bind.request.template);
        steps.note(&format!(
            "{done} of {} templates are done; left are {}. The same command goes on with them",
            binds.len(),
            joined(left)
        ));
    }
    outcome
}

fn offered(offer: &Offer, address: &str) -> String {
    let offered = format!("{address} offers {}", joined(&offer.resources));
    if offer.claims.is_empty() {
        return offered;
    }
    let claimed = offer.claims.iter().map(|claim| &claim.group_resource);
    format!("{offered}, and asks for {} of this cluster", joined(claimed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::offer;

    #[test]
    fn claims_are_shown_before_anything_is_installed() {
        let offer = offer::judge(&offer::tests::answer(), "west").unwrap();
        assert_eq!(
            offered(&offer, "https://b"),
            "https://b offers cowboys.wildwest.dev, and asks for secrets of this cluster"
        );
    }
}
