//! The programs work inside their images: without a shell, as a user without rights, and with a root that nobody can write to.
//!
//! Each test has a network of its own, in which port 53 is that of its own DNS server.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    NetworkNamespace, Process, Workdir,
    container::{Container, Mount},
    eventually, images,
    pki::{Authority, Identity},
    process, run,
};
use bindery_image::{Image, Program};
use jiff::civil::{Date, date};
use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use crate::responder::Responder;

const HOST: &str = "provider.bindery.test";
const DNS_PORT: u16 = 53;
const EXPIRED: Date = date(2020, 1, 1);
const HTTPS_PORT: u16 = 443;
const LIMIT: Duration = Duration::from_mins(1);
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The programs that connect to an address that the user gives, with what they use to do so: gRPC, and the Kubernetes API.
const CLIENTS: [&str; 2] = ["kubectl-bind", "synk"];

/// An image in a network that has a DNS server and a TLS server.
struct World {
    folder: Workdir,
    image: Image,
    network: NetworkNamespace,
    dns: Responder,
    /// How TLS handshakes ended: with the name that the client asked for, or with what it said.
    handshakes: Arc<Mutex<Vec<Result<String, String>>>>,
}

impl World {
    fn start(program: &str, identity: &Identity) -> Result<Self> {
        let folder = Workdir::new("image")?;
        let image = images::open(program)?;
        images::unpack(&image, &folder.path().join("root"))?;
        let network = NetworkNamespace::new()?;
        let socket = network.run(|| Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, DNS_PORT))?))?;
        let listener = network.run(|| Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, HTTPS_PORT))?))?;
        let handshakes = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(serve(listener, tls(identity)?, Arc::clone(&handshakes)));
        folder.write_shared("resolv.conf", format!("nameserver {}\n", Ipv4Addr::LOCALHOST))?;
        folder.write_shared("hosts", "127.0.0.1 localhost\n")?;
        Ok(Self {
            dns: Responder::start(socket, HOST),
            folder,
            image,
            network,
            handshakes,
        })
    }

    /// Starts the program of the image so that it connects to the host.
    fn connect(&self, mounts: Vec<Mount>) -> Result<Process> {
        let url = format!("https://{HOST}:{HTTPS_PORT}");
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": url}}],
            "users": [{"name": "it", "user": {"token": "secret"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        let mut files = vec![
            ("/etc/resolv.conf", self.folder.path().join("resolv.conf")),
            ("/etc/hosts", self.folder.path().join("hosts")),
            (
                "/config/kubeconfig",
                self.folder.write_shared("kubeconfig", kubeconfig.to_string())?,
            ),
            ("/config/token", self.folder.write_shared("token", "secret")?),
        ];
        let args = match self
            .image
            .configuration()
            .config()
            .as_ref()
            .and_then(|it| it.entrypoint().clone())
        {
            Some(words) if words == ["/usr/bin/synk"] => vec!["status"],
            _ => vec!["templates", "--server", &url, "--token-file", "/config/token"],
        };
        let mut container = Container::of(&self.image, &self.folder.path().join("root"), &args)?;
        let kubeconfig = ("KUBECONFIG".to_owned(), "/config/kubeconfig".to_owned());
        container.env.extend([kubeconfig]);
        container.mounts = files
            .drain(..)
            .map(|(target, source)| Mount::read_only(source, target))
            .collect();
        container.mounts.extend(mounts);
        let command = container.command()?;
        let mut process = self.network.run(move || Process::spawn("client", &command))?;
        process.hush();
        Ok(process)
    }

    /// Waits until a handshake has ended.
    async fn handshake(&self, process: &Process) -> Result<Result<String, String>> {
        eventually("the program to connect", LIMIT, async || {
            let first = self.handshakes.lock().first().cloned();
            ensure!(first.is_some(), "it said: {}", process.log());
            Ok(first)
        })
        .await
    }

    /// The bundle of public CAs, with another one behind it.
    fn bundle_with(&self, authority: &Authority) -> Result<Mount> {
        let public = fs::read_to_string(self.folder.path().join("root").join(&BUNDLE[1..]))?;
        let both = self.folder.write_shared("bundle", public + &authority.pem())?;
        Ok(Mount::read_only(both, BUNDLE))
    }
}

fn tls(identity: &Identity) -> Result<TlsAcceptor> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Records handshakes, and closes each connection after its handshake.
async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: Arc<Mutex<Vec<Result<String, String>>>>,
) -> Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let outcome = match acceptor.accept(stream).await {
            // A client that trusts the server sends its request; one that does not, says so.
            Ok(mut stream) => match tokio::io::AsyncReadExt::read_u8(&mut stream).await {
                Ok(_) => Ok(stream.get_ref().1.server_name().unwrap_or_default().to_owned()),
                Err(error) => Err(error.to_string()),
            },
            Err(error) => Err(error.to_string()),
        };
        handshakes.lock().push(outcome);
    }
}

#[test]
fn each_program_starts_in_its_image() -> Result<()> {
    run(async {
        for program in Program::ALL {
            let folder = Workdir::new("image")?;
            let image = images::open(program.name)?;
            images::unpack(&image, folder.path())?;
            let container = Container::of(&image, folder.path(), &["--version"])?;
            let output = process::run(container.command()?, LIMIT).await?;
            let version = process::stdout(&output).with_context(|| format!("{} --version", program.name))?;
            ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
        }
        Ok(())
    })
}

#[test]
fn names_are_looked_up_by_dns_and_public_authorities_are_trusted() -> Result<()> {
    run(async {
        for program in CLIENTS {
            let authority = Authority::new("public")?;
            let world = World::start(program, &authority.server(&[HOST])?)?;
            let process = world.connect(vec![world.bundle_with(&authority)?])?;
            let outcome = world.handshake(&process).await?;
            assert_eq!(outcome.as_deref(), Ok(HOST), "{program}: {}", process.log());
            ensure!(
                world.dns.asked().contains(&HOST.to_owned()),
                "{program} asked no DNS server"
            );
        }
        Ok(())
    })
}

#[test]
fn an_authority_that_is_not_in_the_bundle_is_not_trusted() -> Result<()> {
    run(async {
        for program in CLIENTS {
            let world = World::start(program, &Authority::new("unknown")?.server(&[HOST])?)?;
            let process = world.connect(Vec::new())?;
            let outcome = world.handshake(&process).await?;
            let said = outcome.err().with_context(|| format!("{program} trusts it"))?;
            ensure!(said.contains("UnknownCA"), "{program}: {said}: {}", process.log());
        }
        Ok(())
    })
}

#[test]
fn time_is_known_so_that_expired_certificates_are_refused() -> Result<()> {
    run(async {
        for program in CLIENTS {
            let authority = Authority::new("public")?;
            let world = World::start(program, &authority.server_until(&[HOST], EXPIRED)?)?;
            let process = world.connect(vec![world.bundle_with(&authority)?])?;
            let outcome = world.handshake(&process).await?;
            let said = outcome.err().with_context(|| format!("{program} trusts it"))?;
            ensure!(
                said.contains("CertificateExpired"),
                "{program}: {said}: {}",
                process.log()
            );
        }
        Ok(())
    })
}

#[test]
fn names_of_the_hosts_file_come_before_dns() -> Result<()> {
    run(async {
        let authority = Authority::new("public")?;
        let world = World::start("kubectl-bind", &authority.server(&[HOST])?)?;
        world
            .folder
            .write_shared("hosts", format!("127.0.0.1 localhost {HOST}\n"))?;
        let process = world.connect(vec![world.bundle_with(&authority)?])?;
        assert_eq!(world.handshake(&process).await?.as_deref(), Ok(HOST));
        assert_eq!(world.dns.asked(), Vec::<String>::new());
        Ok(())
    })
}

#[test]
fn a_program_cannot_write_to_its_root_and_has_no_rights() -> Result<()> {
    run(async {
        let folder = Workdir::new("image")?;
        let image = images::open("synk")?;
        images::unpack(&image, folder.path())?;
        // A shell of this machine shows how a program of the image runs.
        let mut container = Container::of(&image, folder.path(), &[])?;
        container.env.insert("PATH".to_owned(), "/bin".to_owned());
        container.mounts = ["/bin", "/lib", "/lib64"]
            .map(|path| Mount::read_only(path, path))
            .into();
        container.args = ["/bin/sh", "-c", "cat /proc/self/status; : >/written"]
            .map(str::to_owned)
            .into();
        let output = process::run(container.command()?, LIMIT).await?;
        let status = String::from_utf8_lossy(&output.stdout);
        for expected in [
            "Uid:\t65532\t65532\t65532\t65532",
            "Groups:\t65532 \n",
            "CapEff:\t0000000000000000",
            "NoNewPrivs:\t1",
        ] {
            ensure!(status.contains(expected), "{expected:?} is missing in {status}");
        }
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(said.contains("Read-only file system"), "{said}");
        Ok(())
    })
}
