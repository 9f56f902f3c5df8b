//! Kubernetes' kind AuthenticationConfiguration (`apiserver.config.k8s.io`) as it is written. Unknown fields are errors, and
//! null means that a field is not set.

use serde::{Deserialize, Deserializer};

use super::{ConfigError, Path, Report};

const KIND: &str = "AuthenticationConfiguration";
const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1"];
/// Largest file, in bytes.
const BYTES_MAX: usize = 1024 * 1024;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::oidc) struct AuthenticationFile {
    #[serde(default, deserialize_with = "or_default")]
    api_version: String,
    #[serde(default, deserialize_with = "or_default")]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) jwt: Vec<JwtAuthenticator>,
    #[serde(default)]
    anonymous: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::oidc) struct JwtAuthenticator {
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) issuer: IssuerFields,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) claim_validation_rules: Vec<ClaimValidationRule>,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) claim_mappings: ClaimMappings,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) user_validation_rules: Vec<UserValidationRule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::oidc) struct IssuerFields {
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) url: String,
    #[serde(default, rename = "discoveryURL", deserialize_with = "or_default")]
    pub(in crate::oidc) discovery_url: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) certificate_authority: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) audiences: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) audience_match_policy: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) egress_selector_type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::oidc) struct ClaimValidationRule {
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) claim: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) required_value: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) expression: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::oidc) struct ClaimMappings {
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) username: PrefixedSource,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) groups: PrefixedSource,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) uid: ClaimOrExpression,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) extra: Vec<ExtraMapping>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::oidc) struct PrefixedSource {
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) claim: String,
    /// The API server tells an empty prefix from a missing one.
    #[serde(default)]
    pub(in crate::oidc) prefix: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::oidc) struct ClaimOrExpression {
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) claim: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::oidc) struct ExtraMapping {
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) key: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) value_expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::oidc) struct UserValidationRule {
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) expression: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in crate::oidc) message: String,
}

/// Reads YAML or JSON.
pub(super) fn parse(text: &str) -> Result<AuthenticationFile, ConfigError> {
    if text.len() > BYTES_MAX {
        return Err(ConfigError::Syntax(format!("it is larger than {BYTES_MAX} bytes")));
    }
    serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(first_line(&error.to_string())))
}

impl AuthenticationFile {
    /// What flags say, as a file would.
    pub(in crate::oidc) fn of(jwt: Vec<JwtAuthenticator>) -> Self {
        Self {
            api_version: VERSIONS[0].to_owned(),
            kind: KIND.to_owned(),
            jwt,
            anonymous: None,
        }
    }

    pub(super) fn check_kind(&self, report: &mut Report) {
        if !VERSIONS.contains(&self.api_version.as_str()) {
            report.add(&Path::root("apiVersion"), format!("must be {}", VERSIONS.join(" or ")));
        }
        if self.kind != KIND {
            report.add(&Path::root("kind"), format!("must be {KIND}"));
        }
        if self.anonymous.is_some() {
            report.add(
                &Path::root("anonymous"),
                "is about the API server: this server takes no call without a token but GetProvider; leave it out",
            );
        }
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The parser quotes lines of the file below.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}
