//! The alerts by symptom. Those of objectives are made of `slos`.

use std::fmt;

use super::Program;

/// An alert about one symptom.
#[derive(Clone, Copy, Debug)]
pub struct Alert {
    /// Its name.
    pub name: &'static str,
    /// Name of its values in the chart.
    pub key: &'static str,
    /// The program whose samples tell it.
    pub program: Program,
    /// The template of its expression.
    pub expression: &'static str,
    /// The default of `%{threshold}`, if the expression has one.
    pub threshold: Option<&'static str>,
    /// The default of `%{window}`, if the expression has one.
    pub window: Option<&'static str>,
    /// How long the expression must hold.
    pub wait: &'static str,
    /// Who is told: `page` or `ticket`.
    pub severity: &'static str,
    /// What is wrong, for the one who is told.
    pub summary: &'static str,
    /// The kind of fault that it is for.
    pub fault: Fault,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A program is killed and does not come back.
    Kill,
    /// Two parts do not reach each other.
    Partition,
    /// Somebody ends credentials or rights.
    Revoke,
    /// What lasts for a time has come to its end.
    Expire,
    /// Objects vanish while nobody watches them.
    Orphan,
    /// More comes in than can be done, or than is allowed.
    Overload,
    /// Somebody writes, or removes, what the installation relies on.
    Misconfigure,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::Partition => "partition",
            Self::Revoke => "revoke",
            Self::Expire => "expire",
            Self::Orphan => "orphan",
            Self::Overload => "overload",
            Self::Misconfigure => "misconfigure",
        })
    }
}

/// The alerts, in the order of the page about them.
pub const ALERTS: [Alert; 20] = [
    Alert {
        name: "BinderyServerAbsent",
        key: "serverAbsent",
        program: Program::Server,
        expression: "absent(up{job=\"%{job}\"} == 1)",
        threshold: None,
        window: None,
        wait: "5m",
        severity: "page",
        summary: "No server answers: nobody can bind, and no credential is renewed",
        fault: Fault::Kill,
    },
    Alert {
        name: "BinderyServerNoLeader",
        key: "serverNoLeader",
        program: Program::Server,
        expression: "max by (job) (bindery_leading{job=\"%{job}\"}) == 0",
        threshold: None,
        window: None,
        wait: "5m",
        severity: "page",
        summary: "No replica of the server leads: exports and rights are not worked on",
        fault: Fault::Partition,
    },
    Alert {
        name: "BinderyOffersNotReady",
        key: "offersNotReady",
        program: Program::Server,
        expression: "max by (job) (bindery_exports{job=\"%{job}\",state=\"not_ready\"})\n  + max by (job) (bindery_templates{job=\"%{job}\",state=\"not_ready\"})\n> %{threshold}",
        threshold: Some("0"),
        window: None,
        wait: "15m",
        severity: "ticket",
        summary: "{{ $value }} templates or exports are not ready",
        fault: Fault::Misconfigure,
    },
    Alert {
        name: "BinderyServerQueueGrowing",
        key: "serverQueueGrowing",
        program: Program::Server,
        expression: "sum by (job, controller) (bindery_queued_keys{job=\"%{job}\"}) > %{threshold}",
        threshold: Some("100"),
        window: None,
        wait: "10m",
        severity: "ticket",
        summary: "{{ $value }} keys wait for controller {{ $labels.controller }} of the server",
        fault: Fault::Overload,
    },
    Alert {
        name: "BinderyRenewalsLocked",
        key: "renewalsLocked",
        program: Program::Server,
        expression: "sum by (job) (increase(bindery_renewal_locks_total{job=\"%{job}\"}[%{window}])) > 0",
        threshold: None,
        window: Some("1h"),
        wait: "0s",
        severity: "page",
        summary: "The renewal of a contract was locked: a token was used again after a newer one, as by a thief",
        fault: Fault::Revoke,
    },
    Alert {
        name: "BinderyPolicyNotInForce",
        key: "policyNotInForce",
        program: Program::Server,
        expression: "min by (job, policy) (bindery_policy_in_force{job=\"%{job}\"}) == 0",
        threshold: None,
        window: None,
        wait: "5m",
        severity: "page",
        summary: "Admission policy {{ $labels.policy }} is not in force: rights that rely on it are not given",
        fault: Fault::Misconfigure,
    },
    Alert {
        name: "BinderyCertificateEnds",
        key: "certificateEnds",
        program: Program::Server,
        expression: "min by (job, certificate) (bindery_tls_expires_in_seconds{job=\"%{job}\"}) < %{threshold}",
        threshold: Some("604800"),
        window: None,
        wait: "15m",
        severity: "ticket",
        summary: "Certificate {{ $labels.certificate }} of the gRPC port ends in {{ $value | humanizeDuration }}",
        fault: Fault::Expire,
    },
    Alert {
        name: "BinderyAuditLinesLost",
        key: "auditLinesLost",
        program: Program::Server,
        expression: "sum by (job, outcome) (increase(bindery_audit_lines_total{job=\"%{job}\",outcome=~\"dropped|failed\"}[%{window}])) > %{threshold}",
        threshold: Some("0"),
        window: Some("15m"),
        wait: "0s",
        severity: "ticket",
        summary: "Lines of the audit log are lost ({{ $labels.outcome }})",
        fault: Fault::Overload,
    },
    Alert {
        name: "BinderyConnectionFlood",
        key: "connectionFlood",
        program: Program::Server,
        expression: "sum by (job) (increase(bindery_grpc_connection_ends_total{job=\"%{job}\",reason=~\"peer_limit|no_place|displaced|handshake|first_request\"}[%{window}])) > %{threshold}",
        threshold: Some("100"),
        window: Some("5m"),
        wait: "5m",
        severity: "ticket",
        summary: "Somebody fills the gRPC port: {{ $value | humanize }} connections were refused or ended unused",
        fault: Fault::Overload,
    },
    Alert {
        name: "BinderyLimitsMet",
        key: "limitsMet",
        program: Program::Server,
        expression: "sum by (job, limit) (increase(bindery_limit_refusals_total{job=\"%{job}\"}[%{window}])) > %{threshold}",
        threshold: Some("10"),
        window: Some("15m"),
        wait: "5m",
        severity: "ticket",
        summary: "Tenants meet the limit {{ $labels.limit }}: {{ $value | humanize }} refusals",
        fault: Fault::Overload,
    },
    Alert {
        name: "BinderyKonnectorAbsent",
        key: "konnectorAbsent",
        program: Program::Konnector,
        expression: "absent(up{job=\"%{job}\"} == 1)",
        threshold: None,
        window: None,
        wait: "5m",
        severity: "page",
        summary: "No konnector answers: nothing is synced",
        fault: Fault::Kill,
    },
    Alert {
        name: "BinderyKonnectorNoLeader",
        key: "konnectorNoLeader",
        program: Program::Konnector,
        expression: "max by (job) (bindery_leading{job=\"%{job}\"}) == 0",
        threshold: None,
        window: None,
        wait: "5m",
        severity: "page",
        summary: "No replica of the konnector leads: nothing is synced",
        fault: Fault::Partition,
    },
    Alert {
        name: "BinderyProviderUnreachable",
        key: "providerUnreachable",
        program: Program::Konnector,
        expression: "sum by (job) (rate(bindery_heartbeats_total{job=\"%{job}\",outcome=\"error\"}[%{window}]))\n  / sum by (job) (rate(bindery_heartbeats_total{job=\"%{job}\"}[%{window}]))\n> %{threshold}",
        threshold: Some("0.1"),
        window: Some("30m"),
        wait: "5m",
        severity: "page",
        summary: "{{ $value | humanizePercentage }} of the konnector's heartbeats do not reach their provider",
        fault: Fault::Partition,
    },
    Alert {
        name: "BinderyBindingsNotReady",
        key: "bindingsNotReady",
        program: Program::Konnector,
        expression: "max by (job) (bindery_bindings{job=\"%{job}\",state=\"not_ready\"})\n  + max by (job) (bindery_bundles{job=\"%{job}\",state=\"not_ready\"})\n> %{threshold}",
        threshold: Some("0"),
        window: None,
        wait: "15m",
        severity: "ticket",
        summary: "{{ $value }} bindings or bundles are not ready",
        fault: Fault::Revoke,
    },
    Alert {
        name: "BinderyObjectsFailing",
        key: "objectsFailing",
        program: Program::Konnector,
        expression: "max by (job, binding, resource) (min_over_time(bindery_sync_failing{job=\"%{job}\"}[%{window}])) > 0",
        threshold: None,
        window: Some("15m"),
        wait: "5m",
        severity: "ticket",
        summary: "{{ $value }} objects {{ $labels.resource }} of binding {{ $labels.binding }} cannot be synced",
        fault: Fault::Revoke,
    },
    Alert {
        name: "BinderySyncQueueGrowing",
        key: "syncQueueGrowing",
        program: Program::Konnector,
        expression: "max by (job, binding, resource) (bindery_sync_pending{job=\"%{job}\"}) > %{threshold}",
        threshold: Some("1000"),
        window: None,
        wait: "10m",
        severity: "ticket",
        summary: "{{ $value }} objects {{ $labels.resource }} of binding {{ $labels.binding }} wait for the konnector",
        fault: Fault::Overload,
    },
    Alert {
        name: "BinderyOrphans",
        key: "orphans",
        program: Program::Konnector,
        expression: "max by (job, binding, resource) (bindery_sync_orphans{job=\"%{job}\"}) > %{threshold}",
        threshold: Some("0"),
        window: None,
        wait: "15m",
        severity: "ticket",
        summary: "{{ $value }} copies {{ $labels.resource }} of binding {{ $labels.binding }} lost their objects",
        fault: Fault::Orphan,
    },
    Alert {
        name: "BinderyCredentialExpiresSoon",
        key: "credentialExpiresSoon",
        program: Program::Konnector,
        expression: "min by (job, binding) (bindery_credential_expires_in_seconds{job=\"%{job}\"}) < %{threshold}",
        threshold: Some("600"),
        window: None,
        wait: "2m",
        severity: "page",
        summary: "The credential of binding {{ $labels.binding }} ends in {{ $value | humanizeDuration }}, and was not renewed",
        fault: Fault::Expire,
    },
    Alert {
        name: "BinderyRenewalsFailing",
        key: "renewalsFailing",
        program: Program::Konnector,
        expression: "sum by (job) (increase(bindery_credential_renewals_total{job=\"%{job}\",outcome=\"error\"}[%{window}])) > %{threshold}",
        threshold: Some("2"),
        window: Some("30m"),
        wait: "0s",
        severity: "ticket",
        summary: "The konnector's renewals of credentials fail or are refused",
        fault: Fault::Revoke,
    },
    Alert {
        name: "BinderyKonnectorPolicyNotInForce",
        key: "konnectorPolicyNotInForce",
        program: Program::Konnector,
        expression: "min by (job, policy) (bindery_policy_in_force{job=\"%{job}\"}) == 0",
        threshold: None,
        window: None,
        wait: "5m",
        severity: "page",
        summary: "Admission policy {{ $labels.policy }} is not in force: RBAC alone limits what the konnector's token can write",
        fault: Fault::Misconfigure,
    },
];
