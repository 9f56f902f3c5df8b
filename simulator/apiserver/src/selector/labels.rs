//! Reads label selectors, and refuses them in the words of Kubernetes.

use super::{Needs, Requirement};
use crate::{
    status::StatusError,
    validation::{label_value_problem, qualified_problems},
};

/// A word or a sign of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    End,
    Word(String),
    Sign(&'static str),
}

const SIGNS: [&str; 11] = ["==", "!=", "=", "!", ">", "<", "(", ")", ",", "in", "notin"];

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

/// Reads a label selector; empty selects everything.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, StatusError> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
    };
    parser.parse().map_err(StatusError::bad_request)
}

fn tokens(text: &str) -> Vec<Token> {
    let is_special = |letter: char| "=!(),<>".contains(letter);
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_special(first) {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign) && is_special(first));
            let sign = sign.copied().unwrap_or("=");
            tokens.push(Token::Sign(sign));
            sign.len()
        } else {
            let end = rest
                .find(|letter: char| is_special(letter) || letter.is_whitespace())
                .unwrap_or(rest.len());
            let word = &rest[..end];
            tokens.push(match word {
                "in" => Token::Sign("in"),
                "notin" => Token::Sign("notin"),
                word => Token::Word(word.to_owned()),
            });
            end
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::End => "",
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
        }
    }
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    /// The next token, with `in` and `notin` as words.
    fn peek_value(&self) -> Token {
        match self.peek() {
            Token::Sign(word @ ("in" | "notin")) => Token::Word(word.to_owned()),
            other => other,
        }
    }

    fn parse(&mut self) -> Result<Vec<Requirement>, String> {
        let mut found = Vec::new();
        loop {
            match self.peek_value() {
                Token::Word(_) | Token::Sign("!") => {
                    let requirement = self.requirement();
                    found.push(requirement.map_err(|problem| format!("unable to parse requirement: {problem}"))?);
                    match self.peek_value() {
                        Token::End => return Ok(found),
                        Token::Sign(",") => {
                            self.at += 1;
                            let next = self.peek_value();
                            if !matches!(next, Token::Word(_) | Token::Sign("!")) {
                                return Err(format!("found '{}', expected: identifier after ','", next.text()));
                            }
                        }
                        other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
                    }
                }
                Token::End => return Ok(found),
                Token::Sign(sign) => {
                    return Err(format!("found '{sign}', expected: !, identifier, or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let is_absent = self.peek() == Token::Sign("!");
        if is_absent {
            self.at += 1;
        }
        let Token::Word(key) = self.peek_value() else {
            return Err(format!("found '{}', expected: identifier", self.peek_value().text()));
        };
        self.at += 1;
        if let Some(problem) = qualified_problems(&key).first() {
            return Err(format!("<nil>: Invalid value: {key:?}: {problem}"));
        }
        let needs = match self.peek() {
            Token::End | Token::Sign(",") if is_absent => Needs::Absent,
            Token::End | Token::Sign(",") => Needs::Exists,
            _ if is_absent => Needs::Absent,
            operator => self.needs(&operator)?,
        };
        Ok(Requirement { key, needs })
    }

    fn needs(&mut self, operator: &Token) -> Result<Needs, String> {
        let Token::Sign(sign @ ("in" | "notin" | "=" | "==" | "!=" | ">" | "<")) = operator else {
            return Err(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                operator.text()
            ));
        };
        self.at += 1;
        let values = match *sign {
            "in" | "notin" => self.values()?,
            _ => vec![self.exact_value()?],
        };
        for (index, value) in values.iter().enumerate() {
            if let Some(problem) = label_value_problem(value) {
                return Err(format!(
                    "values[{index}][{}]: Invalid value: {value:?}: {problem}",
                    "key"
                ));
            }
        }
        let above = |values: &[String]| -> Result<i64, String> {
            let value = values.first().map_or("", String::as_str);
            value.parse().map_err(|_| {
                format!("values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")
            })
        };
        Ok(match *sign {
            "in" | "=" | "==" => Needs::In(values),
            "notin" | "!=" => Needs::NotIn(values),
            ">" => Needs::Above(above(&values)?),
            _ => Needs::Below(above(&values)?),
        })
    }

    fn exact_value(&mut self) -> Result<String, String> {
        match self.peek_value() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            other @ Token::Sign(_) => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        if self.peek_value() != Token::Sign("(") {
            return Err(format!("found '{}' expected: '('", self.peek_value().text()));
        }
        self.at += 1;
        let mut values = Vec::new();
        loop {
            match self.peek_value() {
                Token::Word(word) => {
                    self.at += 1;
                    values.push(word);
                    match self.peek_value() {
                        Token::Sign(",") => self.at += 1,
                        Token::Sign(")") => {}
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Sign(")") => {
                    self.at += 1;
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    values.sort();
                    values.dedup();
                    return Ok(values);
                }
                Token::Sign(",") => {
                    values.push(String::new());
                    self.at += 1;
                }
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            }
        }
    }
}
