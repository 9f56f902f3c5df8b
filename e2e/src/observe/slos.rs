//! The service level objectives.

use super::{Fault, Program};

/// A service level objective: which share of what happens has to be good.
#[derive(Clone, Copy, Debug)]
pub struct Slo {
    /// Name of its values in the chart.
    pub key: &'static str,
    /// Its name in the recorded ratio, `bindery:NAME_bad:ratio_rateWINDOW`.
    pub record: &'static str,
    /// The program whose samples tell it.
    pub program: Program,
    /// The alert that fires while its budget is spent too fast.
    pub alert: &'static str,
    /// The share that has to be good, in percent.
    pub objective: &'static str,
    /// The time within which something has to be done, if the objective is about a time: an upper bound of a bucket.
    pub seconds: Option<&'static str>,
    /// The share that was bad within `%{window}`: a number between 0 and 1.
    pub bad: &'static str,
    /// How many events there were within `%{window}`; nothing if the objective is about time.
    pub total: Option<&'static str>,
    /// What the objective says.
    pub says: &'static str,
    /// What is wrong, for the one who is told.
    pub summary: &'static str,
    /// The kind of fault that the alert is for.
    pub fault: Fault,
}

/// The share of gRPC calls with these further labels that failed through the server.
macro_rules! failed_share {
    ($labels:literal) => {
        concat!(
            "(\n  sum by (job) (rate(bindery_grpc_calls_total{job=\"%{job}\"",
            $labels,
            ",code=~\"%{failed}\"}[%{window}]))\n",
            "  or\n  0 * sum by (job) (rate(bindery_grpc_calls_total{job=\"%{job}\"",
            $labels,
            "}[%{window}]))\n)\n",
            "/ sum by (job) (rate(bindery_grpc_calls_total{job=\"%{job}\"",
            $labels,
            "}[%{window}]))",
        )
    };
}

/// How many gRPC calls with these further labels there were.
macro_rules! all_calls {
    ($labels:literal) => {
        concat!(
            "sum by (job) (increase(bindery_grpc_calls_total{job=\"%{job}\"",
            $labels,
            "}[%{window}]))"
        )
    };
}

/// The objectives, in the order of the page about them.
pub const SLOS: [Slo; 5] = [
    Slo {
        key: "bind",
        record: "bind",
        program: Program::Server,
        alert: "BinderyBindBudgetBurn",
        objective: "99.5",
        seconds: None,
        bad: failed_share!(",method=~\".*/CreateBindableResourcesRequest\""),
        total: Some(all_calls!(",method=~\".*/CreateBindableResourcesRequest\"")),
        says: "calls that bind do not fail through the server",
        summary: "Binds fail through the server, faster than their objective allows",
        fault: Fault::Partition,
    },
    Slo {
        key: "renewal",
        record: "renewal",
        program: Program::Server,
        alert: "BinderyRenewalBudgetBurn",
        objective: "99.9",
        seconds: None,
        bad: failed_share!(",method=~\".*/RenewKubeconfig\""),
        total: Some(all_calls!(",method=~\".*/RenewKubeconfig\"")),
        says: "calls that renew a credential do not fail through the server",
        summary: "Renewals of credentials fail through the server, faster than their objective allows",
        fault: Fault::Partition,
    },
    Slo {
        key: "serverAvailability",
        record: "server_call",
        program: Program::Server,
        alert: "BinderyServerAvailabilityBudgetBurn",
        objective: "99.9",
        seconds: None,
        bad: failed_share!(""),
        total: Some(all_calls!("")),
        says: "calls of any kind do not fail through the server",
        summary: "gRPC calls fail through the server, faster than their objective allows",
        fault: Fault::Partition,
    },
    Slo {
        key: "syncLatency",
        record: "sync_latency",
        program: Program::Konnector,
        alert: "BinderySyncLatencyBudgetBurn",
        objective: "99",
        seconds: Some("5.0"),
        bad: "1 - (\n  sum by (job, binding) (rate(bindery_sync_lag_seconds_bucket{job=\"%{job}\",le=\"%{seconds}\"}[%{window}]))\n  / sum by (job, binding) (rate(bindery_sync_lag_seconds_count{job=\"%{job}\"}[%{window}]))\n)",
        total: Some("sum by (job, binding) (increase(bindery_sync_lag_seconds_count{job=\"%{job}\"}[%{window}]))"),
        says: "changes of objects, and of their status, are on the other cluster within the time",
        summary: "Changes of binding {{ $labels.binding }} reach the other cluster late, more often than their objective allows",
        fault: Fault::Partition,
    },
    Slo {
        key: "konnectorAvailability",
        record: "konnector_leading",
        program: Program::Konnector,
        alert: "BinderyKonnectorAvailabilityBudgetBurn",
        objective: "99.9",
        seconds: None,
        bad: "1 - avg_over_time(bindery:konnector_leading:max{job=\"%{job}\"}[%{window}])",
        total: None,
        says: "of the time, a konnector leads, so that objects are synced",
        summary: "No konnector leads for longer than the objective allows",
        fault: Fault::Kill,
    },
];
