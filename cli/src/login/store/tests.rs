use std::{fs, os::unix::fs::PermissionsExt};

use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;

use super::*;

fn server(address: &str) -> KnownServer {
    KnownServer {
        address: address.to_owned(),
        issuer: IssuerPin {
            url: "https://login.example.com".to_owned(),
            client_id: "bindery".to_owned(),
            certificate_authority: Some("/ca.crt".into()),
        },
        certificate_authority: None,
        client_certificate: None,
        client_key: None,
        allow_plaintext: false,
    }
}

fn tokens(file: &TokenFile) -> StoredTokens {
    let now = Timestamp::from_second(1_000).unwrap();
    StoredTokens {
        server: file.server().to_owned(),
        issuer: "https://login.example.com".to_owned(),
        client_id: "bindery".to_owned(),
        subject: "1".to_owned(),
        expires_at: now + SignedDuration::from_secs(60),
        refresh_at: now,
        id_token: "id-hunter2".into(),
        refresh_token: Some("refresh-hunter2".into()),
    }
}

#[test]
fn tokens_are_of_one_issuer_and_one_client() {
    let file = Folder::new("/nonexistent")
        .tokens(&"https://a".parse().unwrap())
        .unwrap();
    let tokens = tokens(&file);
    let pin = server("https://a").issuer;
    let other = |change: fn(&mut IssuerPin)| {
        let mut pin = pin.clone();
        change(&mut pin);
        pin
    };
    assert!(tokens.is_of(&pin));
    assert!(!tokens.is_of(&other(|pin| pin.url = "https://evil.example".to_owned())));
    assert!(!tokens.is_of(&other(|pin| pin.client_id = "kubernetes".to_owned())));
    assert!(tokens.is_of(&other(|pin| pin.certificate_authority = None)));
}

#[test]
fn the_folder_is_where_the_environment_says() {
    let check = |variables: &[(&str, &str)], expect: Option<&str>| {
        let value = |name: &str| {
            variables
                .iter()
                .find(|(set, _)| *set == name)
                .map(|(_, value)| PathBuf::from(value))
        };
        assert_eq!(named(value).as_deref(), expect.map(Path::new), "{variables:?}");
    };
    check(&[], None);
    check(&[("HOME", "/h")], Some("/h/.config/bindery"));
    check(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")], Some("/x/bindery"));
    check(
        &[("HOME", "/h"), ("XDG_CONFIG_HOME", "relative")],
        Some("/h/.config/bindery"),
    );
    check(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "")], Some("/h/.config/bindery"));
    check(&[("XDG_CONFIG_HOME", "/x"), ("BINDERY_CONFIG", "/b")], Some("/b"));
    assert!(Folder(None).servers().unwrap().servers.is_empty());
    assert_eq!(
        Folder(None).tokens(&"a".parse().unwrap()).unwrap_err(),
        StoreError::NoFolder
    );
}

#[tokio::test]
async fn servers_are_kept_with_the_current_one() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path().join("config"));
    assert_eq!(folder.servers().unwrap(), Servers::default());
    for address in ["https://b", "https://a", "https://b"] {
        folder
            .change_servers(|servers| servers.put(server(address)))
            .await
            .unwrap();
    }
    let servers = folder.servers().unwrap();
    let addresses: Vec<_> = servers.servers.iter().map(|known| known.address.as_str()).collect();
    assert_eq!(addresses, ["https://a", "https://b"]);
    assert_eq!(servers.current(), Some(&server("https://b")));
    folder
        .change_servers(|servers| servers.remove("https://b"))
        .await
        .unwrap();
    assert_eq!(folder.servers().unwrap().current(), Some(&server("https://a")));
    folder
        .change_servers(|servers| servers.remove("https://a"))
        .await
        .unwrap();
    assert_eq!(folder.servers().unwrap(), Servers::default());
}

#[test]
fn servers_that_cannot_be_read_are_named() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path());
    let path = temporary.path().join("servers.yaml");
    for (text, is_read) in [
        ("", true),
        ("{}", true),
        ("servers: []\nnewer: 1\n", true),
        ("servers: {", false),
        ("servers: 5", false),
    ] {
        fs::write(&path, text).unwrap();
        match folder.servers() {
            Ok(servers) => assert!(is_read && servers == Servers::default(), "{text:?}"),
            Err(error) => {
                assert!(
                    !is_read && error.to_string().contains("servers.yaml"),
                    "{text:?}: {error}"
                );
                assert!(error.mend().contains("delete it"), "{}", error.mend());
            }
        }
    }
}

#[test]
fn servers_that_others_could_have_written_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path());
    let path = temporary.path().join("servers.yaml");
    fs::write(&path, "servers: []\n").unwrap();
    for (mode, is_read) in [(0o600, true), (0o644, true), (0o664, false), (0o602, false)] {
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        match folder.servers() {
            Ok(_) => assert!(is_read, "{mode:o}"),
            Err(error) => {
                assert!(
                    !is_read && error.to_string().contains("servers.yaml"),
                    "{mode:o}: {error}"
                );
                assert!(
                    error.mend().contains("chmod 600") && error.mend().contains("issuers"),
                    "{}",
                    error.mend()
                );
            }
        }
    }
    // Only root can give a file away; `files::judge` has the table of owners.
    if nix::unistd::geteuid().is_root() {
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        let error = folder.servers().unwrap_err();
        assert!(
            error.to_string().contains("belongs to the user with ID 65534"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_login_that_is_kept_returns_the_one_that_it_replaces() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path().join("config"));
    let address = "https://bind.example.com";
    let file = folder.tokens(&address.parse().unwrap()).unwrap();
    let keep = async |subject: &str| {
        let tokens = StoredTokens {
            subject: subject.to_owned(),
            ..tokens(&file)
        };
        folder.keep(server(address), &file, &tokens).await.unwrap()
    };
    assert!(keep("1").await.is_none());
    let (known, former) = keep("2").await.unwrap();
    assert_eq!((known, former.subject.as_str()), (server(address), "1"));
    // What is damaged is replaced.
    fs::write(file.path(), "{").unwrap();
    assert!(keep("3").await.is_none());
    assert_eq!(file.read().unwrap().unwrap().subject, "3");
}

#[test]
fn tokens_are_kept_for_one_server_and_never_shown() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path());
    let files = [
        "https://bind.example.com",
        "https://bind.example.com:8443",
        "http://bind.example.com",
        "https://[::1]:443",
        "https://bind.example.com/a",
        "https://bind.example.com/a/b",
        "https://bind.example.com/a_b",
    ]
    .map(|address| folder.tokens(&address.parse().unwrap()).unwrap());
    let paths: std::collections::BTreeSet<_> = files.iter().map(TokenFile::path).collect();
    assert_eq!(paths.len(), files.len());
    let file = &files[0];
    assert!(file.read().unwrap().is_none());
    let tokens = tokens(file);
    assert!(!format!("{tokens:?} {tokens:#?}").contains("hunter2"));
    file.write(&tokens).unwrap();
    let read = file.read().unwrap().unwrap();
    assert_eq!(read.id_token.expose_secret(), "id-hunter2");
    assert_eq!(read.refresh_token.unwrap().expose_secret(), "refresh-hunter2");
    assert_eq!((read.expires_at, read.subject), (tokens.expires_at, tokens.subject));
}

#[test]
fn damaged_tokens_are_named_but_not_quoted() {
    let temporary = tempfile::tempdir().unwrap();
    let file = Folder::new(temporary.path())
        .tokens(&"bind.example.com".parse().unwrap())
        .unwrap();
    file.write(&tokens(&file)).unwrap();
    let whole = fs::read_to_string(file.path()).unwrap();
    for damaged in [
        whole[..whole.len() / 2].to_owned(),
        String::new(),
        whole.replace("\"id-hunter2\"", "5"),
        whole.replace("\"expiresAt\": \"", "\"expiresAt\": \"id-hunter2"),
        "\"id-hunter2\"".to_owned(),
    ] {
        // In place, so that the mode stays.
        fs::write(file.path(), &damaged).unwrap();
        let error = file.read().unwrap_err();
        let shown = format!("{error} {error:?} {}", error.mend());
        assert!(
            shown.contains("is damaged") && shown.contains("kubectl bind login"),
            "{shown}"
        );
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    // A new login replaces it.
    file.write(&tokens(&file)).unwrap();
    assert!(file.read().unwrap().is_some());
}
