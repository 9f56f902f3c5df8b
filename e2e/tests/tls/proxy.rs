//! Behind nginx, which speaks HTTP/1.1 only, and below a path prefix: the command line, the konnector and the SDK use gRPC-Web by
//! themselves.

use ::http::{Method, Request, header};
use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{
    Consumer, Nginx, Provider, bound::Bound, eventually_ok, http, https::HttpsClient, lease, run, wildwest::SOON,
};
use bindery_proto::v1alpha2::{ListTemplatesRequest, WatchBindableResourcesRequestsRequest};
use bindery_sdk::{BuildError, Client, Error, Protocol, TransportFault, WatchEvent};

use crate::managed::streams;

const ORIGIN: &str = "https://console.example.com";
const LIST: &str = "/kubebind.v1alpha2.CatalogService/ListTemplates";

#[test]
fn everything_works_behind_a_proxy_of_http_1_1_and_below_a_prefix() -> Result<()> {
    run(async {
        let mut nginx = Nginx::prepare().await?;
        let cors = format!("--cors-allowed-origins={ORIGIN}");
        let flags = [&[&*cors][..], &lease::PATIENT].concat();
        let url = nginx.url();
        let (provider, consumer) = tokio::try_join!(
            Provider::start_behind(&url, "proxy-p", &flags),
            Consumer::start_with("proxy-c", &lease::PATIENT)
        )?;
        configure(&nginx, &provider, |server| server)?;
        nginx.start().await?;
        let mut bound = Bound::between(provider, consumer).await?;

        let listed = bound.bind(&["templates"]).await?;
        ensure!(listed.contains("cowboys"), "{listed}");
        bound.bind(&["cowboys"]).await?;
        streams(&bound.provider).await?;
        bound.create(["billy".to_owned()]).await?;
        bound.converged().await?;
        bound.status_flows("caught").await?;
        bound.bind(&["renew", "cowboys"]).await?;
        watches_resume_when_the_proxy_comes_back(&bound, &mut nginx).await?;
        bound.create(["butch".to_owned()]).await?;
        bound.converged().await?;
        only_grpc_web_was_passed_on(&nginx)?;

        a_proxy_that_takes_http_2_and_passes_on_http_1_1(&bound, &mut nginx).await?;
        a_proxy_that_leaves_the_prefix(&bound, &mut nginx).await?;
        pages_of_the_allowed_origin_may_call(&bound.provider).await
    })
}

/// Configures nginx for the first server, with changes to the server of the page.
fn configure(nginx: &Nginx, provider: &Provider, change: impl Fn(String) -> String) -> Result<()> {
    let own = provider.plane.authority().server(&["127.0.0.1"])?;
    let backend = provider.replica_address(0);
    let backend = backend.strip_prefix("https://").context("an https:// URL")?;
    nginx.configure(&own, &provider.ca_path(), backend, change)
}

fn client(bound: &Bound) -> Result<Client> {
    let ca = std::fs::read(bound.provider.ca_path())?;
    let client = Client::builder(bound.provider.address()).ca_pem(ca);
    Ok::<_, BuildError>(client.token_file(&bound.token).build()?).map_err(Into::into)
}

/// The watch of an SDK, and that of the konnector.
async fn watches_resume_when_the_proxy_comes_back(bound: &Bound, nginx: &mut Nginx) -> Result<()> {
    let client = client(bound)?;
    let mut watch = client.watch_bindable_resources_requests(WatchBindableResourcesRequestsRequest::default());
    let mut next = async || {
        watch
            .next()
            .await
            .context("the watch ended")?
            .map_err(anyhow::Error::from)
    };
    ensure!(matches!(next().await?, WatchEvent::Connected { resumed: false }));
    while !matches!(next().await?, WatchEvent::SnapshotComplete) {}
    ensure!(client.protocol() == Protocol::GrpcWeb, "{:?}", client.protocol());

    nginx.stop()?;
    match next().await? {
        WatchEvent::Disconnected {
            error: Some(Error::Transport(error)),
            ..
        } if error.fault == TransportFault::Broken => {}
        other => bail!("{other:?}"),
    }
    eventually_ok("the konnector's stream to end", SOON, async || {
        let (_, metrics) = http::get(bound.provider.admin_port(), "/metrics").await?;
        let open = metrics
            .lines()
            .find(|line| line.starts_with("bindery_grpc_streams{") && line.contains("WatchExports\""));
        ensure!(open.is_some_and(|line| line.ends_with(" 0")), "{open:?}");
        Ok(())
    })
    .await?;
    nginx.start().await?;
    loop {
        match next().await? {
            WatchEvent::Connected { resumed: true } => break,
            WatchEvent::Disconnected { .. } => {}
            other => bail!("{other:?}"),
        }
    }
    streams(&bound.provider).await
}

fn only_grpc_web_was_passed_on(nginx: &Nginx) -> Result<()> {
    let requests = nginx.requests()?;
    ensure!(requests.len() > 5, "{requests:?}");
    for request in &requests {
        let parts: Vec<_> = request.split(' ').collect();
        let [protocol, method, path, content_type, _] = parts[..] else {
            bail!("{request}");
        };
        // nginx refuses a client that speaks HTTP/2 without having negotiated it, or gives up in a handshake, with 400.
        ensure!(
            protocol == "HTTP/1.1" && method == "POST" && content_type == "application/grpc-web",
            "{request}"
        );
        ensure!(path.starts_with("/bindery/kubebind.v1alpha2."), "{request}");
    }
    Ok(())
}

/// Lists templates with a new client, by gRPC-Web.
async fn list_by_grpc_web(bound: &Bound) -> Result<()> {
    let client = client(bound)?;
    let templates = client.list_templates(ListTemplatesRequest::default()).await?;
    ensure!(!templates.is_empty());
    ensure!(client.protocol() == Protocol::GrpcWeb, "{:?}", client.protocol());
    Ok(())
}

async fn a_proxy_that_takes_http_2_and_passes_on_http_1_1(bound: &Bound, nginx: &mut Nginx) -> Result<()> {
    nginx.stop()?;
    configure(nginx, &bound.provider, |server| {
        server.replacen(" ssl;", " ssl http2;", 1)
    })?;
    nginx.start().await?;
    list_by_grpc_web(bound).await?;
    let requests = nginx.requests()?;
    let refused = format!("HTTP/2.0 POST /bindery{LIST} application/grpc 400");
    let passed = format!("HTTP/1.1 POST /bindery{LIST} application/grpc-web 200");
    ensure!(
        requests.contains(&refused) && requests.contains(&passed),
        "{requests:?}"
    );
    Ok(())
}

async fn a_proxy_that_leaves_the_prefix(bound: &Bound, nginx: &mut Nginx) -> Result<()> {
    nginx.stop()?;
    configure(nginx, &bound.provider, |server| {
        let lines = server.lines().map(|line| match line.strip_suffix("/;") {
            Some(begin) if begin.contains("proxy_pass ") => format!("{begin};"),
            _ => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    })?;
    nginx.start().await?;
    list_by_grpc_web(bound).await
}

/// Calls as a browser does, first with a preflight request.
async fn pages_of_the_allowed_origin_may_call(provider: &Provider) -> Result<()> {
    let http = HttpsClient::new(&std::fs::read_to_string(provider.ca_path())?)?;
    let url = format!("{}{LIST}", provider.replica_address(0));
    for (origin, is_allowed) in [(ORIGIN, true), ("https://evil.example.com", false)] {
        let preflight = Request::builder()
            .method(Method::OPTIONS)
            .uri(&url)
            .header(header::ORIGIN, origin)
            .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
            .header(
                header::ACCESS_CONTROL_REQUEST_HEADERS,
                "authorization,content-type,x-grpc-web",
            );
        let answer = http.send(preflight.body(Vec::new().into())?).await?;
        let allowed = answer.headers.get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        ensure!(allowed.is_some() == is_allowed, "{origin}: {answer:?}");
        let call = Request::post(&url)
            .header(header::ORIGIN, origin)
            .header(header::CONTENT_TYPE, "application/grpc-web+proto");
        let answer = http.send(call.body(vec![0; 5].into())?).await?;
        let status = answer.headers.get("grpc-status").context("no status")?;
        ensure!(status == "16", "a call without a token: {answer:?}");
        ensure!(answer.headers.contains_key("x-request-id"), "{answer:?}");
    }
    let plain = http.get(&url).await?;
    ensure!(plain.status == 400 && plain.text().contains("gRPC-Web"), "{plain:?}");
    Ok(())
}
