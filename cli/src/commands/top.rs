//! `top`: shows how much the konnector syncs for each binding, and how fast.

use std::io::{IsTerminal as _, Write};

use bindery_api::names::KONNECTOR_LEASE;
use bindery_runtime::errors;
use http::{Request, Uri};
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, Client, Config, ResourceExt, api::ListParams};
use tokio::time::{Instant, sleep};

use super::Context;
use crate::{
    args::TopArgs,
    consumer::Consumer,
    errors::Failure,
    render::output::{Format, Show, printable},
    top::{Row, Scrape, exposition::Exposition},
};

/// The label of a konnector's pods whose value is its name, as the shipped manifests and the chart give it.
const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Moves the cursor to the first column of the first line, and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Where the metrics are read.
struct Source {
    client: Client,
    path: String,
    /// In messages, such as "Pod kube-bind/konnector-x".
    name: String,
    /// Whether it is read through the API server.
    is_proxied: bool,
}

/// `kubectl bind top`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &TopArgs) -> Result<(), Failure> {
    let (mut before, mut at) = scrape(context, args).await?;
    let is_live = !args.once && std::io::stdout().is_terminal();
    loop {
        sleep(args.interval).await;
        let (now, read) = scrape(context, args).await?;
        let rows = now.rows(&before, read - at);
        if is_live && matches!(context.printer.format(), Format::Table | Format::Wide) {
            let mut out = std::io::stdout();
            out.write_all(CLEAR.as_bytes())?;
            out.flush()?;
        }
        if rows.is_empty() {
            context.steps.note("the konnector serves no binding");
        }
        context.printer.list(&rows, Timestamp::now())?;
        if args.once {
            return Ok(());
        }
        (before, at) = (now, read);
    }
}

/// Reads the metrics of the konnector that leads now, which may be another one than before.
async fn scrape<W: Write>(context: &Context<W>, args: &TopArgs) -> Result<(Scrape, Instant), Failure> {
    let source = match &args.metrics_url {
        Some(url) => Source::at(url)?,
        None => Source::of_leader(&Consumer::connect(&context.settings).await?, args).await?,
    };
    let text = source.read().await?;
    let read = Instant::now();
    let page = Exposition::parse(&text).map_err(|error| {
        Failure::Metrics(format!(
            "{} serves no metrics: {error}; check the address, which ends in /metrics",
            source.name
        ))
    })?;
    let scrape = Scrape::of(&page);
    if !scrape.leads {
        return Err(Failure::Metrics(format!(
            "the konnector of {} does not lead, so it syncs nothing; name the one that leads, or wait until this one does",
            source.name
        )));
    }
    Ok((scrape, read))
}

// === impl Source ===

impl Source {
    /// The metrics at an address.
    fn at(url: &str) -> Result<Self, Failure> {
        let wrong = || {
            Failure::Usage(format!(
                "--metrics-url {url:?} is no URL such as http://localhost:8090/metrics"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        let server = format!("{scheme}://{authority}").parse().map_err(|_| wrong())?;
        let client = Client::try_from(Config::new(server)).map_err(Failure::cluster(format!("read {url}")))?;
        Ok(Self {
            client,
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            name: url.to_owned(),
            is_proxied: false,
        })
    }

    /// The metrics of the konnector's pod that holds its Lease.
    async fn of_leader(consumer: &Consumer, args: &TopArgs) -> Result<Self, Failure> {
        let (namespace, name) = (&args.konnector_namespace, KONNECTOR_LEASE);
        let leases = Api::<Lease>::namespaced(consumer.client(), namespace);
        let lease = leases.get_opt(name).await;
        let lease = lease.map_err(Failure::cluster(format!("read Lease {namespace}/{name}")))?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        let pods = Api::<Pod>::namespaced(consumer.client(), namespace);
        let labels = format!("{NAME_LABEL}={}", args.konnector_name);
        let found = pods.list(&ListParams::default().labels(&labels)).await;
        let found = found.map_err(Failure::cluster(format!("list Pods in namespace {namespace}")))?;
        let pods: Vec<_> = found.items.iter().map(ResourceExt::name_any).collect();
        let pod = leader(&pods, holder.as_deref(), namespace).map_err(Failure::Metrics)?;
        Ok(Self {
            client: consumer.client(),
            path: format!("/api/v1/namespaces/{namespace}/pods/{pod}:admin/proxy/metrics"),
            name: format!("Pod {namespace}/{pod}"),
            is_proxied: true,
        })
    }

    async fn read(&self) -> Result<String, Failure> {
        let request = Request::get(&self.path)
            .body(Vec::new())
            .map_err(|error| Failure::Usage(format!("{} cannot be asked: {error}", self.name)))?;
        let answer = self.client.request_text(request).await;
        answer.map_err(|error| {
            if self.is_proxied && errors::is_forbidden(&error) {
                return Failure::Metrics(format!(
                    "you may not read the metrics of {} through the API server; ask an admin for the right to get pods/proxy in its \
                     namespace, or forward its port 8090 and use --metrics-url",
                    self.name
                ));
            }
            Failure::cluster(format!("read the metrics of {}", self.name))(error)
        })
    }
}

/// The pod that holds the Lease, among the konnector's pods; or what is wrong, with its mend.
fn leader<'a>(pods: &'a [String], holder: Option<&str>, namespace: &str) -> Result<&'a str, String> {
    let lease = KONNECTOR_LEASE;
    if pods.is_empty() {
        return Err(format!(
            "namespace {namespace} has no Pod of a konnector; install it with `kubectl bind deploy`, name it with \
             --konnector-namespace and --konnector-name, or read a konnector outside of the cluster with --metrics-url"
        ));
    }
    let Some(holder) = holder.filter(|holder| !holder.is_empty()) else {
        return Err(format!(
            "no konnector leads: Lease {namespace}/{lease} has no holder; look at the konnector with \
             `kubectl -n {namespace} logs deployment/konnector`"
        ));
    };
    // A candidate may add to the name of its pod what tells it from a former process in that pod.
    let is_holder = |pod: &str| holder == pod || holder.strip_prefix(pod).is_some_and(|rest| rest.starts_with('_'));
    pods.iter().map(String::as_str).find(|pod| is_holder(pod)).ok_or_else(|| {
        format!(
            "{} leads by Lease {namespace}/{lease}, which is no Pod of a konnector in namespace {namespace}; read it with --metrics-url",
            printable(holder)
        )
    })
}

// === impl Row ===

impl Show for Row {
    const HEADINGS: &'static [&'static str] = &[
        "BINDING",
        "OBJECTS",
        "PENDING",
        "CHANGES/S",
        "P50",
        "P99",
        "BYTES/S",
        "CHANGES",
        "BYTES",
    ];
    const PLAIN: usize = 7;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        vec![
            self.binding.clone(),
            self.objects.to_string(),
            self.pending.to_string(),
            format!("{:.1}", self.changes_per_second),
            lag(self.lag.p50),
            lag(self.lag.p99),
            format!("{:.0}", self.bytes_per_second),
            format!("{:.0}", self.changes),
            format!("{:.0}", self.bytes),
        ]
    }

    fn reference(&self) -> String {
        format!("apiservicebinding.kube-bind.io/{}", self.binding)
    }
}

/// A lag for people: whole milliseconds below one second.
fn lag(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 1.0 => format!("{:.0}ms", seconds * 1000.0),
        Some(seconds) => format!("{seconds:.1}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_that_leads_is_found_by_the_lease() {
        let two = ["konnector-a".to_owned(), "konnector-b".to_owned()];
        for (pods, holder, expect) in [
            (&two[..], Some("konnector-b"), Ok("konnector-b")),
            (&two, Some("konnector-a_5f0c"), Ok("konnector-a")),
            (&two, None, Err("has no holder")),
            (&two, Some(""), Err("has no holder")),
            (&two, Some("laptop"), Err("laptop leads")),
            (&two, Some("konnector-ab"), Err("--metrics-url")),
            (&[], Some("konnector-a"), Err("kubectl bind deploy")),
        ] {
            let found = leader(pods, holder, "kube-bind");
            match expect {
                Ok(pod) => assert_eq!(found.as_deref(), Ok(pod)),
                Err(message) => assert!(found.as_ref().is_err_and(|error| error.contains(message)), "{found:?}"),
            }
        }
    }

    #[test]
    fn lags_are_short_to_read() {
        for (seconds, expect) in [
            (None, "-"),
            (Some(0.0123), "12ms"),
            (Some(0.9), "900ms"),
            (Some(2.25), "2.2s"),
        ] {
            assert_eq!(lag(seconds), expect);
        }
    }

    #[test]
    fn a_wrong_address_is_refused_before_anything_is_read() {
        for url in ["", "localhost", "/metrics", "http://"] {
            assert!(matches!(Source::at(url), Err(Failure::Usage(_))), "{url}");
        }
    }
}
