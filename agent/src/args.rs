//! Flags of the konnector. Flags that kube-bind's konnector has too keep their names.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use bindery_api::adoption::Adoption;
use bindery_runtime::{guard::Limits, lease::LeaseArgs, telemetry::LogArgs, traces::TraceArgs};

/// Keeps the objects of this cluster in sync with the providers whose APIs are bound here.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "bindery-konnector", version)]
pub struct Args {
    /// Kubeconfig of the consumer cluster; if not given, as kubectl finds it, else the ServiceAccount of the pod.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long)]
    pub context: Option<String>,
    /// Address of the admin port, with /healthz, /readyz and /metrics.
    #[arg(long, default_value = "127.0.0.1:8090")]
    pub server_address: SocketAddr,
    /// The longest pause before a provider or backend that does not answer is asked again.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub provider_polling_interval: Duration,
    /// How often the konnector sends a heartbeat to its providers.
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub heartbeat_interval: Duration,
    /// Which objects that a provider made are created on this cluster, whose own they are from then on: `off`, `opt-in` for
    /// those with the annotation kube-bind.io/autoadopt=true, or `all`. `kubectl bind adopt --dry-run` shows them before.
    #[arg(long, default_value_t, value_name = "MODE")]
    pub adoption: Adoption,
    /// File with a client certificate (PEM) for backends that accept only clients with one. Read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        requires = "client_key",
        env = "BINDERY_CLIENT_CERTIFICATE"
    )]
    pub client_certificate: Option<PathBuf>,
    /// File with the private key (PEM) of the client certificate. Read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        requires = "client_certificate",
        env = "BINDERY_CLIENT_KEY"
    )]
    pub client_key: Option<PathBuf>,
    /// How much of what providers send is held.
    #[command(flatten)]
    pub provider_limits: ProviderLimits,
    /// Leave bindings and bundles alone whose kubeconfig Secret is in another namespace: for a cluster with several konnectors,
    /// each of which has providers of its own.
    #[arg(long)]
    pub only_own_bindings: bool,
    /// The ClusterRole with the konnector's rights on what bundles bind, for messages about rights that are missing.
    #[arg(long, value_name = "NAME", default_value = bindery_api::names::KONNECTOR_BUNDLES_ROLE)]
    pub bundles_role: String,
    /// Try the admission policies NAME, NAME-account and NAME-claims, which limit this konnector's account: at start, hourly, and when
    /// they or the API server change. Metric bindery_policy_in_force tells the outcome. If not given, none is tried. The chart and
    /// `kubectl bind deploy` give it.
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub account_policies: Option<String>,
    /// Install or update the CustomResourceDefinitions of kube-bind.io at start.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub install_crds: bool,
    /// The konnector's namespace, the only one whose Secrets it reads.
    #[arg(long, env = "POD_NAMESPACE", default_value = bindery_api::names::KUBE_BIND_NAMESPACE)]
    pub namespace: String,
    /// Leader election.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
    /// Traces.
    #[command(flatten)]
    pub traces: TraceArgs,
}

/// Limits of what the konnector holds of each contract's provider, which keep one provider from taking the memory that others need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct ProviderLimits {
    /// How many objects the konnector holds of one contract's provider at most: copies, claimed objects, exports, schemas and
    /// namespaces. A provider that sends more is not synced until it sends less; nothing is deleted because of it, and other providers
    /// go on. An object in sync takes some 600 bytes of memory.
    #[arg(long, value_name = "NUMBER", default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub provider_max_objects: u64,
    /// How many bytes of the text of objects the konnector holds of one contract's provider at most, such as 512Mi: of objects that are
    /// not in sync yet, and of exports and schemas. As for objects, twice the limit may be held while a list is read anew.
    #[arg(long, value_name = "BYTES", default_value = "512Mi", value_parser = bytes)]
    pub provider_max_bytes: u64,
}

// === impl ProviderLimits ===

impl ProviderLimits {
    /// The limits, as a session has them.
    pub fn limits(self) -> Limits {
        Limits {
            objects: self.provider_max_objects,
            bytes: self.provider_max_bytes,
        }
    }
}

/// Parses a number of bytes, with a unit of Kubernetes or none: `512Mi`. The least is 1Mi.
fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 4] = [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40)];
    let unit = UNITS
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    match bytes {
        None => Err("write a number of bytes such as 512Mi; the units are Ki, Mi, Gi and Ti".to_owned()),
        Some(bytes) if bytes < 1 << 20 => Err("must be at least 1Mi".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

/// Parses a duration as Kubernetes writes it, between a second and a day.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: bindery_api::Duration =
        serde_json::from_value(text.into()).map_err(|error: serde_json::Error| error.to_string())?;
    let duration = parsed.parse().map_err(|error| error.to_string())?;
    let allowed = Duration::from_secs(1)..=Duration::from_hours(24);
    if allowed.contains(&duration) {
        Ok(duration)
    } else {
        Err("must be between 1s and 24h".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    #[track_caller]
    fn check(args: &[&str], expect: Result<(u64, bool), ()>) {
        let parsed = Args::try_parse_from([&["bindery-konnector"], args].concat());
        let got = parsed.map(|args| (args.provider_polling_interval.as_secs(), args.install_crds));
        assert_eq!(got.map_err(|_| ()), expect, "{args:?}");
    }

    #[test]
    fn invalid_values_are_errors() {
        Args::command().debug_assert();
        check(&[], Ok((15, true)));
        check(
            &["--provider-polling-interval=1m30s", "--install-crds=false"],
            Ok((90, false)),
        );
        check(&["--install-crds"], Ok((15, true)));
        check(&["--provider-polling-interval=0s"], Err(()));
        check(&["--provider-polling-interval=soon"], Err(()));
        check(&["--install-crds=maybe"], Err(()));
        check(&["--server-address=everywhere"], Err(()));
        check(&["--adoption=opt-in"], Ok((15, true)));
        check(&["--adoption=some"], Err(()));
        check(
            &["--client-certificate=tls.crt", "--client-key=tls.key"],
            Ok((15, true)),
        );
        check(&["--client-certificate=tls.crt"], Err(()));
        check(&["--client-key=tls.key"], Err(()));
        check(
            &["--trace-endpoint=http://collector:4317", "--trace-sample=0.5"],
            Ok((15, true)),
        );
        check(&["--trace-endpoint=collector"], Err(()));
        check(&["--trace-sample=2"], Err(()));
        check(&["--provider-max-objects=0"], Err(()));
        check(&["--provider-max-bytes=512"], Err(()));
        check(&["--provider-max-bytes=much"], Err(()));
    }

    #[test]
    fn limits_of_providers_have_units_and_defaults() {
        let limits = |args: &[&str]| {
            let args = Args::try_parse_from([&["bindery-konnector"], args].concat()).unwrap();
            (
                args.provider_limits.provider_max_objects,
                args.provider_limits.provider_max_bytes,
            )
        };
        assert_eq!(limits(&[]), (500_000, 512 << 20));
        assert_eq!(
            limits(&["--provider-max-objects=7", "--provider-max-bytes=2Gi"]),
            (7, 2 << 30)
        );
        assert_eq!(limits(&["--provider-max-bytes=2097152"]).1, 2 << 20);
        assert_eq!(
            bytes("99999999999Ti").map_err(drop),
            Err(()),
            "it is more than can be counted"
        );
    }
}
