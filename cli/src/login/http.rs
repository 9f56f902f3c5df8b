//! HTTPS to an issuer: no redirect is followed, no answer is long, and none takes long.

use std::{error::Error as StdError, path::Path, pin::Pin, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a request, with its connection and its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Length limit of an answer, in bytes. Key sets of large issuers have some 20 KiB.
const ANSWER_LENGTH_MAX: usize = 512 * 1024;

/// A client of an issuer.
#[derive(Clone, Debug)]
pub(crate) struct IssuerHttp {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Why an issuer did not answer a request. No variant holds anything of the request but its host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpError {
    /// The file with the CA cannot be used.
    #[error("the CA file {path} cannot be used: {fault}")]
    Authority { path: String, fault: String },
    /// An endpoint is not reached by TLS.
    #[error("{host} is to be reached without TLS, which is refused")]
    Plaintext { host: String },
    /// No connection could be made, or it broke.
    #[error("{host} cannot be reached: {fault}")]
    Unreachable { host: String, fault: String },
    /// There was no answer in time.
    #[error("{host} did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Silent { host: String },
    /// The answer is too long.
    #[error("{host} answers with more than {} KiB, which is refused", ANSWER_LENGTH_MAX / 1024)]
    TooLong { host: String },
    /// The answer leads to another address.
    #[error("{host} answers with a redirect to {to}, which is not followed")]
    Redirect { host: String, to: String },
}

impl IssuerHttp {
    /// A client that trusts the CAs of this file (PEM), or else those of the system.
    pub(crate) fn new(authority: Option<&Path>) -> Result<Self, HttpError> {
        let roots = match authority {
            Some(path) => roots_of(path)?,
            None => system_roots(),
        };
        let tls = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let client = Client::builder(TokioExecutor::new()).build(HttpsConnector::from((http, tls)));
        Ok(Self { client })
    }

    async fn send(self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        if request.uri().scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Err(HttpError::Plaintext { host });
        }
        let request = request.map(|body| Full::new(Bytes::from(body)));
        let answer = timeout(REQUEST_TIMEOUT, self.answer(&host, request)).await;
        answer.unwrap_or(Err(HttpError::Silent { host }))
    }

    async fn answer(&self, host: &str, request: http::Request<Full<Bytes>>) -> Result<HttpResponse, HttpError> {
        let unreachable = |error: &(dyn StdError + 'static)| HttpError::Unreachable {
            host: host.to_owned(),
            fault: innermost(error),
        };
        let answer = self
            .client
            .request(request)
            .await
            .map_err(|error| unreachable(&error))?;
        if answer.status().is_redirection() {
            return Err(HttpError::Redirect {
                host: host.to_owned(),
                to: target(answer.headers()),
            });
        }
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_LENGTH_MAX).collect().await;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return HttpError::TooLong { host: host.to_owned() };
            }
            unreachable(&*error)
        })?;
        Ok(HttpResponse::from_parts(parts, body.to_bytes().into()))
    }
}

impl<'c> AsyncHttpClient<'c> for IssuerHttp {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

fn roots_of(path: &Path) -> Result<RootCertStore, HttpError> {
    let unusable = |fault: String| HttpError::Authority {
        path: path.display().to_string(),
        fault,
    };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

/// The CAs that the system trusts. Without any, each connection fails and says that the CA is not trusted.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Where a redirect leads, without its query, which could hold a code.
fn target(headers: &http::HeaderMap) -> String {
    let location = headers
        .get(http::header::LOCATION)
        .and_then(|value| value.to_str().ok());
    let location = location.unwrap_or("an unknown address");
    location.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// The message of the first cause, which says the most.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
