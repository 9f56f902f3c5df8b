//! People with groups, whose tokens the API server knows from a file or by their issuer. ServiceAccounts have groups of Kubernetes
//! itself alone.

use anyhow::Result;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

use super::ControlPlane;
use crate::issuers::Issuer;

/// An expiry in the year 2100, so that a person always has the same token.
const NEVER: u64 = 4_102_444_800;

/// A person, as the API server knows them.
#[derive(Clone, Copy, Debug)]
pub struct Person {
    /// The username.
    pub name: &'static str,
    /// The groups.
    pub groups: &'static [&'static str],
}

impl Person {
    /// A token for this audience. It has the shape of a JWT, which nobody signed: the API server compares it with its file.
    pub fn token(&self, audience: &str) -> String {
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = part(json!({"alg": "RS256", "typ": "JWT"}));
        let claims = part(json!({
            "iss": "https://people.test", "sub": self.name, "aud": [audience],
            "exp": NEVER,
        }));
        format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode(self.name))
    }
}

impl ControlPlane {
    /// Starts the API server anew, which then knows these people by their tokens for this audience.
    pub async fn know_people(&self, people: &[Person], audience: &str) -> Result<()> {
        let row = |person: &Person| {
            let groups = person.groups.join(",");
            format!(
                "{},{name},{name},\"{groups}\"\n",
                person.token(audience),
                name = person.name
            )
        };
        let table: String = people.iter().map(row).collect();
        self.layout.know_people(&table, audience)?;
        self.stop_api_server()?;
        Box::pin(self.start_api_server()).await
    }

    /// Starts the API server anew, which then accepts ID tokens of the issuer for this client, or of no issuer.
    pub async fn trust_issuer(&self, issuer: Option<(&Issuer, &str)>) -> Result<()> {
        let flags = |(issuer, client): (&Issuer, &str)| {
            vec![
                format!("--oidc-issuer-url={}", issuer.url()),
                format!("--oidc-client-id={client}"),
                format!("--oidc-ca-file={}", issuer.ca_file().display()),
                "--oidc-username-prefix=oidc:".to_owned(),
            ]
        };
        self.layout.trust_issuer(&issuer.map_or_else(Vec::new, flags))?;
        self.stop_api_server()?;
        Box::pin(self.start_api_server()).await
    }
}
