//! Probes of containers, by HTTP.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::{
    api::core::v1::{Container, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::time::timeout;

use crate::{NetworkNamespace, forward, http};

/// A probe, with the defaults of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HttpProbe {
    path: String,
    port: u16,
    pub(super) delay: Duration,
    pub(super) period: Duration,
    timeout: Duration,
    failures: u32,
    successes: u32,
}

/// Counts the results of a probe until they decide something.
#[derive(Debug)]
pub(super) struct Judge {
    failures: u32,
    successes: u32,
    /// Results of the same kind in a row: good ones above zero, bad ones below.
    row: i64,
}

impl HttpProbe {
    /// Reads a probe of a container.
    pub(super) fn read(container: &Container, probe: &Probe) -> Result<Self> {
        let Some(get) = &probe.http_get else {
            bail!(
                "container {} has a probe that is not HTTP, which this kubelet does not know",
                container.name
            );
        };
        let named = |name: &str| {
            let mut ports = container.ports.iter().flatten();
            let port = ports.find(|it| it.name.as_deref() == Some(name))?;
            Some(port.container_port)
        };
        let port = match &get.port {
            IntOrString::Int(port) => *port,
            IntOrString::String(name) => {
                named(name).with_context(|| format!("container {} has no port {name:?}", container.name))?
            }
        };
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(value.and_then(|it| it.try_into().ok()).unwrap_or(default))
        };
        let count = |value: Option<i32>, default| value.and_then(|it| it.try_into().ok()).unwrap_or(default);
        Ok(Self {
            path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
            port: port.try_into()?,
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            failures: count(probe.failure_threshold, 3),
            successes: count(probe.success_threshold, 1),
        })
    }

    /// Asks once.
    pub(super) async fn succeeds(&self, network: &Arc<NetworkNamespace>) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let ask = async {
            let stream = forward::connect(Some(Arc::clone(network)), address).await?;
            http::get_over(stream, &self.path).await
        };
        let answer = timeout(self.timeout, ask).await;
        answer.is_ok_and(|it| it.is_ok_and(|(status, _)| (200..400).contains(&status)))
    }

    pub(super) fn judge(&self) -> Judge {
        Judge {
            failures: self.failures,
            successes: self.successes,
            row: 0,
        }
    }
}

impl Judge {
    /// Counts a result. Returns what the results in a row say, if they are enough to say something.
    pub(super) fn count(&mut self, is_good: bool) -> Option<bool> {
        self.row = match (is_good, self.row > 0) {
            (true, true) => self.row + 1,
            (true, false) => 1,
            (false, true) => -1,
            (false, false) => self.row - 1,
        };
        if self.row >= i64::from(self.successes) {
            Some(true)
        } else if -self.row >= i64::from(self.failures) {
            Some(false)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container() -> Container {
        let ports = json!([{"name": "admin", "containerPort": 8090}]);
        serde_json::from_value(json!({"name": "it", "ports": ports})).unwrap()
    }

    fn read(probe: serde_json::Value) -> Result<HttpProbe> {
        HttpProbe::read(&container(), &serde_json::from_value(probe).unwrap())
    }

    #[test]
    fn a_probe_has_the_defaults_of_kubernetes() {
        let probe = read(json!({"httpGet": {"path": "/healthz", "port": "admin"}, "periodSeconds": 5})).unwrap();
        assert_eq!((probe.path.as_str(), probe.port), ("/healthz", 8090));
        assert_eq!(
            (probe.period, probe.timeout),
            (Duration::from_secs(5), Duration::from_secs(1))
        );
        assert_eq!((probe.failures, probe.successes), (3, 1));
        let error = read(json!({"httpGet": {"port": "other"}})).unwrap_err().to_string();
        assert!(error.contains("no port \"other\""), "{error}");
        let error = read(json!({"exec": {}})).unwrap_err().to_string();
        assert!(error.contains("container it") && error.contains("not HTTP"), "{error}");
    }

    #[test]
    fn results_decide_when_there_are_enough_in_a_row() {
        let mut judge = Judge {
            failures: 2,
            successes: 1,
            row: 0,
        };
        let results = [false, true, false, false, false, true];
        let said = results.map(|is_good| judge.count(is_good));
        assert_eq!(said, [None, Some(true), None, Some(false), Some(false), Some(true)]);
    }
}
