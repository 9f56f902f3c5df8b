//! What a refusal must look like.

use std::fmt;

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{Condition, Conditions, conditions::ConditionStatus};
use bindery_e2e::{eventually, wildwest::SOON};
use bindery_proto::v1alpha2::ErrorReason;
use bindery_sdk::{Code, Error, StatusError};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Waits until an object's condition is `False` for this reason; its message must say all of `says`.
pub(crate) async fn is_false<K>(api: &Api<K>, name: &str, type_: &str, reason: &str, says: &[&str]) -> Result<()>
where
    K: Resource + Conditions + Clone + DeserializeOwned + fmt::Debug,
{
    eventually(format!("{name} to be {type_}=False/{reason}"), SOON, || async {
        let object = api.get(name).await?;
        let found = object.condition(type_).filter(|found| found.reason == reason);
        let found: &Condition = found.with_context(|| format!("conditions: {:?}", object.conditions()))?;
        ensure!(found.status == ConditionStatus::False, "{found:?}");
        tells(&found.message, says)?;
        let sum = object.condition("Ready").context("no condition Ready")?;
        ensure!(sum.status == ConditionStatus::False, "ready all the same: {sum:?}");
        Ok(Some(()))
    })
    .await
}

/// A call must have failed with this code and reason, in words that say all of `says`.
pub(crate) fn refused<T>(
    outcome: Result<T, Error>,
    code: Code,
    reason: ErrorReason,
    says: &[&str],
) -> Result<StatusError> {
    let error = match outcome {
        Ok(_) => bail!(
            "it succeeded, and should have been refused with {}",
            reason.reason_str()
        ),
        Err(Error::Status(error)) => *error,
        Err(other) => bail!("no answer of the server: {other}"),
    };
    ensure!(
        (error.code, error.reason) == (code, Some(reason)),
        "refused in another way: {error:?}"
    );
    tells(&error.message, says)?;
    ensure!(!error.request_id.is_empty(), "without a request id: {error:?}");
    Ok(error)
}

/// A text for people must hold all of `says`.
pub(crate) fn tells(text: &str, says: &[&str]) -> Result<()> {
    let missing: Vec<_> = says.iter().filter(|part| !text.contains(**part)).collect();
    ensure!(missing.is_empty(), "does not say {missing:?}: {text}");
    Ok(())
}
