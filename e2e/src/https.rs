//! A minimal HTTP client that knows one CA: one connection for each request, and redirects are not followed.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs},
};

/// A request that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(30);
/// The longest body of an answer, in bytes.
const BODY_MAX: usize = 64 << 20;

/// A client for `https://` URLs of servers whose certificate one CA signed, and for `http://` URLs.
#[derive(Clone)]
pub struct HttpsClient {
    tls: TlsConnector,
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl HttpsClient {
    /// Makes a client that trusts the CAs in `ca_pem` alone.
    pub fn new(ca_pem: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            roots.add(ca?)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Gets a URL.
    pub async fn get(&self, url: &str) -> Result<Answer> {
        self.send(Request::get(url).body(Body::empty())?).await
    }

    /// Posts a form to a URL.
    pub async fn post_form(&self, url: &str, fields: &[(&str, &str)]) -> Result<Answer> {
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let request = Request::post(url).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(form.into())?).await
    }

    /// Sends JSON to a URL.
    pub async fn send_json(&self, method: Method, url: &str, content: &serde_json::Value) -> Result<Answer> {
        let request = Request::builder().method(method).uri(url);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(content.to_string().into())?).await
    }

    /// Sends a request whose URI is a whole URL.
    pub async fn send(&self, request: Request<Body>) -> Result<Answer> {
        let what = format!("{} {}", request.method(), request.uri());
        timeout(LIMIT, self.exchange(request))
            .await
            .map_err(|_| anyhow!("no answer after {LIMIT:?}"))
            .flatten()
            .with_context(|| format!("{what} failed"))
    }

    async fn exchange(&self, mut request: Request<Body>) -> Result<Answer> {
        let uri = request.uri().clone();
        let authority = uri.authority().context("the URL has no host")?.as_str();
        request
            .headers_mut()
            .insert(header::HOST, HeaderValue::from_str(authority)?);
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        *request.uri_mut() = Uri::try_from(path)?;
        let host = uri.host().context("the URL has no host")?.to_owned();
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        if is_tls {
            let stream = self.tls.connect(ServerName::try_from(host)?, stream).await?;
            over(stream, request).await
        } else {
            over(stream, request).await
        }
    }
}

impl fmt::Debug for HttpsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpsClient").finish_non_exhaustive()
    }
}

impl Answer {
    /// Reads the body as JSON, whatever the status is.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).with_context(|| format!("{}: {}", self.status, self.text()))
    }

    /// Fails, with the body, unless the status is one of success.
    pub fn success(self) -> Result<Self> {
        ensure!(self.status.is_success(), "{}: {}", self.status, self.text());
        Ok(self)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, request: Request<Body>) -> Result<Answer> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async move {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = to_bytes(Body::new(body), BODY_MAX).await?;
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The answer may have been read before the connection ended.
        ended = connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(error.into()),
        },
    }
}
