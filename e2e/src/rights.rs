//! Asks the API server what users may do.

use anyhow::{Result, ensure};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, api::PostParams};

use crate::{ControlPlane, eventually_ok, wildwest::SOON};

/// Asks whether a user may do something.
pub async fn may(plane: &ControlPlane, user: &str, what: &ResourceAttributes) -> Result<bool> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            resource_attributes: Some(what.clone()),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(plane.client());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Waits until a user may do something, or may not: changes of rights take effect a moment later.
pub async fn wait_until(plane: &ControlPlane, user: &str, what: &ResourceAttributes, allowed: bool) -> Result<()> {
    let wanted = if allowed { "may" } else { "may not" };
    eventually_ok(format!("that {user} {wanted} {what:?}"), SOON, async || {
        ensure!(may(plane, user, what).await? == allowed);
        Ok(())
    })
    .await
}
