//! Measures what the client costs beside the generated stub: calls per second, and the memory of watches.
//!
//! `bench ADDRESS CA_FILE TOKEN` prints one line of JSON: `{"calls": {"sdk", "raw"}, "watches": {"count", "sdk", "raw"}}`. Calls are
//! GetCaller per second, the best of three rounds of one call after the other and 32 at the same time; the two are measured by turns.
//! Watches are WatchContracts that are open and past their snapshot; their bytes are by how much the resident memory of a process
//! grows, a process for each of the two. The stub uses one connection for every 200 watches, as the client does.

#![expect(clippy::print_stdout, reason = "the result is printed")]

use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_proto::v1alpha2::contract_service_client::ContractServiceClient;
use bindery_proto::v1alpha2::provider_service_client::ProviderServiceClient;
use bindery_proto::v1alpha2::watch_contracts_response::Event;
use bindery_proto::v1alpha2::{GetCallerRequest, WatchContractsRequest};
use bindery_sdk::{Client, WatchEvent};
use futures::future::try_join_all;
use tonic::Request;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

const CALLS: u32 = 4000;
const AT_ONCE: u32 = 32;
const ROUNDS: usize = 3;
const WATCHES: usize = 1000;
const WATCHES_PER_CONNECTION: usize = 200;

/// The server, and the token for it.
struct Target {
    address: String,
    ca: Vec<u8>,
    token: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [address, ca_file, token, child @ ..] = &arguments[..] else {
        bail!("usage: bench ADDRESS CA_FILE TOKEN");
    };
    let target = Target {
        address: address.clone(),
        ca: fs::read(ca_file).with_context(|| format!("cannot read {ca_file}"))?,
        token: token.clone(),
    };
    match child.first().map(String::as_str) {
        Some("sdk") => println!("{}", target.sdk_watches().await?),
        Some("raw") => println!("{}", target.raw_watches().await?),
        _ => {
            let (sdk, raw) = target.calls().await?;
            let grown = |kind: &str| -> Result<u64> {
                let mut child = std::process::Command::new(env::current_exe()?);
                let output = child.args(&arguments).arg(kind).output()?;
                ensure!(
                    output.status.success(),
                    "{kind}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                Ok(String::from_utf8(output.stdout)?.trim().parse()?)
            };
            let result = serde_json::json!({
                "calls": { "sdk": sdk, "raw": raw },
                "watches": { "count": WATCHES, "sdk": grown("sdk")?, "raw": grown("raw")? },
            });
            println!("{result}");
        }
    }
    Ok(())
}

impl Target {
    fn client(&self) -> Result<Client> {
        Ok(Client::builder(&self.address)
            .ca_pem(self.ca.clone())
            .token(self.token.clone())
            .build()?)
    }

    async fn channel(&self) -> Result<Channel> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        let endpoint = Endpoint::from_shared(self.address.clone())?
            .tls_config(tls)?
            .tcp_nodelay(true);
        Ok(endpoint.connect().await?)
    }

    fn request<T>(&self, message: T) -> Result<Request<T>> {
        let mut request = Request::new(message);
        let token = format!("Bearer {}", self.token).parse()?;
        request.metadata_mut().insert("authorization", token);
        Ok(request)
    }

    /// Returns the calls per second of client and stub.
    async fn calls(&self) -> Result<(f64, f64)> {
        let client = self.client()?;
        let stub = ProviderServiceClient::new(self.channel().await?);
        let sdk_call = async || Ok(client.get_caller().await.map(drop)?);
        let raw_call = async || {
            let mut request = self.request(GetCallerRequest {})?;
            request.set_timeout(Duration::from_secs(10));
            stub.clone().get_caller(request).await?;
            Ok(())
        };
        let (mut sdk, mut raw) = (0.0_f64, 0.0_f64);
        for _ in 0..ROUNDS {
            sdk = sdk.max(rate(sdk_call).await?);
            raw = raw.max(rate(raw_call).await?);
        }
        Ok((sdk, raw))
    }

    /// Returns the bytes of memory by which this process grows with watches of the client.
    async fn sdk_watches(&self) -> Result<u64> {
        let client = self.client()?;
        let open = async || -> Result<_> {
            let mut watch = client.watch_contracts(WatchContractsRequest::default());
            loop {
                match watch.next().await.context("the watch ended")?? {
                    WatchEvent::SnapshotComplete => return Ok(watch),
                    WatchEvent::Disconnected { error, .. } => bail!("disconnected: {error:?}"),
                    _ => {}
                }
            }
        };
        let first = open().await?;
        let before = resident()?;
        let mut watches = vec![first];
        while watches.len() <= WATCHES {
            watches.push(open().await?);
        }
        resident().map(|after| after.saturating_sub(before))
    }

    /// Returns the bytes of memory by which this process grows with watches of the stub.
    async fn raw_watches(&self) -> Result<u64> {
        let open = async |channel: &Channel| -> Result<_> {
            let mut stub = ContractServiceClient::new(channel.clone());
            let request = self.request(WatchContractsRequest::default())?;
            let mut stream = stub.watch_contracts(request).await?.into_inner();
            while let Some(response) = stream.message().await? {
                if let Some(Event::SnapshotComplete(_)) = response.event {
                    return Ok(stream);
                }
            }
            bail!("the watch ended")
        };
        let mut channel = self.channel().await?;
        let first = open(&channel).await?;
        let before = resident()?;
        let mut watches = vec![first];
        while watches.len() <= WATCHES {
            if watches.len() % WATCHES_PER_CONNECTION == 0 {
                channel = self.channel().await?;
            }
            watches.push(open(&channel).await?);
        }
        resident().map(|after| after.saturating_sub(before))
    }
}

/// Returns the calls per second over one call after the other and many at the same time.
async fn rate(call: impl AsyncFn() -> Result<()>) -> Result<f64> {
    let call = &call;
    let many = async |count: u32| -> Result<()> {
        for _ in 0..count {
            call().await?;
        }
        Ok(())
    };
    many(AT_ONCE).await?;
    let start = Instant::now();
    many(CALLS / 4).await?;
    try_join_all((0..AT_ONCE).map(|_| many(CALLS / AT_ONCE))).await?;
    Ok(f64::from(CALLS / 4 + CALLS) / start.elapsed().as_secs_f64())
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.context("no resident memory")?.trim().trim_end_matches(" kB");
    Ok(kibibytes.parse::<u64>()? * 1024)
}
