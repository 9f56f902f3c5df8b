use std::net::SocketAddr;

use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Serves one answer to each connection, over TLS.
async fn serve(answer: Vec<u8>) -> (SocketAddr, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("a key");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut request = vec![0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(&answer).await;
            let _ = stream.shutdown().await;
        }
    });
    (address, certificate)
}

fn ok(body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend(body);
    answer
}

async fn fetch(answer: Vec<u8>) -> Result<Bytes, String> {
    let (address, certificate) = serve(answer).await;
    let fetch = HttpsFetch::maker().expect("TLS")(&[certificate]);
    let url = format!("https://localhost:{}/keys", address.port())
        .parse()
        .expect("a URL");
    fetch.get(url).await.map_err(|error| error.to_string())
}

#[track_caller]
fn check(outcome: Result<Bytes, String>, reason: &str) {
    let error = outcome.expect_err("an error");
    assert!(error.contains(reason), "{error}");
}

#[tokio::test]
async fn only_a_whole_answer_of_limited_size_is_taken() {
    assert_eq!(fetch(ok(b"{}")).await.as_deref(), Ok(&b"{}"[..]));
    check(
        fetch(ok(&vec![b' '; 10 * 1024 * 1024])).await,
        "is larger than 1048576 bytes",
    );
    let redirect = b"HTTP/1.1 302 Found\r\nlocation: https://example.com/\r\ncontent-length: 0\r\n\r\n";
    check(fetch(redirect.to_vec()).await, "answers with a redirect");
    let error = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    check(fetch(error.to_vec()).await, "answers 503");
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
    check(fetch(cut.to_vec()).await, "cannot be reached");
    check(fetch(b"nonsense\r\n\r\n".to_vec()).await, "cannot be reached");
}

#[tokio::test]
async fn only_an_issuer_with_the_right_certificate_is_asked() {
    let (address, _) = serve(ok(b"{}")).await;
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let url = |scheme: &str| {
        format!("{scheme}://localhost:{}/", address.port())
            .parse::<Uri>()
            .expect("a URL")
    };
    let stranger = HttpsFetch::maker().expect("TLS")(&[other.cert.der().clone()]);
    check(
        stranger.get(url("https")).await.map_err(|error| error.to_string()),
        "cannot be reached",
    );
    let of_system = HttpsFetch::maker().expect("TLS")(&[]);
    check(
        of_system.get(url("https")).await.map_err(|error| error.to_string()),
        "invalid peer certificate",
    );
    check(
        of_system.get(url("http")).await.map_err(|error| error.to_string()),
        "is not an https URL",
    );
}

#[tokio::test]
async fn an_issuer_that_never_answers_is_given_up() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!(
        "https://localhost:{}/",
        listener.local_addr().expect("an address").port()
    );
    let fetch = HttpsFetch::maker().expect("TLS")(&[]);
    tokio::time::pause();
    check(
        fetch
            .get(url.parse().expect("a URL"))
            .await
            .map_err(|error| error.to_string()),
        "did not answer within 10s",
    );
}
