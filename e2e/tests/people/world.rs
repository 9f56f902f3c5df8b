//! A provider whose server takes ID tokens of two issuers, a consumer, and a browser: all tests of the product share them.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bindery_e2e::{
    Consumer, ControlPlane, Provider, Workdir,
    browser::Browser,
    issuers::{CLIENT, Issuer, IssuerMake, IssuerSettings, Lifetimes},
    lease, manifests, process, run,
    wildwest::SOON,
};
use bindery_proto::v1alpha2::ErrorReason;
use bindery_sdk::{Client, Error};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, RwLock};

/// How long an ID token is valid. It is refreshed after three quarters of that.
pub(crate) const ID_TOKEN: Duration = Duration::from_secs(20);
/// What the server puts before the groups of people.
pub(crate) const PREFIX: &str = "people:";
/// The group that may bind template `cowboys`.
pub(crate) const RANCHERS: &str = "ranchers";
/// The group that may bind template `sheriffs`.
pub(crate) const MARSHALS: &str = "marshals";
/// The beginning of a JWT and of its claims: JSON in base64.
const JWT: [&str; 2] = ["eyJ", ".eyJ"];

/// Why it could not be started is told by every test: it is not tried again.
static WORLD: OnceCell<Result<World, String>> = OnceCell::const_new();

/// What the tests share. It lives as long as the process, whose end ends it.
pub(crate) struct World {
    /// The first server takes tokens of all issuers; the second one reads [`World::movable`].
    pub(crate) provider: Provider,
    pub(crate) consumer: Consumer,
    /// In the order of [`IssuerMake::ALL`]. Each test has users of its own.
    pub(crate) issuers: [Issuer; 2],
    pub(crate) browser: Browser,
    /// Folder with the configurations and the audit log of the servers.
    files: Workdir,
    /// Held alone by tests that count requests.
    quiet: RwLock<()>,
    heard: Mutex<Heard>,
}

/// What commands have printed so far, and the tokens that they kept.
#[derive(Default)]
struct Heard {
    printed: String,
    tokens: Vec<String>,
}

/// Runs a test beside others; if it fails, with what the servers and the konnector said last.
pub(crate) fn with_world(body: impl AsyncFnOnce(&'static World) -> Result<()>) -> Result<()> {
    run(async {
        let world = World::get().await?;
        let _beside = world.quiet.read().await;
        world.told(body(world).await)
    })
}

/// Runs a test while no other one calls a server or an issuer of [`World`].
pub(crate) fn with_quiet_world(body: impl AsyncFnOnce(&'static World) -> Result<()>) -> Result<()> {
    run(async {
        let world = World::get().await?;
        let _alone = world.quiet.write().await;
        world.told(body(world).await)
    })
}

/// The reason for which a call was refused.
pub(crate) fn reason<T>(outcome: Result<T, Error>) -> Result<ErrorReason> {
    match outcome {
        Ok(_) => bail!("the call is not refused"),
        Err(error) => error.reason().with_context(|| format!("no reason: {error}")),
    }
}

// === impl World ===

impl World {
    async fn get() -> Result<&'static Self> {
        let started = WORLD.get_or_init(async || Box::pin(Self::start()).await.map_err(|error| format!("{error:#}")));
        started.await.as_ref().map_err(anyhow::Error::msg)
    }

    async fn start() -> Result<Self> {
        let [first, second] = IssuerMake::ALL.map(started);
        let (first, second) = tokio::try_join!(first, second)?;
        let browser = Browser::start(&[first.identity(), second.identity()]).await?;
        let issuers = [first, second];
        let files = Workdir::new("people")?;
        let config = files.write("issuers.yaml", configuration(&issuers.each_ref())?)?;
        let audit = files.path().join("audit.log");
        let own = [
            format!("--authentication-config={}", config.display()),
            format!("--audit-log-path={}", audit.display()),
            "--log=info,bindery_server=debug".to_owned(),
        ];
        let flags: Vec<_> = own.iter().map(String::as_str).chain(lease::PATIENT).collect();
        let provider = async {
            let plane = ControlPlane::start_audited("people-p").await?;
            let provider = Provider::start_on(plane, &flags).await?;
            provider
                .plane
                .apply(&manifests::folder("examples/sheriffs/provider")?)
                .await?;
            anyhow::Ok(provider)
        };
        let consumer = Consumer::start_with("people-c", &lease::PATIENT);
        let (mut provider, consumer) = tokio::try_join!(provider, consumer)?;
        let movable = files.write("movable.yaml", configuration(&[&issuers[0]])?)?;
        provider.set_flag("--authentication-config", &movable.display().to_string());
        provider.start_server().await?;
        let world = Self {
            provider,
            consumer,
            issuers,
            browser,
            files,
            quiet: RwLock::default(),
            heard: Mutex::default(),
        };
        for (template, group) in [("cowboys", RANCHERS), ("sheriffs", MARSHALS)] {
            let group = format!("{PREFIX}{group}");
            world.admin(&["grant", template, "--group", &group]).await?;
        }
        Ok(world)
    }

    /// Has the second server take tokens of one issuer alone, as soon as it reads its file again.
    pub(crate) fn move_to(&self, issuer: &Issuer) -> Result<()> {
        self.files.write("movable.yaml", configuration(&[issuer])?).map(drop)
    }

    /// `kubectl bind provider ARGS` on the provider's cluster, as its admin.
    pub(crate) async fn admin(&self, args: &[&str]) -> Result<String> {
        let mut command = self.consumer.bind_command()?;
        command.arg("provider").args(args);
        command
            .arg("--provider-kubeconfig")
            .arg(self.provider.plane.kubeconfig_path());
        let output = process::run(command, SOON).await?;
        process::stdout(&output).with_context(|| format!("kubectl bind provider {}", args.join(" ")))
    }

    /// How many templates the provider has.
    pub(crate) async fn template_count(&self) -> Result<usize> {
        let list = ["get", "apiserviceexporttemplates", "-o", "name"];
        Ok(self.provider.plane.kubectl(&list).await?.lines().count())
    }

    /// A client of the first server with this token.
    pub(crate) fn client(&self, token: &str) -> Result<Client> {
        let builder = Client::builder(self.provider.address()).ca_pem(self.provider.plane.ca_pem());
        Ok(builder.token(token).build()?)
    }

    /// The CA of the servers.
    pub(crate) fn ca_path(&self) -> PathBuf {
        self.provider.ca_path()
    }

    /// Notes what a command has printed, in which no token may be.
    pub(crate) fn heard(&self, printed: &str) {
        self.heard.lock().printed.push_str(printed);
    }

    /// Notes tokens, which nothing may print.
    pub(crate) fn kept(&self, tokens: impl IntoIterator<Item = String>) {
        self.heard.lock().tokens.extend(tokens);
    }

    fn told(&self, outcome: Result<()>) -> Result<()> {
        outcome.and_then(|()| self.nothing_holds_a_token()).map_err(|error| {
            let programs = self.provider.servers.iter().chain(&self.consumer.konnectors);
            let tails: Vec<_> = programs
                .map(|program| format!("{}:\n{}", program.name(), program.tail()))
                .collect();
            anyhow!("{error:#}\n\n{}", tails.join("\n"))
        })
    }

    /// That no token is in what commands printed, in the logs of the programs and of the issuers, and in the audit log.
    fn nothing_holds_a_token(&self) -> Result<()> {
        let programs = self.provider.servers.iter().chain(&self.consumer.konnectors);
        let logs = programs.map(|program| (program.name().to_owned(), program.log()));
        let issuers = self.issuers.iter();
        let issuers = issuers.map(|issuer| (issuer.make().name().to_owned(), issuer.log()));
        let audit = std::fs::read_to_string(self.files.path().join("audit.log"))?;
        let heard = self.heard.lock();
        let others = [
            ("the audit log".to_owned(), audit),
            ("the output of commands".to_owned(), heard.printed.clone()),
        ];
        for (place, text) in logs.chain(issuers).chain(others) {
            let found = heard.tokens.iter().find(|token| text.contains(token.as_str()));
            ensure!(found.is_none(), "{place} holds a token");
            ensure!(!has_jwt(&text), "{place} holds a JWT");
        }
        Ok(())
    }
}

/// Whether a word of a text looks like a JWT.
fn has_jwt(text: &str) -> bool {
    let [header, claims] = JWT;
    text.split(|char: char| !(char.is_ascii_alphanumeric() || "-_.".contains(char)))
        .any(|word| word.find(header).is_some_and(|at| word[at..].contains(claims)))
}

async fn started(make: IssuerMake) -> Result<Issuer> {
    let seconds = u32::try_from(ID_TOKEN.as_secs())?;
    let settings = IssuerSettings {
        lifetimes: Lifetimes {
            id_token: seconds,
            access_token: seconds,
            ..Lifetimes::default()
        },
        ..IssuerSettings::default()
    };
    Issuer::start_with(make, settings).await
}

/// The configuration by which a server takes tokens of these issuers.
fn configuration(issuers: &[&Issuer]) -> Result<String> {
    let jwt = |issuer: &&Issuer| -> Value {
        json!({
            "issuer": {"url": issuer.url(), "audiences": [CLIENT], "certificateAuthority": issuer.ca()},
            "claimMappings": {
                "username": {"claim": "email", "prefix": ""},
                "groups": {"claim": "groups", "prefix": PREFIX},
            },
        })
    };
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": issuers.iter().map(jwt).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&config)?)
}

#[test]
fn a_jwt_is_found_in_a_text() {
    assert!(has_jwt("Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0.c2ln\n"));
    assert!(has_jwt("token=eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0"));
    assert!(!has_jwt("eyJhbGciOiJub25lIn0 and .eyJpc3MiOiJ4In0"));
}
