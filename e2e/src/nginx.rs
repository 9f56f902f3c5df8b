//! nginx before a server, which speaks HTTP/1.1 only, as the page on proxies has it.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tokio::{net::TcpStream, task::spawn_blocking};

use crate::{Process, Workdir, binaries, eventually, pki::Identity, provider::free_port};

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// What surrounds the server of the page. One process serves all, so that its end is the end of all connections.
const FRAME: &str = "daemon off;
master_process off;
pid WORKDIR/nginx.pid;
events {}
http {
    log_format calls '$server_protocol $request_method $uri $http_content_type $status';
    access_log WORKDIR/access.log calls;
    client_body_temp_path WORKDIR/body;
    proxy_temp_path WORKDIR/proxy;
    fastcgi_temp_path WORKDIR/fastcgi;
    uwsgi_temp_path WORKDIR/uwsgi;
    scgi_temp_path WORKDIR/scgi;
";

/// A running nginx. It ends with this value.
#[derive(Debug)]
pub struct Nginx {
    port: u16,
    folder: PathBuf,
    workdir: Workdir,
    process: Option<Process>,
}

impl Nginx {
    /// Unpacks nginx and chooses its port; it is started by [`Nginx::start`].
    pub async fn prepare() -> Result<Self> {
        Ok(Self {
            port: free_port()?,
            folder: spawn_blocking(binaries::nginx).await??,
            workdir: Workdir::new("nginx")?,
            process: None,
        })
    }

    /// The URL of the server behind it.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}/bindery", self.port)
    }

    /// Writes the configuration of `docs/reference/proxies.md` for a server at `backend`, as in `127.0.0.1:8443`, whose certificate is of
    /// `ca`. nginx itself has the certificate `own`. The page's names and paths are replaced; `change` may change more.
    pub fn configure(&self, own: &Identity, ca: &Path, backend: &str, change: impl Fn(String) -> String) -> Result<()> {
        let path = self.workdir.path();
        self.workdir.write("own.crt", &own.certificate)?;
        self.workdir.write("own.key", &own.key)?;
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/proxies.md");
        let page = fs::read_to_string(page)?;
        let block = page
            .split("```nginx\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let mut server = block.context("the page has no configuration of nginx")?.to_owned();
        for (shown, here) in [
            ("listen 443 ssl;", format!("listen 127.0.0.1:{} ssl;", self.port)),
            ("server_name example.com;", "server_name 127.0.0.1;".to_owned()),
            ("/etc/nginx/tls.crt", path.join("own.crt").display().to_string()),
            ("/etc/nginx/tls.key", path.join("own.key").display().to_string()),
            ("/etc/nginx/bindery-ca.crt", ca.display().to_string()),
            ("bindery-server.kube-bind.svc:8443", backend.to_owned()),
            (
                "proxy_ssl_name bindery-server.kube-bind.svc;",
                "proxy_ssl_name localhost;".to_owned(),
            ),
        ] {
            ensure!(server.contains(shown), "the configuration of the page lacks {shown:?}");
            server = server.replace(shown, &here);
        }
        let frame = FRAME.replace("WORKDIR", &path.display().to_string());
        self.workdir
            .write("nginx.conf", format!("{frame}{}}}\n", change(server)))?;
        Ok(())
    }

    /// Starts it, also again after [`Nginx::stop`], and waits until it accepts connections.
    pub async fn start(&mut self) -> Result<()> {
        let libraries = ["usr/lib", "lib"].map(|lib| {
            let folder = self.folder.join(lib).join(format!("{}-linux-gnu", env::consts::ARCH));
            folder.display().to_string()
        });
        let mut command = Command::new(self.folder.join("usr/sbin/nginx"));
        command.arg("-p").arg(self.workdir.path()).args(["-e", "stderr", "-c"]);
        command.arg(self.workdir.path().join("nginx.conf"));
        command.env("LD_LIBRARY_PATH", libraries.join(":"));
        let process = self.process.insert(Process::spawn("nginx", &command)?);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let listening = eventually("nginx to listen", START_TIMEOUT, async || {
            ensure!(process.is_running(), "nginx ended:\n{}", process.tail());
            Ok(TcpStream::connect(address).await.ok().map(drop))
        });
        listening.await
    }

    /// Kills it, and all connections with it.
    pub fn stop(&mut self) -> Result<()> {
        match &mut self.process {
            Some(process) => process.kill9(),
            None => Ok(()),
        }
    }

    /// The requests that it has passed on and that have ended: protocol, HTTP method, path, content type and status of each.
    pub fn requests(&self) -> Result<Vec<String>> {
        let log = fs::read_to_string(self.workdir.path().join("access.log"))?;
        Ok(log.lines().map(ToOwned::to_owned).collect())
    }
}
