//! Probes of containers, by HTTP.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::time::{sleep, timeout};

use super::{status::Phase, status_manager::StatusManager};
use crate::{NetworkNamespace, http, network};

/// How often a container is asked whether it is ready, until it is for the first time: tests wait for it.
const EAGER: Duration = Duration::from_millis(200);

/// The probes of a container.
#[derive(Debug)]
pub(super) struct Probes {
    startup: Option<HttpProbe>,
    liveness: Option<HttpProbe>,
    readiness: Option<HttpProbe>,
}

/// A probe, with the defaults of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HttpProbe {
    path: String,
    port: u16,
    delay: Duration,
    period: Duration,
    timeout: Duration,
    failures: u32,
    successes: u32,
}

/// Counts the results of a probe until they decide something.
#[derive(Debug)]
struct Threshold {
    failures: u32,
    successes: u32,
    /// Results of the same kind in a row: good ones above zero, bad ones below.
    row: i64,
}

impl Probes {
    pub(super) fn read(container: &Container) -> Result<Self> {
        let read = |probe: &Option<Probe>| probe.as_ref().map(|it| HttpProbe::read(container, it)).transpose();
        Ok(Self {
            startup: read(&container.startup_probe)?,
            liveness: read(&container.liveness_probe)?,
            readiness: read(&container.readiness_probe)?,
        })
    }

    /// The phase of a container that was started just now.
    pub(super) fn first_phase(&self) -> Phase {
        Phase::Running {
            since: Timestamp::now(),
            has_started: self.startup.is_none(),
            is_ready: self.startup.is_none() && self.readiness.is_none(),
        }
    }

    /// Probes a container, and returns once it is to be ended: it does not start, or is not alive.
    pub(super) async fn watch(&self, network: &NetworkNamespace, manager: &StatusManager, name: &str) {
        if let Some(probe) = &self.startup {
            sleep(probe.delay).await;
            if !probe.next(network, probe.period).await {
                return;
            }
            manager.set_started(name);
        }
        tokio::select! {
            () = self.watch_readiness(network, manager, name) => {}
            () = self.lives(network) => {}
        }
    }

    async fn watch_readiness(&self, network: &NetworkNamespace, manager: &StatusManager, name: &str) {
        let Some(probe) = &self.readiness else {
            manager.set_ready(name, true);
            return std::future::pending().await;
        };
        let mut period = EAGER.min(probe.period);
        sleep(probe.delay).await;
        loop {
            let is_ready = probe.next(network, period).await;
            manager.set_ready(name, is_ready);
            if is_ready {
                period = probe.period;
            }
            sleep(period).await;
        }
    }

    /// Returns once the container is not alive.
    async fn lives(&self, network: &NetworkNamespace) {
        let Some(probe) = &self.liveness else {
            return std::future::pending().await;
        };
        sleep(probe.delay).await;
        while probe.next(network, probe.period).await {
            sleep(probe.period).await;
        }
    }
}

impl HttpProbe {
    fn read(container: &Container, probe: &Probe) -> Result<Self> {
        let Some(get) = &probe.http_get else {
            bail!(
                "container {} has a probe that is not HTTP, which this kubelet does not know",
                container.name
            );
        };
        ensure!(
            get.scheme.as_deref().is_none_or(|scheme| scheme == "HTTP"),
            "container {} has a probe by HTTPS, which this kubelet does not know",
            container.name
        );
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

    /// Asks again and again until enough results in a row say something, and returns what they say.
    async fn next(&self, network: &NetworkNamespace, period: Duration) -> bool {
        let mut threshold = Threshold {
            failures: self.failures,
            successes: self.successes,
            row: 0,
        };
        loop {
            if let Some(is_good) = threshold.count(self.succeeds(network).await) {
                return is_good;
            }
            sleep(period).await;
        }
    }

    /// Asks once.
    async fn succeeds(&self, network: &NetworkNamespace) -> bool {
        let ask = async {
            let stream = network.connect((network::ADDRESS, self.port).into()).await?;
            http::get_over(stream, &self.path).await
        };
        let answer = timeout(self.timeout, ask).await;
        answer.is_ok_and(|it| it.is_ok_and(|(status, _)| (200..400).contains(&status)))
    }
}

impl Threshold {
    /// Counts a result. Returns what the results in a row say, if they are enough to say something.
    fn count(&mut self, is_good: bool) -> Option<bool> {
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
        let error = read(json!({"httpGet": {"port": 1, "scheme": "HTTPS"}}))
            .unwrap_err()
            .to_string();
        assert!(error.contains("container it") && error.contains("by HTTPS"), "{error}");
        let error = read(json!({"exec": {}})).unwrap_err().to_string();
        assert!(error.contains("container it") && error.contains("not HTTP"), "{error}");
    }

    #[test]
    fn results_decide_when_there_are_enough_in_a_row() {
        let mut threshold = Threshold {
            failures: 2,
            successes: 1,
            row: 0,
        };
        let results = [false, true, false, false, false, true];
        let said = results.map(|is_good| threshold.count(is_good));
        assert_eq!(said, [None, Some(true), None, Some(false), Some(false), Some(true)]);
    }
}
