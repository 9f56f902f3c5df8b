//! Commands as processes: first logins, servers that name what is not theirs, several logins at once, kills and full disks.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use openidconnect::url::Url;
use secrecy::ExposeSecret as _;

use super::{
    FakeIssuer,
    command::{Running, command, start, start_on_terminal},
    fake::{eventually, open_page},
    server::FakeServer,
};
use crate::login::store::{IssuerPin, KnownServer, StoredTokens};

/// Flags of a login at a server without TLS, whose URL the test opens.
const LOGIN: [&str; 3] = ["login", "--allow-plaintext", "--no-browser"];

fn known(address: &str, issuer: IssuerPin) -> KnownServer {
    KnownServer {
        address: address.to_owned(),
        issuer,
        certificate_authority: None,
        client_certificate: None,
        client_key: None,
        allow_plaintext: true,
    }
}

/// Starts `kubectl bind login` with more flags, with the CA of the issuer.
fn log_in(store: &FakeIssuer, issuer: &FakeIssuer, server: &FakeServer, flags: &[&str]) -> Running {
    let authority = issuer.authority();
    let words = [
        &LOGIN[..],
        &[server.address.as_str(), "--issuer-ca", authority.to_str().unwrap()],
        flags,
    ];
    start(command(&store.config(), "", &words.concat()))
}

/// Does what a user does in the browser.
async fn sign_in(issuer: &FakeIssuer, url: &str) {
    let redirect = Url::parse(url).unwrap();
    let (_, redirect) = redirect.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap();
    let query = issuer.consent(url);
    assert_eq!(open_page(&format!("{redirect}?{query}")).await.0, 200);
}

/// The tokens for a server.
fn stored(store: &FakeIssuer, server: &FakeServer) -> Option<StoredTokens> {
    let file = store.store().tokens(&server.address.parse().unwrap()).unwrap();
    file.read().unwrap()
}

#[tokio::test]
async fn a_first_login_without_a_terminal_needs_the_name_of_the_issuer() {
    let issuer = FakeIssuer::start().await;
    let server = FakeServer::start(&[&issuer]).await;
    let (code, said) = log_in(&issuer, &issuer, &server, &[]).end().await;
    assert_eq!(code, 2, "{said}");
    let host = issuer.url.strip_prefix("https://").unwrap();
    let command = format!("kubectl bind login {} --issuer {}", server.address, issuer.url);
    for part in [&format!("(host {host}), client \"bindery\""), &command] {
        assert!(said.contains(part.as_str()), "{said}");
    }
    assert!(issuer.state().requests.is_empty() && server.tokens().is_empty());

    let mut login = log_in(&issuer, &issuer, &server, &["--issuer", &issuer.url]);
    sign_in(&issuer, &login.url().await).await;
    let (code, said) = login.end().await;
    assert!(code == 0 && said.contains("knows you as jane"), "{code} {said}");
    let tokens = stored(&issuer, &server).unwrap();
    assert_eq!(server.tokens(), [format!("Bearer {}", tokens.id_token.expose_secret())]);
    issuer.check_secrets(&said);
    // The server is known from now on.
    let mut again = log_in(&issuer, &issuer, &server, &[]);
    sign_in(&issuer, &again.url().await).await;
    assert_eq!(again.end().await.0, 0);
    assert_eq!(
        issuer.requests("/revoke"),
        0,
        "the same user's former login was revoked"
    );
}

#[tokio::test]
async fn a_first_login_on_a_terminal_needs_a_yes() {
    let issuer = FakeIssuer::start().await;
    let server = FakeServer::start(&[&issuer]).await;
    let authority = issuer.authority();
    let words = [
        &LOGIN[..],
        &[server.address.as_str(), "--issuer-ca", authority.to_str().unwrap()],
    ]
    .concat();
    let host = issuer.url.strip_prefix("https://").unwrap();
    for answer in ["", "n", "what?"] {
        let mut login = start_on_terminal(command(&issuer.config(), "", &words));
        let asked = login.answer(answer).await;
        assert!(
            asked.ends_with(&format!("Log in at {host}, client bindery? [y/N] ")),
            "{asked}"
        );
        let (code, said) = login.running().end().await;
        assert!(code == 3 && said.contains("you did not confirm"), "{code} {said}");
    }
    assert!(issuer.state().requests.is_empty() && server.tokens().is_empty());

    // The name of the issuer alone does not confirm the client.
    let words = [&words[..], &["--issuer", &issuer.url]].concat();
    let mut login = start_on_terminal(command(&issuer.config(), "", &words));
    login.answer("yes").await;
    let mut login = login.running();
    sign_in(&issuer, &login.url().await).await;
    let (code, said) = login.end().await;
    assert!(code == 0 && stored(&issuer, &server).is_some(), "{code} {said}");
}

#[tokio::test]
async fn a_server_that_names_anothers_client_or_an_attackers_issuer_gets_no_token() {
    let issuer = FakeIssuer::start().await;
    let other = known("https://other.example.com", issuer.pin());
    let store = issuer.store();
    store.change_servers(|servers| servers.put(other)).await.unwrap();
    let hostile = FakeServer::start(&[&issuer]).await;
    let (code, said) = log_in(&issuer, &issuer, &hostile, &["--issuer", &issuer.url])
        .end()
        .await;
    assert!(
        code == 3 && said.contains("act as you at https://other.example.com"),
        "{code} {said}"
    );
    assert!(issuer.state().requests.is_empty() && hostile.tokens().is_empty());

    let flags = ["--issuer", &issuer.url, "--client-id", "bindery"];
    let mut confirmed = log_in(&issuer, &issuer, &hostile, &flags);
    sign_in(&issuer, &confirmed.url().await).await;
    assert_eq!(confirmed.end().await.0, 0);
    assert_eq!(hostile.tokens().len(), 1);

    let attackers = FakeIssuer::start().await;
    let moved = FakeServer::start(&[&attackers]).await;
    let pinned = known(&moved.address, issuer.pin());
    store.change_servers(|servers| servers.put(pinned)).await.unwrap();
    let (code, said) = log_in(&issuer, &attackers, &moved, &[]).end().await;
    assert!(
        code == 3 && said.contains("but you first logged in at"),
        "{code} {said}"
    );
    assert!(attackers.state().requests.is_empty() && moved.tokens().is_empty());
}

#[tokio::test]
async fn two_processes_that_log_in_at_once_leave_one_whole_login() {
    let (one, two) = (FakeIssuer::start().await, FakeIssuer::start().await);
    for issuers in [[&one, &one], [&one, &two]] {
        let server = FakeServer::start(&[&one, &two]).await;
        let mut logins = issuers.map(|issuer| {
            log_in(
                &one,
                issuer,
                &server,
                &["--issuer", &issuer.url, "--client-id", "bindery"],
            )
        });
        let [first, second] = &mut logins;
        let (first, second) = tokio::join!(first.url(), second.url());
        tokio::join!(sign_in(issuers[0], &first), sign_in(issuers[1], &second));
        let [first, second] = logins;
        let ((first, said), (second, also_said)) = tokio::join!(first.end(), second.end());
        assert_eq!((first, second), (0, 0), "{said} {also_said}");

        let tokens = stored(&one, &server).unwrap();
        let servers = one.store().servers().unwrap();
        let kept = servers.get(&server.address).unwrap();
        assert_eq!((&kept.issuer.url, &tokens.issuer), (&tokens.issuer, &kept.issuer.url));
        assert_eq!(servers.current(), Some(kept));
        let refresh_token = tokens.refresh_token.unwrap();
        assert!(
            issuers
                .iter()
                .any(|issuer| issuer.state().is_valid(refresh_token.expose_secret()))
        );
        // The login of another issuer that was replaced is revoked, and that of the same user is not.
        let revoked = one.requests("/revoke") + two.requests("/revoke");
        assert_eq!(
            revoked,
            usize::from(issuers[0].url != issuers[1].url),
            "{said} {also_said}"
        );
    }
}

#[tokio::test]
async fn a_process_that_ends_between_the_answer_of_the_issuer_and_the_write_ends_the_login_in_words() {
    let issuer = FakeIssuer::start().await;
    let former = issuer.store_login(-1);
    pin(&issuer, &former.server).await;
    issuer.state().stalls = Some("/token");
    let refreshing = start(command(&issuer.config(), "", &["token"]));
    issuer.asked("/token").await;
    refreshing.kill().await;
    assert!(
        !issuer
            .state()
            .is_valid(former.refresh_token.as_ref().unwrap().expose_secret())
    );
    let after = issuer.file().read().unwrap().unwrap();
    assert_eq!(after.id_token.expose_secret(), former.id_token.expose_secret());

    issuer.state().stalls = None;
    let (code, said) = start(command(&issuer.config(), "", &["token"])).end().await;
    let mend = format!("kubectl bind login {}", former.server);
    assert!(
        code == 3 && said.contains("does not refresh it any more") && said.contains(&mend),
        "{code} {said}"
    );

    // A process that is killed while it writes leaves a file with tokens.
    let leftover = PathBuf::from(format!("{}.0123456789abcdef", issuer.file().path().display()));
    fs::copy(issuer.file().path(), &leftover).unwrap();
    let (code, said) = start(command(&issuer.config(), "", &["logout"])).end().await;
    assert_eq!(code, 0, "{said}");
    assert!(!leftover.exists() && !issuer.file().path().exists());
}

#[tokio::test]
async fn a_login_is_not_refreshed_where_the_disk_is_full() {
    let issuer = FakeIssuer::start().await;
    let former = issuer.store_login(-1);
    pin(&issuer, &former.server).await;
    // No file gets longer than a block, which an empty one never shows.
    let full = "trap '' XFSZ; ulimit -f 1";
    let (code, said) = start(command(&issuer.config(), full, &["token"])).end().await;
    assert!(code == 1 && said.contains("cannot write"), "{code} {said}");
    assert_eq!(issuer.requests("/token"), 0);
    let (code, said) = start(command(&issuer.config(), "", &["token"])).end().await;
    assert_eq!((code, issuer.requests("/token")), (0, 1), "{said}");
}

#[tokio::test]
async fn the_argument_of_the_browser_tells_nothing_of_the_login_and_leads_to_the_issuer_once() {
    let issuer = FakeIssuer::start().await;
    let server = FakeServer::start(&[&issuer]).await;
    let opened = issuer.folder.path().join("opened");
    let browser = issuer.folder.path().join("browser");
    let script = format!(
        "#!/bin/sh\nprintf %s \"$*\" >\"$0.new\" && mv \"$0.new\" '{}'\n",
        opened.display()
    );
    fs::write(&browser, script).unwrap();
    fs::set_permissions(&browser, PermissionsExt::from_mode(0o700)).unwrap();
    let authority = issuer.authority();
    let words = [
        "login",
        &server.address,
        "--allow-plaintext",
        "--issuer",
        &issuer.url,
        "--issuer-ca",
        authority.to_str().unwrap(),
    ];
    let mut command = command(&issuer.config(), "", &words);
    command.env("BROWSER", &browser);
    let mut login = start(command);
    let printed = login.url().await;
    let argument = eventually(|| fs::read_to_string(&opened).ok()).await;
    assert!(
        argument.starts_with("http://127.0.0.1:") && argument.contains("/open/"),
        "{argument}"
    );
    for name in ["state", "nonce", "code_challenge"] {
        let url = Url::parse(&printed).unwrap();
        let (_, value) = url.query_pairs().find(|(found, _)| found == name).unwrap();
        assert!(!argument.contains(&*value), "{name} is in {argument}");
    }
    let (status, page) = open_page(&argument).await;
    assert!(
        status == 303 && page.contains(&format!("location: {printed}\r\n")),
        "{page}"
    );
    assert!(page.contains("no-store") && page.contains("no-referrer"), "{page}");
    let (status, page) = open_page(&argument).await;
    assert!(status == 410 && !page.contains("/authorize"), "{page}");
    sign_in(&issuer, &printed).await;
    let (code, said) = login.end().await;
    assert_eq!(code, 0, "{said}");
}

/// Stores `issuer` as the one of `server`.
async fn pin(issuer: &FakeIssuer, server: &str) {
    let pinned = known(server, issuer.pin());
    issuer
        .store()
        .change_servers(|servers| servers.put(pinned))
        .await
        .unwrap();
}
