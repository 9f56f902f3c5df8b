//! `login`: logs a person in at the issuer of a server, and keeps the login.

use std::{
    io::{IsTerminal as _, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use bindery_proto::v1alpha2::{Caller, ErrorReason, Provider as Described};
use bindery_sdk::Code;
use serde_json::json;
use tokio::sync::mpsc;

use super::{Context, logout};
use crate::{
    args::LoginArgs,
    claims::is_plain_yes,
    errors::Failure,
    login::{
        browser::Surroundings,
        choice::{self, Consent, Flow, Named, Offer},
        code::{Attempt, Loopback, RedirectAddress, pasted_lines},
        device::{self, Instructions},
        error::LoginError,
        issuer::Issuer,
        store::{IssuerPin, KnownServer, StoredTokens},
    },
    provider::{Authority, Backend, Login, Provider, ProviderError},
    render::{
        output::{Format, printable},
        steps::{Steps, tell},
    },
};

/// How long the user has to log in with a browser, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(5);

/// The feature of servers that say who the caller is.
const GET_CALLER: &str = "get-caller";

/// `kubectl bind login [URL]`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &LoginArgs) -> Result<(), Failure> {
    let Context { settings, steps, .. } = context;
    let backend = settings
        .any_backend()
        .ok_or_else(|| Failure::Usage("name the server: kubectl bind login https://bind.example.com".to_owned()))?;
    let server = backend.address.to_string();
    let servers = settings.folder.servers()?;
    let file = settings.folder.tokens(&backend.address)?;
    // A login that cannot be kept is refused before the user is sent to the issuer.
    file.check_writable()?;
    let described = Provider::new(backend, settings.timeout)?.describe().await?;
    let authority = args.issuer_ca.as_deref().map(absolute).transpose()?;
    let named = Named {
        issuer: args.issuer.as_deref(),
        client_id: args.client_id.as_deref(),
        authority: authority.as_deref(),
    };
    let offer = choice::issuer(&server, &described, &servers, named)?;
    tell(&format!(
        "{} at {server} lets you log in at {} (host {}), client {}",
        described.pretty_name, offer.pin.url, offer.host, offer.pin.client_id
    ));
    confirm(&server, &offer, servers.get(&server).is_some(), named)?;
    let issuer = Issuer::discover(&offer.pin).await?;
    let surroundings = Surroundings::of_process();
    let flags = (args.device, args.need_browser());
    let tokens = match choice::flow(
        &server,
        &offer,
        issuer.device_endpoint().is_some(),
        flags,
        &surroundings,
    )? {
        Flow::Device => device::log_in(&issuer, &server, &offer, settings.timeout, (show, device::sleep)).await?,
        Flow::Code => {
            let patience = settings.patience(PATIENCE);
            by_code(&issuer, &server, &offer, patience, (args, &surroundings)).await?
        }
    };
    steps.done(&format!("logged in at {}", offer.pin.url));
    let caller = ask_who(backend, &described, &tokens, &offer, settings.timeout, steps).await?;
    let known = known_server(backend, offer.pin)?;
    if let Some((known, former)) = settings.folder.keep(known, &file, &tokens).await? {
        logout::revoke_former(&known, &former, &tokens, steps).await;
    }
    for variable in ["KUBECTL_BIND_SERVER", "KUBECTL_BIND_TOKEN_FILE"] {
        if std::env::var_os(variable).is_some() {
            steps.note(&format!("{variable} is set, and wins over this login"));
        }
    }
    steps.note("`kubectl bind templates` lists what you may bind");
    report(context, &server, caller.as_ref(), &tokens)
}

/// Asks the user at the first login whether issuer and client are right: a server could name those of another one, which would take
/// the user's token too.
fn confirm(server: &str, offer: &Offer, is_known: bool, named: Named<'_>) -> Result<(), Failure> {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let IssuerPin { url, client_id, .. } = &offer.pin;
    match choice::consent(is_known, named, is_terminal) {
        Consent::Given => Ok(()),
        Consent::Missing => Err(LoginError::Unconfirmed {
            server: server.to_owned(),
            issuer: url.clone(),
            host: offer.host.clone(),
            client_id: client_id.clone(),
        }
        .into()),
        Consent::Ask => {
            tell(&format!(
                "You have not logged in to {server} before. Its token lets it act as you at every server that takes tokens of client \
                 {client_id}"
            ));
            let mut terminal = std::io::stderr().lock();
            let question = format!("Log in at {}, client {client_id}? [y/N] ", offer.host);
            write!(terminal, "{}", printable(&question))?;
            terminal.flush()?;
            let mut answer = String::new();
            std::io::stdin().read_line(&mut answer)?;
            if is_plain_yes(&answer) {
                return Ok(());
            }
            Err(LoginError::Declined {
                server: server.to_owned(),
            }
            .into())
        }
    }
}

/// The server as it is kept, with files that are found from other folders too.
fn known_server(backend: &Backend, issuer: IssuerPin) -> Result<KnownServer, Failure> {
    let certificate = backend.client_certificate.as_ref();
    Ok(KnownServer {
        address: backend.address.to_string(),
        issuer,
        certificate_authority: match &backend.certificate_authority {
            Some(Authority::File(path)) => Some(absolute(path)?),
            Some(Authority::Pem(_)) | None => None,
        },
        client_certificate: certificate.map(|(path, _)| absolute(path)).transpose()?,
        client_key: certificate.map(|(_, path)| absolute(path)).transpose()?,
        allow_plaintext: backend.allow_plaintext,
    })
}

/// Prints what the user does with a device code.
fn show(instructions: &Instructions) {
    let Instructions {
        url,
        code,
        complete_url,
    } = instructions;
    tell(&format!("Open {url} on any device, and enter the code {code}"));
    if let Some(complete) = complete_url {
        tell(&format!("Or open {complete}, and check that it shows this code"));
    }
}

/// Logs in with a browser.
async fn by_code(
    issuer: &Issuer,
    server: &str,
    offer: &Offer,
    patience: Duration,
    (args, surroundings): (&LoginArgs, &Surroundings),
) -> Result<StoredTokens, LoginError> {
    let default = [RedirectAddress::default()];
    let addresses = if args.redirect_url.is_empty() {
        &default[..]
    } else {
        &args.redirect_url
    };
    let loopback = Loopback::listen(addresses).await?;
    let attempt = Attempt::new(issuer, offer, loopback.url(), args.prompt.as_deref())?;
    let opened = !args.no_browser && surroundings.has_display() && surroundings.open(&loopback.entry(attempt.url()));
    let first = if opened {
        "Your browser opens. If it does not show the page of the issuer, open"
    } else {
        "Open"
    };
    tell(&format!("{first} {}", attempt.url()));
    let pasted = if args.no_browser || std::io::stdin().is_terminal() {
        tell("If the browser ends at an address that it cannot open, paste that address here, and press Enter");
        pasted_lines()
    } else {
        mpsc::unbounded_channel().1
    };
    let ignored = |why: &String| tell(&format!("An answer was ignored: {why}"));
    attempt.finish(server, (loopback, pasted), patience, ignored).await
}

/// Asks the server who the user is to it. A server that refuses the login ends it; one that cannot say changes nothing.
async fn ask_who(
    backend: &Backend,
    described: &Described,
    tokens: &StoredTokens,
    offer: &Offer,
    timeout: Option<Duration>,
    steps: &mut Steps,
) -> Result<Option<Caller>, Failure> {
    if !described.features.iter().any(|feature| feature == GET_CALLER) {
        return Ok(None);
    }
    let backend = Backend {
        login: Login::Token(tokens.id_token.clone()),
        ..backend.clone()
    };
    match Provider::new(&backend, timeout)?.caller().await {
        Ok(caller) => {
            steps.done(&format!("{} knows you as {}", backend.address, caller.username));
            Ok(Some(caller))
        }
        Err(error) if is_refusal(&error) => Err(LoginError::ServerRefused {
            server: backend.address.to_string(),
            issuer: offer.pin.url.clone(),
            message: error.to_string(),
        }
        .into()),
        Err(error) => {
            steps.note(&format!("the server does not say who you are to it: {error}"));
            Ok(None)
        }
    }
}

fn is_refusal(error: &ProviderError) -> bool {
    error
        .reason()
        .is_some_and(|reason: ErrorReason| reason.code() == Code::Unauthenticated)
}

fn report<W: Write>(
    context: &mut Context<W>,
    server: &str,
    caller: Option<&Caller>,
    tokens: &StoredTokens,
) -> Result<(), Failure> {
    match context.printer.format() {
        Format::Json | Format::Yaml => context.printer.document(&json!({
            "server": server,
            "issuer": tokens.issuer,
            "username": caller.map(|caller| &caller.username),
            "groups": caller.map(|caller| &caller.groups),
            "expiresAt": tokens.expires_at,
        })),
        Format::Name => context.printer.text(&format!("server/{server}\n")),
        Format::Table | Format::Wide => {
            let who = caller.map_or_else(String::new, |caller| {
                let groups = if caller.groups.is_empty() {
                    "in no group".to_owned()
                } else {
                    format!("groups {}", caller.groups.join(", "))
                };
                format!(" as {}, {groups}", caller.username)
            });
            context
                .printer
                .text(&format!("{}\n", printable(&format!("Logged in to {server}{who}"))))
        }
    }
}

/// A path that still leads to its file from another folder.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    Ok(std::path::absolute(path)?)
}
