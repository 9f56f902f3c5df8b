//! `token`: prints the token of the login, for other programs.

use std::io::Write;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::Context;
use crate::{args::TokenArgs, errors::Failure, provider::Login};

/// The variable in which client-go tells an exec credential plugin which version it understands.
const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";
const GROUP: &str = "client.authentication.k8s.io";

/// `kubectl bind token`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &TokenArgs) -> Result<(), Failure> {
    let (token, expires_at) = match &context.settings.backend()?.login {
        Login::Stored(login) => {
            let tokens = login.tokens().await?;
            (tokens.id_token, Some(tokens.expires_at))
        }
        Login::Token(token) => (token.clone(), None),
        Login::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::Usage(format!("cannot read the token file {}: {error}", path.display())))?;
            (SecretString::from(text.trim()), None)
        }
        Login::None => return Err(Failure::Usage("there is no token".to_owned())),
    };
    if args.exec_credential {
        let info = std::env::var(EXEC_INFO).unwrap_or_default();
        let credential = exec_credential(&token, expires_at, version(&info));
        return context.printer.text(&format!("{credential}\n"));
    }
    context.printer.text(&format!("{}\n", token.expose_secret()))
}

/// The API version that the caller understands: v1 unless it names v1beta1.
fn version(info: &str) -> &'static str {
    let info: Value = serde_json::from_str(info).unwrap_or_default();
    let named = info["apiVersion"].as_str().and_then(|named| named.strip_prefix(GROUP));
    match named {
        Some("/v1beta1") => "v1beta1",
        _ => "v1",
    }
}

fn exec_credential(token: &SecretString, expires_at: Option<Timestamp>, version: &str) -> Value {
    let mut status = json!({ "token": token.expose_secret() });
    if let Some(expires_at) = expires_at {
        // Kubernetes reads times in whole seconds.
        let second = Timestamp::from_second(expires_at.as_second()).unwrap_or(expires_at);
        status["expirationTimestamp"] = second.to_string().into();
    }
    json!({ "apiVersion": format!("{GROUP}/{version}"), "kind": "ExecCredential", "status": status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_one_that_the_caller_understands() {
        let info = |version: &str| json!({ "apiVersion": format!("{GROUP}/{version}") }).to_string();
        for (info, expect) in [
            (info("v1"), "v1"),
            (info("v1beta1"), "v1beta1"),
            (info("v9"), "v1"),
            (String::new(), "v1"),
            ("no JSON".to_owned(), "v1"),
        ] {
            assert_eq!(version(&info), expect, "{info}");
        }
    }

    #[test]
    fn a_credential_says_when_to_ask_again() {
        let expires_at = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let credential = exec_credential(&"t".into(), Some(expires_at), "v1");
        let expect = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": { "token": "t", "expirationTimestamp": "2026-01-02T03:04:05Z" },
        });
        assert_eq!(credential, expect);
        let without = exec_credential(&"t".into(), None, "v1");
        assert_eq!(without["status"], json!({ "token": "t" }));
    }
}
