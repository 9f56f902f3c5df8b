//! Issuers of ID tokens: two OpenID Connect providers of independent make, on loopback with TLS.
//!
//! Programs are the package `oidc-provider` for Node.js and the package `github.com/zitadel/oidc` for Go. Both offer the code flow with
//! PKCE, the device flow, refresh tokens and revocation to public clients, and have the claims of a user in the ID token. In front of
//! each stands a proxy of the tests, which has the address, terminates TLS, counts requests and plays an outage.

mod front;
mod settings;

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use http::Method;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use self::front::Front;
pub use self::{
    front::{PlannedAnswer, SeenRequest},
    settings::{CLIENT, IssuerSettings, IssuerUser, Lifetimes, OTHER_CLIENT},
};
use crate::{
    Process, Workdir, binaries,
    https::HttpsClient,
    pki::{Authority, Identity},
};

const START_TIMEOUT: Duration = Duration::from_mins(1);
/// The path of the discovery document below the URL of an issuer.
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// The source files of the issuer that runs on Node.js.
const NODE_SOURCES: [(&str, &str); 4] = [
    ("main.mjs", include_str!("../issuers/node/main.mjs")),
    ("control.mjs", include_str!("../issuers/node/control.mjs")),
    ("pages.mjs", include_str!("../issuers/node/pages.mjs")),
    ("provider.mjs", include_str!("../issuers/node/provider.mjs")),
];

/// Who made an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssuerMake {
    /// The npm package `oidc-provider`. Its access tokens are opaque. It gives a refresh token in the code flow only to a client that asks
    /// for `prompt=consent`.
    OidcProvider,
    /// The Go package `github.com/zitadel/oidc/v3/pkg/op`. Its access tokens are JWTs, signed by the key of the ID tokens and with the
    /// client as the audience.
    Zitadel,
}

/// A running issuer. It ends on drop.
#[derive(Debug)]
pub struct Issuer {
    make: IssuerMake,
    front: Front,
    authority: Authority,
    identity: Identity,
    ca_file: PathBuf,
    https: HttpsClient,
    control: String,
    settings: Mutex<IssuerSettings>,
    discovery: Value,
    process: Process,
    /// Removed when the process has ended.
    _workdir: Workdir,
}

/// The line by which an issuer tells its ports.
#[derive(Deserialize)]
struct Ports {
    issuer: u16,
    control: u16,
}

impl IssuerMake {
    /// All makes. What works with one must work with each.
    pub const ALL: [Self; 2] = [Self::OidcProvider, Self::Zitadel];

    /// The name of the program, which has no spaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::OidcProvider => "oidc-provider",
            Self::Zitadel => "zitadel-oidc",
        }
    }

    fn command(self, workdir: &Workdir) -> Result<Command> {
        match self {
            Self::Zitadel => Ok(Command::new(binaries::zitadel_issuer()?)),
            Self::OidcProvider => {
                let installed = binaries::node_issuer()?;
                symlink(installed.join("node_modules"), workdir.path().join("node_modules"))?;
                // Beside the packages, where Node.js looks for them.
                workdir.write("package.json", include_str!("../issuers/node/package.json"))?;
                for (name, source) in NODE_SOURCES {
                    workdir.write(name, source)?;
                }
                let mut command = Command::new("node");
                command.arg("main.mjs").current_dir(workdir.path());
                Ok(command)
            }
        }
    }
}

impl Issuer {
    /// Starts an issuer with the default settings and these users.
    pub async fn start(make: IssuerMake, users: &[IssuerUser]) -> Result<Self> {
        let users = users.to_vec();
        let settings = IssuerSettings {
            users,
            ..IssuerSettings::default()
        };
        Self::start_with(make, settings).await
    }

    /// Starts an issuer with settings.
    pub async fn start_with(make: IssuerMake, settings: IssuerSettings) -> Result<Self> {
        let workdir = Workdir::new(make.name())?;
        let authority = Authority::new(&format!("{} test CA", make.name()))?;
        let identity = authority.server(&["127.0.0.1", "localhost"])?;
        let ca_file = workdir.write("ca.crt", authority.pem())?;
        let https = HttpsClient::new(&authority.pem())?;
        let front = Front::listen(&identity).await?;
        let url = front.url();
        let config = workdir.write("issuer.json", settings.to_json(&url).to_string())?;
        let (mut command, workdir) = spawn_blocking(move || make.command(&workdir).map(|it| (it, workdir))).await??;
        // A log of its own: the line with the ports of another issuer that starts at the same time must not be taken for its own.
        let name = format!("{}-{}", make.name(), url.rsplit(':').next().unwrap_or_default());
        let mut process = Process::spawn(&name, command.arg(config))?;
        let line = process.wait_for_line("\"control\":", START_TIMEOUT).await?;
        let ports: Ports = serde_json::from_str(&line)?;
        front.forward_to(ports.issuer);
        let discovery = https.get(&format!("{url}{DISCOVERY}")).await?.success()?.json()?;
        front.forget_requests();
        Ok(Self {
            make,
            front,
            authority,
            identity,
            ca_file,
            https,
            control: format!("http://127.0.0.1:{}", ports.control),
            settings: Mutex::new(settings),
            discovery,
            process,
            _workdir: workdir,
        })
    }

    /// Who made the issuer.
    pub fn make(&self) -> IssuerMake {
        self.make
    }

    /// The issuer's identifier, which is its URL.
    pub fn url(&self) -> String {
        self.front.url()
    }

    /// The CA that signed the certificate of the issuer, as PEM.
    pub fn ca(&self) -> String {
        self.authority.pem()
    }

    /// A file with [`Issuer::ca`].
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// The serving certificate with its key, which a browser can be told to trust.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A client that trusts the issuer.
    pub fn https(&self) -> &HttpsClient {
        &self.https
    }

    /// The discovery document, as it was at the start.
    pub fn discovery(&self) -> &Value {
        &self.discovery
    }

    /// The URL of an endpoint by its name in the discovery document, such as `token_endpoint` or `jwks_uri`. The discovery document itself
    /// is `discovery`.
    pub fn endpoint(&self, name: &str) -> Result<String> {
        if name == "discovery" {
            return Ok(format!("{}{DISCOVERY}", self.url()));
        }
        let url = self.discovery.get(name).and_then(Value::as_str);
        Ok(url
            .with_context(|| format!("{} has no {name}", self.make.name()))?
            .to_owned())
    }

    /// Adds a user, or replaces the one of the same name.
    pub async fn set_user(&self, user: IssuerUser) -> Result<()> {
        self.settings.lock().set_user(user);
        self.push_users().await
    }

    /// Changes one claim of a user, such as `groups`. `Value::Null` removes it. ID tokens have it from the next login or refresh on.
    pub async fn set_claim(&self, user: &str, claim: &str, value: Value) -> Result<()> {
        self.settings.lock().set_claim(user, claim, value)?;
        self.push_users().await
    }

    /// Changes the groups of a user.
    pub async fn set_groups(&self, user: &str, groups: &[&str]) -> Result<()> {
        self.set_claim(user, "groups", json!(groups)).await
    }

    /// Removes a user, who can then neither sign in nor refresh.
    pub async fn remove_user(&self, user: &str) -> Result<()> {
        self.settings.lock().users.retain(|known| known.name != user);
        self.push_users().await
    }

    /// Changes the lifetimes of what is issued from now on. The device flow goes on telling the `expires_in` of the start.
    pub async fn set_lifetimes(&self, lifetimes: Lifetimes) -> Result<()> {
        self.settings.lock().lifetimes = lifetimes;
        self.control(Method::PUT, "lifetimes", serde_json::to_value(lifetimes)?)
            .await
    }

    /// Makes a new key, which signs from now on. The former keys are published for as long as the issuer runs if `keep`, else no more.
    pub async fn rotate_keys(&self, keep: bool) -> Result<()> {
        self.control(Method::POST, "rotate", json!({"keep": keep})).await
    }

    /// Stops the issuer for its clients: connections end, and new ones are refused. Its sessions, tokens and keys are kept.
    pub async fn stop(&mut self) {
        self.front.close().await;
    }

    /// Listens again at the same address after [`Issuer::stop`].
    pub async fn start_again(&mut self) -> Result<()> {
        self.front.open().await
    }

    /// Accepts connections from now on and answers no request, until [`Issuer::answer_again`].
    pub fn fall_silent(&self) {
        self.front.set_silent(true);
    }

    /// Answers new requests again after [`Issuer::fall_silent`]. Those that came meanwhile never get an answer.
    pub fn answer_again(&self) {
        self.front.set_silent(false);
    }

    /// Answers the next requests to an endpoint in place of the issuer, `times` times. [`Issuer::endpoint`] tells the names of endpoints.
    pub fn plan_answer(&self, endpoint: &str, times: usize, answer: PlannedAnswer) -> Result<()> {
        self.front.plan(path_of(&self.endpoint(endpoint)?)?, times, answer);
        Ok(())
    }

    /// Forgets what [`Issuer::plan_answer`] planned.
    pub fn forget_plans(&self) {
        self.front.forget_plans();
    }

    /// All requests since the start or [`Issuer::forget_requests`].
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.front.requests()
    }

    /// How many requests there were to an endpoint since the start or [`Issuer::forget_requests`].
    pub fn count(&self, endpoint: &str) -> Result<usize> {
        let path = path_of(&self.endpoint(endpoint)?)?;
        Ok(self.requests().iter().filter(|request| request.path == path).count())
    }

    /// Forgets the requests so far.
    pub fn forget_requests(&self) {
        self.front.forget_requests();
    }

    /// What the program has written to its log.
    pub fn log(&self) -> String {
        self.process.log()
    }

    async fn push_users(&self) -> Result<()> {
        let users = serde_json::to_value(&self.settings.lock().users)?;
        self.control(Method::PUT, "users", users).await
    }

    async fn control(&self, method: Method, action: &str, content: Value) -> Result<()> {
        let url = format!("{}/{action}", self.control);
        let answer = self.https.send_json(method, &url, &content).await?;
        ensure!(
            answer.status.is_success(),
            "{url}: {}: {}",
            answer.status,
            answer.text()
        );
        Ok(())
    }
}

/// The path of a URL, without its query.
fn path_of(url: &str) -> Result<String> {
    let uri: http::Uri = url.parse().with_context(|| format!("{url:?} is no URL"))?;
    Ok(uri.path().to_owned())
}
