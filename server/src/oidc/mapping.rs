//! Reads the user from the claims of a token, as the API server does: by claims with prefixes or by expressions, with rules on
//! the claims before and on the user after.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    expression::{Expression, Input},
    verify::{Claims, TokenRefusal},
};

/// Most groups that a user may have. Each is part of every SubjectAccessReview.
const GROUPS_MAX: usize = 1_000;

/// The user that a token belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The Kubernetes username.
    pub username: String,
    /// The UID, if the configuration maps one.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// How a user is read from claims.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) claim_rules: Vec<ClaimRule>,
    pub(super) username: Source,
    pub(super) groups: Option<Source>,
    pub(super) uid: Option<Source>,
    /// Keys with expressions of their values.
    pub(super) extra: Vec<(String, Expression)>,
    pub(super) user_rules: Vec<Rule>,
}

/// Where an attribute of the user comes from.
#[derive(Debug)]
pub(super) enum Source {
    Claim { name: String, prefix: String },
    Expression(Expression),
}

/// A rule on the claims.
#[derive(Debug)]
pub(super) enum ClaimRule {
    /// The claim must be this text.
    Equals {
        claim: String,
        value: String,
    },
    Expression(Rule),
}

/// An expression that must be true, and what to say where it is not.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) expression: Expression,
    pub(super) message: String,
}

impl Mapping {
    /// Reads the user from verified claims, or says why the token is refused.
    pub(super) fn user(&self, claims: &Claims) -> Result<User, TokenRefusal> {
        self.refuse_distributed(claims)?;
        let input = Input::new(claims);
        for rule in &self.claim_rules {
            rule.check(claims, &input)?;
        }
        let extra = self.extra.iter().map(|(key, expression)| {
            let values = expression.strings(&input).map_err(of_expression)?;
            Ok((key.clone(), values))
        });
        let mut extra = extra.collect::<Result<BTreeMap<_, _>, TokenRefusal>>()?;
        extra.retain(|_, values| !values.is_empty());
        let user = User {
            username: self.username.username(claims, &input)?,
            uid: self.uid.as_ref().map(|uid| uid.string(claims, &input)).transpose()?,
            groups: match &self.groups {
                Some(groups) => groups.strings(claims, &input)?,
                None => Vec::new(),
            },
            extra,
        };
        if user.groups.len() > GROUPS_MAX {
            let found = user.groups.len();
            return Err(claim(format!(
                "it has {found} groups, and {GROUPS_MAX} are the most; have the issuer put fewer into it"
            )));
        }
        self.check_user(&user)?;
        Ok(user)
    }

    fn check_user(&self, user: &User) -> Result<(), TokenRefusal> {
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let fields = [
            ("username", json!(user.username)),
            ("uid", json!(user.uid.as_deref().unwrap_or_default())),
            ("groups", json!(user.groups)),
            ("extra", json!(user.extra)),
        ];
        let input = Input::new(
            &fields
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect(),
        );
        self.user_rules.iter().try_for_each(|rule| rule.check(&input))
    }

    /// Refuses a token that says where its groups can be fetched (OpenID Connect Core 5.6.2) instead of having them.
    fn refuse_distributed(&self, claims: &Claims) -> Result<(), TokenRefusal> {
        let elsewhere = claims.get("_claim_names").and_then(Value::as_object);
        let concerns = |names: &Claims| match &self.groups {
            None => false,
            Some(Source::Claim { name, .. }) => names.contains_key(name) && !claims.contains_key(name),
            Some(Source::Expression(_)) => !names.is_empty(),
        };
        if elsewhere.is_some_and(concerns) {
            return Err(claim(
                "its groups are distributed claims (_claim_names), which this server does not fetch; have the issuer put \
                 them into the token",
            ));
        }
        Ok(())
    }
}

impl Source {
    fn username(&self, claims: &Claims, input: &Input) -> Result<String, TokenRefusal> {
        // An address that nobody verified may be another's. Without the claim the issuer vouches for all of its addresses.
        if let Self::Claim { name, .. } = self
            && name == "email"
            && claims
                .get("email_verified")
                .is_some_and(|verified| *verified != Value::Bool(true))
        {
            return Err(claim(
                "its email is not verified (email_verified); verify it with the issuer",
            ));
        }
        self.string(claims, input)
    }

    /// One string, which is not empty.
    fn string(&self, claims: &Claims, input: &Input) -> Result<String, TokenRefusal> {
        let found = match self {
            Self::Claim { name, prefix } => match claims.get(name) {
                Some(Value::String(text)) if text.is_empty() => String::new(),
                Some(Value::String(text)) => format!("{prefix}{text}"),
                Some(_) => return Err(claim(format!("its claim {name} is not a text"))),
                None => return Err(missing(name)),
            },
            Self::Expression(expression) => expression.string(input).map_err(of_expression)?,
        };
        if found.is_empty() {
            return Err(match self {
                Self::Claim { name, .. } => missing(name),
                Self::Expression(expression) => claim(format!(
                    "the expression {} gives an empty text for it",
                    expression.source()
                )),
            });
        }
        Ok(found)
    }

    fn strings(&self, claims: &Claims, input: &Input) -> Result<Vec<String>, TokenRefusal> {
        let (name, prefix) = match self {
            Self::Claim { name, prefix } => (name, prefix),
            Self::Expression(expression) => return expression.strings(input).map_err(of_expression),
        };
        let prefixed = |value: &Value| match value {
            Value::String(text) => Ok(format!("{prefix}{text}")),
            _ => Err(claim(format!("its claim {name} is neither a text nor a list of texts"))),
        };
        match claims.get(name) {
            // null is what issuers in Go write for no groups.
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(values)) => values.iter().map(prefixed).collect(),
            Some(one) => Ok(vec![prefixed(one)?]),
        }
    }
}

impl ClaimRule {
    fn check(&self, claims: &Claims, input: &Input) -> Result<(), TokenRefusal> {
        match self {
            Self::Expression(rule) => rule.check(input),
            Self::Equals { claim, value } if claims.get(claim).and_then(Value::as_str) == Some(value) => Ok(()),
            Self::Equals { claim, value } => Err(TokenRefusal::Rule(format!("its claim {claim} must be {value:?}"))),
        }
    }
}

impl Rule {
    fn check(&self, input: &Input) -> Result<(), TokenRefusal> {
        match self.expression.is_true(input) {
            Ok(true) => Ok(()),
            Ok(false) if self.message.is_empty() => {
                let rule = self.expression.source();
                Err(TokenRefusal::Rule(format!("the provider's rule {rule} refuses it")))
            }
            Ok(false) => Err(TokenRefusal::Rule(format!(
                "the provider's rule refuses it: {}",
                self.message
            ))),
            Err(error) => Err(TokenRefusal::Rule(error)),
        }
    }
}

fn claim(message: impl Into<std::borrow::Cow<'static, str>>) -> TokenRefusal {
    TokenRefusal::Claim(message.into())
}

fn missing(name: &str) -> TokenRefusal {
    claim(format!(
        "it has no claim {name}; ask for the scope that has it, or have the issuer add it"
    ))
}

fn of_expression(error: String) -> TokenRefusal {
    TokenRefusal::Claim(error.into())
}

#[cfg(test)]
mod tests;
