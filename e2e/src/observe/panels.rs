//! The panels of the dashboards.

use super::Program;

/// A panel of a dashboard.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// The dashboard.
    pub program: Program,
    /// The row in which it stands.
    pub row: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The unit, as Grafana names it.
    pub unit: &'static str,
    /// Each expression, with the legend of its lines.
    pub queries: &'static [(&'static str, &'static str)],
}

const fn panel(
    program: Program,
    row: &'static str,
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel {
        program,
        row,
        title,
        unit,
        queries,
    }
}

use Program::{Konnector, Server};

/// The panels, dashboard by dashboard and row by row.
pub const PANELS: [Panel; 38] = [
    panel(
        Server,
        "Is it well?",
        "Replicas that answer",
        "none",
        &[
            ("sum by (job) (up{job=\"%{job}\"})", "answer"),
            ("sum by (job) (bindery_leading{job=\"%{job}\"})", "lead"),
        ],
    ),
    panel(
        Server,
        "Is it well?",
        "Calls that fail through the server",
        "percentunit",
        &[(
            "(sum by (job) (rate(bindery_grpc_calls_total{job=\"%{job}\",code=~\"%{failed}\"}[%{rate}])) or 0 * sum by (job) (rate(bindery_grpc_calls_total{job=\"%{job}\"}[%{rate}]))) / sum by (job) (rate(bindery_grpc_calls_total{job=\"%{job}\"}[%{rate}]))",
            "failed",
        )],
    ),
    panel(
        Server,
        "Is it well?",
        "Contracts",
        "none",
        &[("max by (state) (bindery_contracts{job=\"%{job}\"})", "{{state}}")],
    ),
    panel(
        Server,
        "Is it well?",
        "Admission policies in force",
        "bool_yes_no",
        &[(
            "min by (policy) (bindery_policy_in_force{job=\"%{job}\"})",
            "{{policy}}",
        )],
    ),
    panel(
        Server,
        "Calls",
        "Calls by method",
        "reqps",
        &[(
            "sum by (method) (rate(bindery_grpc_calls_total{job=\"%{job}\"}[%{rate}]))",
            "{{method}}",
        )],
    ),
    panel(
        Server,
        "Calls",
        "Calls by code",
        "reqps",
        &[(
            "sum by (code) (rate(bindery_grpc_calls_total{job=\"%{job}\"}[%{rate}]))",
            "{{code}}",
        )],
    ),
    panel(
        Server,
        "Calls",
        "Time to the answer",
        "s",
        &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(bindery_grpc_call_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
                "p50",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(bindery_grpc_call_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
                "p99",
            ),
        ],
    ),
    panel(
        Server,
        "Calls",
        "Open streams",
        "none",
        &[("sum by (method) (bindery_grpc_streams{job=\"%{job}\"})", "{{method}}")],
    ),
    panel(
        Server,
        "Calls",
        "Connections that were refused or ended",
        "cps",
        &[(
            "sum by (reason) (rate(bindery_grpc_connection_ends_total{job=\"%{job}\"}[%{rate}]))",
            "{{reason}}",
        )],
    ),
    panel(
        Server,
        "Calls",
        "Tokens that had to be checked",
        "reqps",
        &[(
            "sum by (job) (rate(bindery_grpc_token_checks_total{job=\"%{job}\"}[%{rate}]))",
            "checked",
        )],
    ),
    panel(
        Server,
        "Tenants",
        "Exports, requests and templates",
        "none",
        &[
            ("max by (state) (bindery_exports{job=\"%{job}\"})", "exports {{state}}"),
            (
                "max by (state) (bindery_requests{job=\"%{job}\"})",
                "requests {{state}}",
            ),
            (
                "max by (state) (bindery_templates{job=\"%{job}\"})",
                "templates {{state}}",
            ),
        ],
    ),
    panel(
        Server,
        "Tenants",
        "Credentials",
        "cps",
        &[(
            "sum by (asked_by, outcome) (rate(bindery_credentials_total{job=\"%{job}\"}[%{rate}]))",
            "{{asked_by}} {{outcome}}",
        )],
    ),
    panel(
        Server,
        "Tenants",
        "Locks of renewals",
        "cps",
        &[(
            "sum by (job) (rate(bindery_renewal_locks_total{job=\"%{job}\"}[%{rate}]))",
            "locked",
        )],
    ),
    panel(
        Server,
        "Tenants",
        "Refusals by limits",
        "cps",
        &[(
            "sum by (limit) (rate(bindery_limit_refusals_total{job=\"%{job}\"}[%{rate}]))",
            "{{limit}}",
        )],
    ),
    panel(
        Server,
        "Tenants",
        "Objects released to the provider",
        "cps",
        &[(
            "sum by (job) (rate(bindery_released_objects_total{job=\"%{job}\"}[%{rate}]))",
            "released",
        )],
    ),
    panel(
        Server,
        "Controllers",
        "Reconciles by result",
        "cps",
        &[(
            "sum by (controller, result) (rate(bindery_reconciles_total{job=\"%{job}\"}[%{rate}]))",
            "{{controller}} {{result}}",
        )],
    ),
    panel(
        Server,
        "Controllers",
        "Time of a reconcile, p99",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (controller, le) (rate(bindery_reconcile_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
            "{{controller}}",
        )],
    ),
    panel(
        Server,
        "Controllers",
        "Keys that wait",
        "none",
        &[(
            "sum by (controller) (bindery_queued_keys{job=\"%{job}\"})",
            "{{controller}}",
        )],
    ),
    panel(
        Server,
        "Controllers",
        "Time in the queue, p99",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (controller, le) (rate(bindery_reconcile_wait_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
            "{{controller}}",
        )],
    ),
    panel(
        Server,
        "What it needs",
        "Requests to the API server",
        "reqps",
        &[(
            "sum by (method) (rate(bindery_kubernetes_requests_total{job=\"%{job}\"}[%{rate}]))",
            "{{method}}",
        )],
    ),
    panel(
        Server,
        "What it needs",
        "Answers of the API server",
        "reqps",
        &[(
            "sum by (code) (rate(bindery_kubernetes_responses_total{job=\"%{job}\"}[%{rate}]))",
            "{{code}}",
        )],
    ),
    panel(
        Server,
        "What it needs",
        "Certificates end in",
        "s",
        &[(
            "min by (certificate) (bindery_tls_expires_in_seconds{job=\"%{job}\"})",
            "{{certificate}}",
        )],
    ),
    panel(
        Konnector,
        "Is it well?",
        "Replicas that answer",
        "none",
        &[
            ("sum by (job) (up{job=\"%{job}\"})", "answer"),
            ("sum by (job) (bindery_leading{job=\"%{job}\"})", "lead"),
        ],
    ),
    panel(
        Konnector,
        "Is it well?",
        "Bindings and bundles",
        "none",
        &[
            (
                "max by (state) (bindery_bindings{job=\"%{job}\"})",
                "bindings {{state}}",
            ),
            ("max by (state) (bindery_bundles{job=\"%{job}\"})", "bundles {{state}}"),
            ("sum by (job) (bindery_sessions{job=\"%{job}\"})", "contracts"),
        ],
    ),
    panel(
        Konnector,
        "Is it well?",
        "In sync",
        "bool_yes_no",
        &[(
            "max by (binding, resource) (bindery_sync_synced{job=\"%{job}\"})",
            "{{binding}} {{resource}}",
        )],
    ),
    panel(
        Konnector,
        "Is it well?",
        "Time from a change to the other cluster",
        "s",
        &[
            (
                "histogram_quantile(0.5, sum by (direction, le) (rate(bindery_sync_lag_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
                "p50 {{direction}}",
            ),
            (
                "histogram_quantile(0.99, sum by (direction, le) (rate(bindery_sync_lag_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
                "p99 {{direction}}",
            ),
        ],
    ),
    panel(
        Konnector,
        "Objects",
        "Objects",
        "none",
        &[(
            "max by (binding, resource) (bindery_sync_objects{job=\"%{job}\"})",
            "{{binding}} {{resource}}",
        )],
    ),
    panel(
        Konnector,
        "Objects",
        "Objects that wait",
        "none",
        &[(
            "max by (binding, resource) (bindery_sync_pending{job=\"%{job}\"})",
            "{{binding}} {{resource}}",
        )],
    ),
    panel(
        Konnector,
        "Objects",
        "Copies that lost their objects",
        "none",
        &[(
            "max by (binding, resource) (bindery_sync_orphans{job=\"%{job}\"})",
            "{{binding}} {{resource}}",
        )],
    ),
    panel(
        Konnector,
        "Objects",
        "Writes by outcome",
        "wps",
        &[(
            "sum by (operation, outcome) (rate(bindery_sync_operations_total{job=\"%{job}\"}[%{rate}]))",
            "{{operation}} {{outcome}}",
        )],
    ),
    panel(
        Konnector,
        "Objects",
        "Time in the queue",
        "s",
        &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(bindery_sync_queue_wait_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
                "p50",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(bindery_sync_queue_wait_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
                "p99",
            ),
        ],
    ),
    panel(
        Konnector,
        "Objects",
        "Time of a request, p99",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (side, operation, le) (rate(bindery_sync_operation_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
            "{{side}} {{operation}}",
        )],
    ),
    panel(
        Konnector,
        "Objects",
        "Age of what is known, p99",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (side, le) (rate(bindery_sync_watch_lag_seconds_bucket{job=\"%{job}\"}[%{rate}])))",
            "{{side}}",
        )],
    ),
    panel(
        Konnector,
        "Providers",
        "Credentials end in",
        "s",
        &[(
            "min by (binding) (bindery_credential_expires_in_seconds{job=\"%{job}\"})",
            "{{binding}}",
        )],
    ),
    panel(
        Konnector,
        "Providers",
        "Renewals by outcome",
        "cps",
        &[(
            "sum by (outcome) (rate(bindery_credential_renewals_total{job=\"%{job}\"}[%{rate}]))",
            "{{outcome}}",
        )],
    ),
    panel(
        Konnector,
        "Providers",
        "Heartbeats by outcome",
        "cps",
        &[(
            "sum by (outcome) (rate(bindery_heartbeats_total{job=\"%{job}\"}[%{rate}]))",
            "{{outcome}}",
        )],
    ),
    panel(
        Konnector,
        "Providers",
        "Requests to API servers",
        "reqps",
        &[
            (
                "sum by (cluster, method) (rate(bindery_kubernetes_requests_total{job=\"%{job}\"}[%{rate}]))",
                "{{cluster}} {{method}}",
            ),
            (
                "sum by (cluster) (bindery_kubernetes_connections{job=\"%{job}\"})",
                "{{cluster}} connections",
            ),
        ],
    ),
    panel(
        Konnector,
        "Providers",
        "Bytes to and from API servers",
        "Bps",
        &[(
            "sum by (cluster, direction) (rate(bindery_kubernetes_bytes_total{job=\"%{job}\"}[%{rate}]))",
            "{{cluster}} {{direction}}",
        )],
    ),
];

impl Panel {
    /// The expression of each query, for samples of a job, with this range of rates.
    pub fn expressions(&self, job: &str, rate: &str) -> Vec<String> {
        let filled = self.queries.iter().map(|(template, _)| {
            super::fill(template, |name| match name {
                "job" => job.to_owned(),
                _ => rate.to_owned(),
            })
        });
        filled.collect()
    }
}
