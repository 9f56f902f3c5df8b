//! Parses a stream of JSON documents.

use std::{collections::BTreeMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, value::RawValue};

use super::{
    Budget, Document, MAX_DEPTH, Problem, Reading,
    node::{Located, Node},
    scalar,
};

/// Parses the documents of a text that begins on line `first`. All values of a document get the line on which the
/// document begins.
pub(super) fn read(text: &str, first: u64, budget: &mut Budget) -> Reading {
    let mut reading = Reading::default();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let (mut seen, mut line) = (0, first);
    loop {
        let rest = &text[stream.byte_offset()..];
        let begin = text.len() - rest.trim_start().len();
        line += newlines(&text[seen..begin]);
        seen = begin;
        let read = match stream.next() {
            None => break,
            Some(Ok(raw)) => document(raw.get(), line, budget),
            Some(Err(error)) => Err(problem(&error, first)),
        };
        match read {
            Ok(document) => reading.documents.push(document),
            Err(problem) => {
                reading.broken = Some(problem);
                break;
            }
        }
    }
    reading
}

fn newlines(text: &str) -> u64 {
    text.bytes().map(|byte| u64::from(byte == b'\n')).sum()
}

fn problem(error: &serde_json::Error, first: u64) -> Problem {
    let line = first + (error.line() as u64).saturating_sub(1);
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    Problem::new(line, text)
}

fn document(text: &str, line: u64, budget: &mut Budget) -> Result<Document, Problem> {
    let mut context = Context {
        line,
        problems: Vec::new(),
        budget,
    };
    let seed = Seed {
        context: &mut context,
        depth: 0,
    };
    let root = seed
        .deserialize(&mut serde_json::Deserializer::from_str(text))
        .map_err(|error| problem(&error, line))?;
    Ok(Document {
        root,
        problems: context.problems,
    })
}

struct Context<'a> {
    line: u64,
    problems: Vec<Problem>,
    budget: &'a mut Budget,
}

/// Deserializes one value and reports duplicate keys.
struct Seed<'c, 'b> {
    context: &'c mut Context<'b>,
    depth: usize,
}

// === impl Seed ===

impl Seed<'_, '_> {
    fn located(&self, node: Node) -> Located {
        let line = self.context.line;
        Located { line, node }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Located;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Located, D::Error> {
        let line = self.context.line;
        let counted = self.context.budget.node(line);
        counted.map_err(|problem| D::Error::custom(problem.text))?;
        if self.depth > MAX_DEPTH {
            return Err(D::Error::custom(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Located;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Located, E> {
        Ok(self.located(Node::Scalar(Value::Null)))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Located, E> {
        Ok(self.located(Node::Scalar(value.into())))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Located, E> {
        Ok(self.located(Node::Scalar(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Located, E> {
        Ok(self.located(Node::Scalar(value.into())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Located, E> {
        Ok(self.located(Node::Scalar(scalar::float(value))))
    }

    fn visit_str<E>(self, value: &str) -> Result<Located, E> {
        Ok(self.located(Node::Scalar(value.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Located, A::Error> {
        let depth = self.depth + 1;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Seed {
            context: &mut *self.context,
            depth,
        })? {
            items.push(item);
        }
        Ok(self.located(Node::List(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Located, A::Error> {
        let depth = self.depth + 1;
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if entries.contains_key(&key) {
                let text = format!("key {key:?} is given twice");
                self.context.problems.push(Problem::new(self.context.line, text));
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let context = &mut *self.context;
            entries.insert(key, map.next_value_seed(Seed { context, depth })?);
        }
        Ok(self.located(Node::Map(entries)))
    }
}
