//! The same bind is sent more than once: after the other, at the same time, and again because the answer was lost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{Provider, Proxy, bound::Bound, lease::PATIENT, run};
use futures::future::{join_all, try_join_all};
use tokio::time::interval;

use super::{
    calls,
    picture::{self, becomes, settled},
};

#[test]
fn the_same_command_twice_and_at_once() -> Result<()> {
    run(async {
        let mut bound = Bound::prepare("twice", &PATIENT).await?;
        try_join_all((0..4).map(|_| bound.bind(&["cowboys"]))).await?;
        let identity = bound.consumer.identity().await?;
        let client = bound.provider.plane.client();
        let once = settled(&client, &identity).await?;
        picture::has_one_of_each(&once)?;
        let secrets = bound.kubeconfigs().await?;
        bound.create(["billy".to_owned()]).await?;
        bound.converged().await?;

        bound.bind(&["cowboys"]).await?;
        bound.bind(&["cowboys"]).await?;
        bound.bound_once().await?;
        let version = |secrets: &[k8s_openapi::api::core::v1::Secret]| -> Vec<_> {
            secrets
                .iter()
                .map(|secret| secret.metadata.resource_version.clone())
                .collect()
        };
        ensure!(
            version(&secrets) == version(&bound.kubeconfigs().await?),
            "a Secret was written anew"
        );
        let again = picture::of(&client, &identity).await?;
        picture::has_one_of_each(&again)?;
        bound.converged().await?;
        bound.status_flows("caught").await?;
        bound.unbind().await
    })
}

#[test]
fn the_same_call_at_once_and_over_a_bad_line() -> Result<()> {
    run(async {
        let provider = Provider::start_with("retries", &PATIENT).await?;
        let token = provider.principal("team", &["cowboys"]).await?;
        let admin = provider.plane.client();
        let client = calls::client(&provider, &provider.address(), &token)?;
        calls::bind(&client, "once").await?;
        let once = settled(&admin, "once").await?;
        picture::has_one_of_each(&once)?;

        let answers = join_all((0..8).map(|_| calls::bind(&client, "at-once"))).await;
        for answer in answers {
            answer.context("one of eight")?;
        }
        becomes(&admin, "at-once", &once).await?;

        // The token is for the address that all know; the line to it is cut again and again.
        let address = provider.address().trim_start_matches("https://").parse()?;
        let line = Proxy::start(address).await?;
        let over_the_line = calls::client(&provider, &format!("https://{}", line.address()), &token)?;
        let mut cuts = interval(Duration::from_millis(40));
        let cutting = async {
            for _ in 0..12 {
                cuts.tick().await;
                line.sever();
            }
        };
        let (first, ()) = tokio::join!(calls::bind(&over_the_line, "bad-line"), cutting);
        if first.is_err() {
            calls::bind(&over_the_line, "bad-line")
                .await
                .context("the same once more")?;
        }
        becomes(&admin, "bad-line", &once).await
    })
}
