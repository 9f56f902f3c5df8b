//! Flags of `top`.

use std::time::Duration;

use bindery_api::names::{KONNECTOR, KUBE_BIND_NAMESPACE};
use bindery_runtime::terminal::duration;

/// Flags of `top`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Shows for each binding how many objects it has, how many wait, how many changes are written to the other cluster each
second, how long these took (half of them at most P50, 99 of 100 at most P99), and how many bytes of objects both clusters
show each second. Claimed resources, which bindings share, stand under the name of their contract.

Reads /metrics of the konnector that leads, through the API server: you need the rights to get its Lease, to list pods, and
to get pods/proxy in its namespace. A konnector outside of the cluster is read with --metrics-url.

A change counts from the event of a watch until its write was answered. What the konnector finds by a list, as after its
start, does not count.

Examples:
  kubectl bind top
  kubectl bind top --interval 10s
  kubectl bind top --once                 # one sample, over one interval
  kubectl bind top --once -o json | jq '.items[] | select(.lag.p99 > 1)'
  kubectl bind top --metrics-url http://localhost:8090/metrics")]
pub(crate) struct TopArgs {
    /// How long each sample takes, and so how often the table is drawn anew.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub(crate) interval: Duration,
    /// Print one sample and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// Read the metrics here instead of through the API server, such as http://localhost:8090/metrics.
    #[arg(long, value_name = "URL")]
    pub(crate) metrics_url: Option<String>,
    /// Namespace of the konnector.
    #[arg(long, value_name = "NAME", default_value = KUBE_BIND_NAMESPACE)]
    pub(crate) konnector_namespace: String,
    /// Name of the konnector: that of its Deployment, and of the release of its chart.
    #[arg(long, value_name = "NAME", default_value = KONNECTOR)]
    pub(crate) konnector_name: String,
}
