//! What an issuer is told: its clients and users, and how long what it issues is valid.

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The client that the project's programs are.
pub const CLIENT: &str = "bindery";
/// A second client, whose ID tokens the project's programs must refuse.
pub const OTHER_CLIENT: &str = "other";
/// Where browsers may be sent with a code: to any port of loopback, with one of these paths.
const REDIRECTS: [&str; 4] = [
    "http://127.0.0.1/callback",
    "http://127.0.0.1/",
    "http://localhost/callback",
    "http://localhost/",
];

/// The settings of an issuer.
#[derive(Clone, Debug)]
pub struct IssuerSettings {
    /// The ids of its clients. All are public.
    pub clients: Vec<String>,
    /// The people who can sign in.
    pub users: Vec<IssuerUser>,
    /// How long what it issues is valid.
    pub lifetimes: Lifetimes,
    /// The algorithm of signatures: `RS256` or `ES256`.
    pub algorithm: &'static str,
}

/// A person who can sign in.
#[derive(Clone, Debug, Serialize)]
pub struct IssuerUser {
    /// What the person types as the user.
    pub name: String,
    /// What the person types as the password.
    pub password: String,
    /// The claim `sub`.
    pub subject: String,
    /// The claims that are in ID tokens, if the scope of each is granted: `email`, `email_verified` (scope `email`), `name`,
    /// `preferred_username` (`profile`) and `groups` (`groups`). Values may be of any type.
    pub claims: Map<String, Value>,
}

/// Lifetimes in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lifetimes {
    /// Of ID tokens.
    pub id_token: u32,
    /// Of access tokens.
    pub access_token: u32,
    /// Of refresh tokens.
    pub refresh_token: u32,
    /// Of the codes of the device flow.
    pub device_code: u32,
}

// === impl IssuerSettings ===

impl Default for IssuerSettings {
    fn default() -> Self {
        Self {
            clients: vec![CLIENT.to_owned(), OTHER_CLIENT.to_owned()],
            users: Vec::new(),
            lifetimes: Lifetimes::default(),
            algorithm: "RS256",
        }
    }
}

impl IssuerSettings {
    /// The file that the program of the issuer is started with.
    pub(super) fn to_json(&self, url: &str) -> Value {
        let client = |id: &String| json!({"id": id, "redirect_uris": REDIRECTS});
        json!({
            "issuer": url,
            "algorithm": self.algorithm,
            "clients": self.clients.iter().map(client).collect::<Vec<_>>(),
            "users": self.users,
            "lifetimes": self.lifetimes,
        })
    }

    pub(super) fn set_user(&mut self, user: IssuerUser) {
        self.users.retain(|known| known.name != user.name);
        self.users.push(user);
    }

    pub(super) fn set_claim(&mut self, name: &str, claim: &str, value: Value) -> Result<()> {
        let mut users = self.users.iter_mut();
        let user = users
            .find(|user| user.name == name)
            .with_context(|| format!("the issuer has no user {name}"))?;
        match value {
            Value::Null => user.claims.remove(claim),
            value => user.claims.insert(claim.to_owned(), value),
        };
        Ok(())
    }
}

// === impl IssuerUser ===

impl IssuerUser {
    /// A user with groups, an email address, and a subject that is not the name.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let claims = [
            ("email", json!(format!("{name}@example.com"))),
            ("email_verified", json!(true)),
            ("name", json!(name)),
            ("preferred_username", json!(name)),
            ("groups", json!(groups)),
        ];
        Self {
            name: name.to_owned(),
            password: format!("{name}'s secret"),
            subject: format!("subject-of-{name}"),
            claims: claims
                .map(|(claim, value)| (claim.to_owned(), value))
                .into_iter()
                .collect(),
        }
    }
}

// === impl Lifetimes ===

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            id_token: 300,
            access_token: 300,
            refresh_token: 3600,
            device_code: 300,
        }
    }
}
