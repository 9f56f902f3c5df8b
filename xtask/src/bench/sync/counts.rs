//! What is asked of both API servers with the credentials of the konnector, which its contestants have too.

use std::collections::BTreeMap;

use anyhow::Result;
use bindery_e2e::{Asked, ControlPlane, Moment, NAMESPACE};
use http::Request;
use kube::Client;

use super::{api::BenchApi, stage::Stage};
use crate::bench::metrics::Metrics;

/// A moment in the audit logs of both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    consumer: Moment,
    provider: Moment,
}

/// Requests between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asks {
    /// All requests.
    pub(super) requests: usize,
    /// Writes to objects of the bound resources.
    pub(super) writes: usize,
    /// Which follow the bound resources.
    pub(super) watches: usize,
    /// Writes by verb, resource and cluster.
    pub(super) by: BTreeMap<String, usize>,
}

/// Refused requests about the bound resources since an API server began, whoever asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refused {
    /// Somebody else was quicker.
    pub(super) conflicts: f64,
    /// There were too many.
    pub(super) throttled: f64,
}

impl Stage {
    /// Now.
    pub(super) fn moment(&self) -> Result<Moments> {
        Ok(Moments {
            consumer: self.consumer.plane.audit()?.now()?,
            provider: self.provider.plane.audit()?.now()?,
        })
    }

    /// Counts the requests since a moment.
    pub(super) fn asked(&self, since: &Moments) -> Result<Asks> {
        let consumer = self.consumer.plane.audit()?.since(since.consumer)?;
        let provider = self.provider.plane.audit()?.since(since.provider)?;
        let konnector = format!("system:serviceaccount:{NAMESPACE}:konnector");
        let contract = format!("system:serviceaccount:{}:", self.contract);
        let consumer = consumer.into_iter().filter(|asked| asked.by == konnector);
        let provider = provider.into_iter().filter(|asked| asked.by.starts_with(&contract));
        let mut asks = Asks::default();
        consumer.for_each(|asked| asks.count("consumer", &asked));
        provider.for_each(|asked| asks.count("provider", &asked));
        Ok(asks)
    }

    /// Counts the requests that either API server has refused so far.
    pub(super) async fn refused(&self) -> Result<Refused> {
        let of = async |plane: &ControlPlane| Refused::of(&plane.client()).await;
        let (consumer, provider) = tokio::try_join!(of(&self.consumer.plane), of(&self.provider.plane))?;
        Ok(Refused {
            conflicts: consumer.conflicts + provider.conflicts,
            throttled: consumer.throttled + provider.throttled,
        })
    }
}

impl Asks {
    fn count(&mut self, side: &str, asked: &Asked) {
        self.requests += 1;
        let is_bound = BenchApi::is_group(&asked.group);
        self.writes += usize::from(is_bound && asked.is_write());
        self.watches += usize::from(is_bound && asked.is_watch());
        if asked.is_write() {
            let Asked {
                verb,
                resource,
                subresource,
                ..
            } = asked;
            let what = format!("{side}: {verb} {resource}{}{subresource}", slash(subresource));
            *self.by.entry(what).or_default() += 1;
        }
    }
}

fn slash(subresource: &str) -> &'static str {
    if subresource.is_empty() { "" } else { "/" }
}

impl Refused {
    async fn of(client: &Client) -> Result<Self> {
        let text = client.request_text(Request::get("/metrics").body(Vec::new())?).await?;
        let requests = Metrics::parse(&text, |line| line.starts_with("apiserver_request_total{"));
        let code = |code| {
            let of_api = |api: &BenchApi| requests.sum("request_total", &[("code", code), ("resource", api.name())]);
            BenchApi::ALL.iter().map(of_api).sum()
        };
        Ok(Self {
            conflicts: code("409"),
            throttled: code("429"),
        })
    }
}
