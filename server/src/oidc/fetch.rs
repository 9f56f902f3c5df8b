//! Requests to an issuer: for its discovery document and its keys, by GET over TLS, and limited in time and size.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{StatusCode, Uri, header::ACCEPT};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use rustls_pki_types::CertificateDer;
use tokio::time::timeout;

/// Largest answer, in bytes.
pub(super) const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// How long a request may take, from the look-up of the name to the last byte.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Why an issuer did not answer as it should.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No answer came.
    #[error("{url} cannot be reached: {cause}")]
    Unreachable {
        /// The URL.
        url: Uri,
        /// Why.
        cause: String,
    },
    /// The answer took too long.
    #[error("{0} did not answer within {limit}s", limit = TIME_MAX.as_secs())]
    Slow(Uri),
    /// The answer is a redirect. Redirects are not followed, for they may lead away from the issuer.
    #[error("{0} answers with a redirect, which is not followed; set discoveryURL to where it leads")]
    Redirect(Uri),
    /// The answer is an error.
    #[error("{url} answers {status}")]
    Status {
        /// The URL.
        url: Uri,
        /// The status.
        status: StatusCode,
    },
    /// The answer is too large.
    #[error("the answer of {0} is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLarge(Uri),
    /// The URL is not https.
    #[error("{0} is not an https URL")]
    NotHttps(Uri),
}

/// Reads documents of an issuer.
pub trait Fetch: fmt::Debug + Send + Sync {
    /// Reads the document at a URL.
    fn get(&self, url: Uri) -> BoxFuture<'_, Result<Bytes, FetchError>>;
}

/// Makes what reads the documents of an issuer whose certificates these CAs sign; those of the system if there are none.
pub type MakeFetch = Arc<dyn Fn(&[CertificateDer<'static>]) -> Arc<dyn Fetch> + Send + Sync>;

/// Reads documents over HTTPS.
pub struct HttpsFetch(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl HttpsFetch {
    /// Makes clients over HTTPS. It reads the CAs of the system once. Fails if TLS cannot be set up at all.
    pub fn maker() -> Result<MakeFetch, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        // A CA that cannot be read shows when a certificate cannot be verified.
        let of_system: Arc<dyn Fetch> =
            Arc::new(Self::new(tls.clone(), rustls_native_certs::load_native_certs().certs));
        Ok(Arc::new(move |authorities| {
            if authorities.is_empty() {
                Arc::clone(&of_system)
            } else {
                Arc::new(Self::new(tls.clone(), authorities.iter().cloned()))
            }
        }))
    }

    /// A client that trusts these CAs alone.
    fn new(
        tls: ConfigBuilder<ClientConfig, WantsVerifier>,
        authorities: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities);
        let tls = tls.with_root_certificates(roots).with_no_client_auth();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        // Requests are minutes apart: a connection that is kept would be dead by then.
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(HttpsConnector::from((http, tls)));
        Self(client)
    }

    async fn read(&self, url: Uri) -> Result<Bytes, FetchError> {
        let unreachable = |error: &(dyn std::error::Error + 'static)| FetchError::Unreachable {
            url: url.clone(),
            cause: causes(error),
        };
        let mut request = http::Request::new(Empty::new());
        *request.uri_mut() = url.clone();
        request
            .headers_mut()
            .insert(ACCEPT, http::HeaderValue::from_static("application/json"));
        let answer = self.0.request(request).await.map_err(|error| unreachable(&error))?;
        match answer.status() {
            StatusCode::OK => {}
            status if status.is_redirection() => return Err(FetchError::Redirect(url)),
            status => return Err(FetchError::Status { url, status }),
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        match body {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLarge(url)),
            Err(error) => Err(unreachable(&*error)),
        }
    }
}

impl Fetch for HttpsFetch {
    fn get(&self, url: Uri) -> BoxFuture<'_, Result<Bytes, FetchError>> {
        Box::pin(async move {
            if url.scheme_str() != Some("https") {
                return Err(FetchError::NotHttps(url));
            }
            let slow = FetchError::Slow(url.clone());
            timeout(TIME_MAX, self.read(url)).await.unwrap_or(Err(slow))
        })
    }
}

impl fmt::Debug for HttpsFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpsFetch")
    }
}

/// An error with all its causes, for the outermost one of a client says little.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
