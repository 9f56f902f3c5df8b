//! What an adoption costs, by the audit logs of both API servers.

use anyhow::{Result, ensure};
use bindery_e2e::{Asked, Moment, holds_for};
use serde_json::json;

use crate::side::{A_WHILE, Side};

/// Who writes on a consumer.
const KONNECTOR: &str = "system:serviceaccount:kube-bind:konnector";

/// A moment on both clusters.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    provider: Moment,
    consumer: Moment,
}

/// On the consumer the object and its status, on the provider who owns the fields and the marks. Then it is as any other.
#[expect(clippy::print_stdout, reason = "what an adoption costs")]
pub(crate) async fn an_adoption_costs_few_writes(side: &Side) -> Result<()> {
    let before = Mark::now(side)?;
    let source = side.put(&side.opted("counted", "ride")).await?;
    side.adopted("counted", &source).await?;
    let adopted = Mark::now(side)?;
    side.report("counted", "tired").await?;
    side.reported("counted", "tired").await?;
    let reported = Mark::now(side)?;
    side.patch("counted", json!({"spec": {"intent": "hide"}})).await?;
    side.copy_is("counted", |copy| copy.data["spec"]["intent"] == "hide")
        .await?;
    let changed = Mark::now(side)?;
    for (what, from, to, on_provider, on_consumer) in [
        ("an adoption", before, adopted, 2..=2, 1..=2),
        ("a change of status", adopted, reported, 0..=0, 1..=1),
        ("a change of spec", reported, changed, 1..=1, 0..=0),
    ] {
        let (provider, consumer) = written(side, from, Some(to))?;
        println!(
            "cell {}: {what} came to {} writes on the provider and {} on the consumer",
            side.cell.name,
            provider.len(),
            consumer.len()
        );
        ensure!(
            on_provider.contains(&provider.len()),
            "{what} on the provider: {provider:?}"
        );
        ensure!(
            on_consumer.contains(&consumer.len()),
            "{what} on the consumer: {consumer:?}"
        );
    }
    at_rest(side, changed).await
}

/// Nothing is written from a moment on.
pub(crate) async fn at_rest(side: &Side, from: Mark) -> Result<()> {
    holds_for("nothing to be written", A_WHILE, async || {
        let (provider, consumer) = written(side, from, None)?;
        ensure!(provider.is_empty() && consumer.is_empty(), "{provider:?}, {consumer:?}");
        Ok(())
    })
    .await
}

/// Writes of the API's objects, by the contract on the provider and by the konnector on the consumer.
pub(crate) fn written(side: &Side, from: Mark, to: Option<Mark>) -> Result<(Vec<Asked>, Vec<Asked>)> {
    let is_one = |asked: &Asked, by: &str| asked.is_write() && asked.by == by && asked.group == side.cell.group();
    let audit = side.provider.plane.audit()?;
    let mut provider = audit.between(from.provider, to.map(|to| to.provider))?;
    provider.retain(|asked| is_one(asked, &side.binder()));
    let mut consumer = side.audit.between(from.consumer, to.map(|to| to.consumer))?;
    consumer.retain(|asked| is_one(asked, KONNECTOR));
    Ok((provider, consumer))
}

// === impl Mark ===

impl Mark {
    pub(crate) fn now(side: &Side) -> Result<Self> {
        Ok(Self {
            provider: side.provider.plane.audit()?.now()?,
            consumer: side.audit.now()?,
        })
    }
}
