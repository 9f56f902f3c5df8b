use super::*;
use crate::login::store::IssuerPin;

fn settings(line: &str) -> Result<Settings, Failure> {
    settings_in(line, Folder::new("/nonexistent"))
}

fn settings_in(line: &str, folder: Folder) -> Result<Settings, Failure> {
    let words = line.split_whitespace().map(Into::into).collect();
    let args = crate::args::parse(words).unwrap();
    let provider = args.command.provider(args.provider);
    Settings::new(args.cluster, provider, &args.display, folder)
}

#[track_caller]
fn check_usage(line: &str, expect: &str) {
    let Err(Failure::Usage(message)) = settings(line).and_then(|settings| settings.backend().map(|_| ())) else {
        panic!("{line:?} is a usage error");
    };
    assert!(message.contains(expect), "{message}");
}

#[test]
fn a_backend_needs_an_address_and_a_token() {
    check_usage("kubectl-bind --token x templates", "--server");
    check_usage("kubectl-bind templates", "kubectl bind login URL");
    check_usage("kubectl-bind --server b templates", "kubectl bind login https://b`");
    check_usage(
        "kubectl-bind --server https://b.example.com:443/ templates",
        "--audience https://b.example.com`",
    );
    check_usage("kubectl-bind --server https://b/a/../c --token x templates", "its path");
}

#[test]
fn a_token_is_preferred_to_a_file() {
    let settings = settings("kubectl-bind --server b --token-file f --token x templates").unwrap();
    assert!(matches!(settings.backend().unwrap().login, Login::Token(_)));
}

#[test]
fn commands_without_a_provider_need_none() {
    assert!(settings("kubectl-bind status").unwrap().any_backend().is_none());
}

/// A folder with logins at these servers, the last of which is the current one.
async fn folder(servers: &[&str]) -> (tempfile::TempDir, Folder) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path());
    for server in servers {
        let known = KnownServer {
            address: (*server).to_owned(),
            issuer: IssuerPin {
                url: "https://login.example.com".to_owned(),
                client_id: "bindery".to_owned(),
                certificate_authority: None,
            },
            certificate_authority: Some("/stored-ca.crt".into()),
            client_certificate: None,
            client_key: None,
            allow_plaintext: false,
        };
        folder.change_servers(|servers| servers.put(known)).await.unwrap();
    }
    (temporary, folder)
}

#[tokio::test]
async fn a_login_is_used_unless_something_else_was_typed() {
    let (_temporary, folder) = folder(&["https://a", "https://b"]).await;
    for (line, server, is_stored) in [
        ("kubectl-bind templates", "https://b", true),
        ("kubectl-bind --server https://a templates", "https://a", true),
        ("kubectl-bind --server a:443 templates", "https://a", true),
        ("kubectl-bind --server https://c templates", "https://c", false),
        (
            "kubectl-bind --server https://b --token t templates",
            "https://b",
            false,
        ),
        (
            "kubectl-bind --server https://b --token-file t templates",
            "https://b",
            false,
        ),
    ] {
        let settings = settings_in(line, folder.clone()).unwrap();
        let backend = settings.any_backend().unwrap();
        assert_eq!(backend.address.to_string(), server, "{line}");
        assert_eq!(matches!(backend.login, Login::Stored(_)), is_stored, "{line}");
        assert_eq!(backend.certificate_authority.is_some(), is_stored, "{line}");
        assert_eq!(settings.typed_backend().is_some(), line.contains("--server"), "{line}");
    }
}

#[tokio::test]
async fn a_token_that_was_typed_goes_to_no_stored_server() {
    let (_temporary, folder) = folder(&["https://a"]).await;
    for flag in ["--token", "--token-file"] {
        let settings = settings_in(&format!("kubectl-bind {flag} t templates"), folder.clone()).unwrap();
        assert!(settings.any_backend().is_none());
        let shown = settings.backend().err().map(|failure| failure.shown()).unwrap();
        assert!(
            shown.contains("a token is given by") && !shown.contains("log in with"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn who_is_logged_out_is_told_so() {
    let (_temporary, folder) = folder(&["https://a"]).await;
    let settings = settings_in("kubectl-bind templates", folder).unwrap();
    let Err(failure) = settings.backend() else {
        panic!("there are no tokens");
    };
    assert_eq!(
        failure.shown(),
        "error: you are logged out of https://a\n\nkubectl bind login https://a\n"
    );
    assert_eq!(failure.exit(), crate::errors::Exit::Denied);
}

#[tokio::test]
async fn damaged_logins_concern_only_commands_that_need_them() {
    let (temporary, folder) = folder(&["https://a"]).await;
    std::fs::write(temporary.path().join("servers.yaml"), "servers: {").unwrap();
    assert!(settings_in("kubectl-bind status", folder.clone()).is_ok());
    assert!(
        settings_in("kubectl-bind --server https://a --token t templates", folder.clone())
            .unwrap()
            .backend()
            .is_ok()
    );
    for line in ["kubectl-bind templates", "kubectl-bind --server https://a templates"] {
        let settings = settings_in(line, folder.clone()).unwrap();
        let shown = settings.backend().err().map(|failure| failure.shown()).unwrap();
        assert!(
            shown.contains("servers.yaml is damaged") && shown.contains("delete it"),
            "{shown}"
        );
    }
}
