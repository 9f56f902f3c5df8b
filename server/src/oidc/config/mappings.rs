//! Checks rules and mappings of an issuer, and parses their expressions.

use super::{
    Path, Report,
    file::{
        ClaimOrExpression, ClaimValidationRule, ExtraMapping, JwtAuthenticator, PrefixedSource, UserValidationRule,
    },
};
use crate::oidc::{
    expression::{Expected, Expression, Variable},
    mapping::{ClaimRule, Mapping, Rule, Source},
};

/// Domains of which users cannot define extra attributes.
const RESERVED_DOMAINS: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// The mapping of an issuer; `None` if the report says what is wrong with it.
pub(super) fn mapping(jwt: &JwtAuthenticator, path: &Path, report: &mut Report) -> Option<Mapping> {
    let mappings = &jwt.claim_mappings;
    let at = path.child("claimMappings");
    let claim_rules = claim_rules(&jwt.claim_validation_rules, &path.child("claimValidationRules"), report);
    let username = prefixed(&mappings.username, &at.child("username"), Expected::String, report);
    if is_unset(&mappings.username) {
        report.add(&at.child("username"), "needs a claim with its prefix, or an expression");
    }
    let groups = prefixed(&mappings.groups, &at.child("groups"), Expected::Strings, report);
    let uid = uid(&mappings.uid, &at.child("uid"), report);
    let extra = extra(&mappings.extra, &at.child("extra"), report);
    let user_rules = user_rules(&jwt.user_validation_rules, &path.child("userValidationRules"), report);
    let mapping = Mapping {
        claim_rules,
        username: username?,
        groups,
        uid,
        extra,
        user_rules,
    };
    check_email(&mapping, &at, report);
    Some(mapping)
}

/// The API server's rule: an address of a token counts only with the issuer's word that it verified it.
fn check_email(mapping: &Mapping, path: &Path, report: &mut Report) {
    let verifies = |expression: &Expression| expression.reads_claim("email_verified");
    let Source::Expression(username) = &mapping.username else {
        return;
    };
    let is_verified = verifies(username)
        || mapping.extra.iter().any(|(_, expression)| verifies(expression))
        || mapping
            .claim_rules
            .iter()
            .any(|rule| matches!(rule, ClaimRule::Expression(rule) if verifies(&rule.expression)));
    if username.reads_claim("email") && !is_verified {
        report.add(
            &path.child("username").child("expression"),
            "uses claims.email, so that it, claimMappings.extra[*].valueExpression or claimValidationRules[*].expression must \
             use claims.email_verified",
        );
    }
}

fn is_unset(source: &PrefixedSource) -> bool {
    source.claim.is_empty() && source.expression.is_empty()
}

fn prefixed(source: &PrefixedSource, path: &Path, expected: Expected, report: &mut Report) -> Option<Source> {
    let prefix = &source.prefix;
    match (source.claim.as_str(), source.expression.as_str()) {
        ("", "") if prefix.is_some() => {
            report.add(&path.child("prefix"), "needs a claim");
            None
        }
        ("", "") => None,
        ("", text) => {
            if prefix.is_some() {
                report.add(
                    &path.child("prefix"),
                    "must not be set with an expression, which can add it itself",
                );
            }
            parse(text, Variable::Claims, expected, &path.child("expression"), report).map(Source::Expression)
        }
        (claim, "") => {
            if prefix.is_none() {
                report.add(&path.child("prefix"), "must be set with a claim; \"\" means no prefix");
            }
            Some(Source::Claim {
                name: claim.to_owned(),
                prefix: prefix.clone()?,
            })
        }
        _ => {
            report.add(path, "must not have both a claim and an expression");
            None
        }
    }
}

fn uid(source: &ClaimOrExpression, path: &Path, report: &mut Report) -> Option<Source> {
    match (source.claim.as_str(), source.expression.as_str()) {
        ("", "") => None,
        ("", text) => {
            let path = path.child("expression");
            parse(text, Variable::Claims, Expected::String, &path, report).map(Source::Expression)
        }
        (claim, "") => Some(Source::Claim {
            name: claim.to_owned(),
            prefix: String::new(),
        }),
        _ => {
            report.add(path, "must not have both a claim and an expression");
            None
        }
    }
}

fn extra(mappings: &[ExtraMapping], path: &Path, report: &mut Report) -> Vec<(String, Expression)> {
    let mut found: Vec<(String, Expression)> = Vec::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let path = path.index(index);
        if let Some(fault) = fault_of_key(&mapping.key) {
            report.add(&path.child("key"), fault);
        }
        if mappings.iter().take(index).any(|other| other.key == mapping.key) {
            report.add(&path.child("key"), "is there twice");
        }
        let (text, path) = (&mapping.value_expression, path.child("valueExpression"));
        if let Some(expression) = parse(text, Variable::Claims, Expected::Strings, &path, report) {
            found.push((mapping.key.clone(), expression));
        }
    }
    found
}

fn fault_of_key(key: &str) -> Option<&'static str> {
    let is_path = |path: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/:_-.~%!$&'()*+,;=@".contains(&byte);
        !path.is_empty() && path.bytes().all(fits)
    };
    let Some((domain, path)) = key.split_once('/') else {
        return Some("must be a domain and a path, such as example.com/team");
    };
    let is_domain = bindery_api::names::is_subdomain(&domain.to_ascii_lowercase());
    let is_reserved = |reserved: &&str| {
        let rest = domain.strip_suffix(*reserved);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if !is_domain || !is_path(path) {
        Some("must be a domain and a path, such as example.com/team")
    } else if key.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Some("must be in lower case")
    } else if RESERVED_DOMAINS.iter().any(is_reserved) {
        Some("must not be of a domain of Kubernetes")
    } else {
        None
    }
}

fn claim_rules(rules: &[ClaimValidationRule], path: &Path, report: &mut Report) -> Vec<ClaimRule> {
    let mut found = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let mut before = rules.iter().take(index);
        match (rule.claim.as_str(), rule.expression.as_str()) {
            ("", "") => report.add(&path, "needs a claim or an expression"),
            ("", text) => {
                if !rule.required_value.is_empty() {
                    report.add(&path.child("requiredValue"), "must not be set with an expression");
                }
                if before.any(|other| other.expression == text) {
                    report.add(&path.child("expression"), "is there twice");
                }
                let path = path.child("expression");
                let parsed = self::rule(text, &rule.message, Variable::Claims, &path, report);
                found.extend(parsed.map(ClaimRule::Expression));
            }
            (claim, "") => {
                if !rule.message.is_empty() {
                    report.add(&path.child("message"), "must not be set with a claim");
                }
                if before.any(|other| other.claim == claim) {
                    report.add(&path.child("claim"), "is there twice");
                }
                found.push(ClaimRule::Equals {
                    claim: claim.to_owned(),
                    value: rule.required_value.clone(),
                });
            }
            _ => report.add(&path, "must not have both a claim and an expression"),
        }
    }
    found
}

fn user_rules(rules: &[UserValidationRule], path: &Path, report: &mut Report) -> Vec<Rule> {
    let mut found = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index).child("expression");
        if rules
            .iter()
            .take(index)
            .any(|other| other.expression == rule.expression)
        {
            report.add(&path, "is there twice");
        }
        found.extend(self::rule(
            &rule.expression,
            &rule.message,
            Variable::User,
            &path,
            report,
        ));
    }
    found
}

fn rule(text: &str, message: &str, variable: Variable, path: &Path, report: &mut Report) -> Option<Rule> {
    Some(Rule {
        expression: parse(text, variable, Expected::Bool, path, report)?,
        message: message.to_owned(),
    })
}

fn parse(text: &str, variable: Variable, expected: Expected, path: &Path, report: &mut Report) -> Option<Expression> {
    if text.trim().is_empty() {
        report.add(path, "must not be empty");
        return None;
    }
    let parsed = Expression::parse(text, variable, expected);
    parsed.map_err(|fault| report.add(path, fault)).ok()
}
