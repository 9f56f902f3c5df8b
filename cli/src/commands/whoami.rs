//! `whoami`: shows who the user is to the provider, and what lets the user bind each template.

use std::{fmt::Write as _, io::Write};

use bindery_proto::v1alpha2::{Caller, ListTemplatesRequest, Template};
use serde::Serialize;

use super::Context;
use crate::{
    errors::Failure,
    provider::Login,
    render::output::{Format, printable, span, table},
};

/// How the RBAC authorizer of Kubernetes begins its reason.
const RBAC: &str = "RBAC: allowed by ";

/// Who the user is to a provider.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    server: String,
    username: String,
    groups: Vec<String>,
    /// The issuer of a stored login.
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    /// Seconds until the token expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_seconds: Option<i64>,
    /// Whether the token is refreshed before it expires.
    refreshed: bool,
    templates: Vec<Granted>,
}

/// A template that the user may bind.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Granted {
    name: String,
    /// What grants the right, in the words of the provider's authorizer; empty if it does not say.
    granted_by: String,
}

/// `kubectl bind whoami`
pub(crate) async fn run<W: Write>(context: &mut Context<W>) -> Result<(), Failure> {
    let backend = context.settings.backend()?;
    let provider = context.settings.provider()?;
    let caller = provider.caller().await?;
    let templates = provider.templates(ListTemplatesRequest::default()).await?;
    let (issuer, refreshed) = match &backend.login {
        Login::Stored(login) => {
            let stored = login.file().read()?;
            let refreshed = stored.is_some_and(|tokens| tokens.refresh_token.is_some());
            (Some(login.issuer().url.clone()), refreshed)
        }
        _ => (None, false),
    };
    let identity = Identity::new(backend.address.to_string(), caller, templates, issuer, refreshed);
    match context.printer.format() {
        Format::Json | Format::Yaml => context.printer.document(&identity),
        Format::Name => context.printer.text(&format!("{}\n", printable(&identity.username))),
        Format::Table | Format::Wide => context.printer.text(&identity.text()),
    }
}

impl Identity {
    fn new(server: String, caller: Caller, templates: Vec<Template>, issuer: Option<String>, refreshed: bool) -> Self {
        let granted = |template: Template| Granted {
            name: template.metadata.unwrap_or_default().name,
            granted_by: template.granted_by,
        };
        Self {
            server,
            username: caller.username,
            groups: caller.groups,
            issuer,
            expires_in_seconds: caller.expires_in.map(|left| left.seconds),
            refreshed,
            templates: templates.into_iter().map(granted).collect(),
        }
    }

    fn text(&self) -> String {
        let groups = if self.groups.is_empty() {
            "<none>".to_owned()
        } else {
            self.groups.join(", ")
        };
        let issuer = self
            .issuer
            .as_deref()
            .unwrap_or("<none: the token is not one of a login>");
        let token = match (self.expires_in_seconds, self.refreshed) {
            (None, _) => "expires at a time that the server does not know".to_owned(),
            (Some(left), true) => format!("expires in {}, and is refreshed before", span(left)),
            (Some(left), false) => format!("expires in {}", span(left)),
        };
        let mut text = String::new();
        for (what, value) in [
            ("Server:", self.server.as_str()),
            ("User:", &self.username),
            ("Groups:", &groups),
            ("Issuer:", issuer),
            ("Token:", &token),
        ] {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{what:<9}{}", printable(value));
        }
        if self.templates.is_empty() {
            text.push_str("\nThere is no template that you may bind.\n");
            return text;
        }
        let rows = self.templates.iter().map(|granted| {
            let by = match granted.granted_by.as_str() {
                "" => "<the provider does not say>",
                by => by.strip_prefix(RBAC).unwrap_or(by),
            };
            vec![granted.name.clone(), by.to_owned()]
        });
        let _ = write!(text, "\n{}", table(&["TEMPLATE", "GRANTED BY"], rows, 2));
        text
    }
}

#[cfg(test)]
mod tests {
    use bindery_proto::v1alpha2::ObjectMeta;

    use super::*;

    fn template(name: &str, granted_by: &str) -> Template {
        Template {
            metadata: Some(ObjectMeta {
                name: name.to_owned(),
                ..ObjectMeta::default()
            }),
            granted_by: granted_by.to_owned(),
            ..Template::default()
        }
    }

    #[test]
    fn the_grant_of_each_template_is_shown() {
        let caller = Caller {
            username: "alice".to_owned(),
            groups: vec!["team-a".to_owned(), "system:authenticated".to_owned()],
            expires_in: Some(prost_types::Duration {
                seconds: 3_000,
                nanos: 0,
            }),
        };
        let grant = r#"RBAC: allowed by ClusterRoleBinding "team-a" of ClusterRole "cowboys" to Group "team-a""#;
        let templates = vec![template("cowboys", grant), template("sheriffs", "")];
        let issuer = Some("https://login.example.com".to_owned());
        let identity = Identity::new("https://b".to_owned(), caller, templates, issuer, true);
        let expect = "\
Server:  https://b
User:    alice
Groups:  team-a, system:authenticated
Issuer:  https://login.example.com
Token:   expires in 50m, and is refreshed before

TEMPLATE   GRANTED BY
cowboys    ClusterRoleBinding \"team-a\" of ClusterRole \"cowboys\" to Group \"team-a\"
sheriffs   <the provider does not say>
";
        assert_eq!(identity.text(), expect);
    }

    #[test]
    fn without_a_right_there_is_nothing_to_bind() {
        let identity = Identity::new("https://b".to_owned(), Caller::default(), Vec::new(), None, false);
        let text = identity.text();
        assert!(
            text.contains("Groups:  <none>") && text.ends_with("no template that you may bind.\n"),
            "{text}"
        );
    }
}
