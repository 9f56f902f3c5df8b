//! Over loopback: whom the client trusts, and what it says where it cannot.

use std::net::SocketAddr;
use std::time::Duration;

use bindery_proto::v1alpha2::{GetProviderResponse, Provider};
use bindery_sdk::{Client, ClientBuilder, Error, RetryPolicy, TransportFault};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::server::{Script, message};

/// Serves GetProvider on a loopback port, for ever.
async fn serve(tls: Option<ServerTlsConfig>) -> SocketAddr {
    let answer = || {
        vec![message(&GetProviderResponse {
            provider: Some(Provider::default()),
        })]
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut server = Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).expect("a key and its certificate");
    }
    let router = Script::new((0..9).map(|_| answer())).add_to(server);
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

/// A CA, and a server's TLS with a certificate of it for this name.
pub(crate) fn certify(name: &str) -> (String, ServerTlsConfig) {
    let key = || KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(vec![]).expect("parameters");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, key()).expect("a CA");
    let leaf_key = key();
    let leaf = CertificateParams::new(vec![name.to_owned()])
        .expect("a name")
        .signed_by(&leaf_key, &ca)
        .expect("a leaf");
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(leaf.pem(), leaf_key.serialize_pem()));
    (ca.pem(), tls)
}

fn once(address: String) -> ClientBuilder {
    Client::builder(address).retry(RetryPolicy {
        attempts: 1,
        ..RetryPolicy::default()
    })
}

async fn check(builder: ClientBuilder, expect: Result<(), (TransportFault, &str)>) {
    let client = builder.build().expect("settings that could work");
    let got = client.get_provider().await;
    let fault = match &got {
        Err(Error::Transport(error)) => Err(error.fault),
        other => Ok(other.is_ok()),
    };
    assert_eq!(fault, expect.map(|()| true).map_err(|(fault, _)| fault), "{got:?}");
    if let (Err(error), Err((_, advice))) = (got, expect) {
        let text = error.to_string();
        assert!(
            text.contains(advice) && text.contains(&client.address().to_string()),
            "{text}"
        );
    }
}

#[tokio::test]
async fn trusts_the_given_ca_and_name_alone() {
    let (ca, tls) = certify("127.0.0.1");
    let address = format!("https://{}", serve(Some(tls)).await);
    check(once(address.clone()).ca_pem(ca.clone()), Ok(())).await;
    let (other_ca, _) = certify("127.0.0.1");
    check(
        once(address.clone()).ca_pem(other_ca),
        Err((TransportFault::CertificateUntrusted, "CA's certificate")),
    )
    .await;
    check(
        once(address).ca_pem(ca).server_name("bind.example.com"),
        Err((TransportFault::CertificateName, "another name")),
    )
    .await;

    let (ca, tls) = certify("bind.example.com");
    let address = format!("https://{}", serve(Some(tls)).await);
    check(
        once(address.clone()).ca_pem(ca.clone()),
        Err((TransportFault::CertificateName, "another name")),
    )
    .await;
    check(once(address).ca_pem(ca).server_name("bind.example.com"), Ok(())).await;
}

#[tokio::test]
async fn presents_a_client_certificate_where_one_is_required() {
    let (ca, tls) = certify("127.0.0.1");
    let made = || rcgen::generate_simple_self_signed(vec!["client".to_owned()]).expect("a certificate");
    let (known, unknown) = (made(), made());
    let tls = tls.client_ca_root(Certificate::from_pem(known.cert.pem()));
    let address = format!("https://{}", serve(Some(tls)).await);
    let with = |client: &rcgen::CertifiedKey<KeyPair>| {
        let key = client.signing_key.serialize_pem().into_bytes();
        once(address.clone())
            .ca_pem(ca.clone())
            .client_certificate_pem(client.cert.pem(), key)
    };
    check(with(&known), Ok(())).await;
    let refused = Err((TransportFault::ClientCertificate, "present a valid one"));
    check(with(&unknown), refused).await;
    check(once(address.clone()).ca_pem(ca.clone()), refused).await;
}

#[tokio::test]
async fn tells_plaintext_from_tls() {
    let (ca, tls) = certify("127.0.0.1");
    let plaintext = serve(None).await;
    check(once(format!("http://{plaintext}")).allow_plaintext(true), Ok(())).await;
    let speaks_none = Err((TransportFault::ServerIsPlaintext, "speaks no TLS"));
    check(once(format!("https://{plaintext}")).ca_pem(ca), speaks_none).await;
    let encrypted = serve(Some(tls)).await;
    let dial_https = Err((TransportFault::Broken, "dial https://"));
    check(once(format!("http://{encrypted}")).allow_plaintext(true), dial_https).await;
}

#[tokio::test]
async fn a_refused_connection_says_what_to_check() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let refused = Err((TransportFault::Refused, "check host and port"));
    check(once(format!("http://{address}")).allow_plaintext(true), refused).await;
    let unknown = Err((TransportFault::NameUnknown, "check its spelling"));
    // Resolvers may take their time to say so.
    let patient = Duration::from_mins(1);
    let nowhere = once("https://no-such-host.invalid".to_owned()).ca_pem(certify("x").0);
    check(
        nowhere
            .connect_timeout(patient)
            .attempt_timeout(patient)
            .timeout(patient),
        unknown,
    )
    .await;
}
