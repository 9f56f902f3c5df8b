//! Builds values from the events of a YAML parser.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use serde_saphyr::granit_parser::{self, ErrorKind, Event, Options, Parser, ScalarStyle, ScanError};

use super::{
    Budget, Document, MAX_DEPTH, MAX_ERRORS, Problem, Reading,
    node::{Located, Node, Size},
    scalar::{self, Key, Tag},
};

/// Parses the documents of a text that begins on line `first`.
pub(super) fn read(text: &str, first: u64, budget: &mut Budget) -> Reading {
    let mut composer = Composer {
        budget,
        frames: Vec::new(),
        anchors: HashMap::new(),
        root: None,
        problems: Vec::new(),
        documents: Vec::new(),
    };
    let line = |line: usize| first + (line as u64).saturating_sub(1);
    for event in Parser::new_from_str_with_options(text, options()) {
        let taken = match event {
            Ok((event, span)) => composer.take(event, line(span.start.line())),
            Err(error) => Err(Problem::new(line(error.marker().line()), words(&error))),
        };
        if let Err(problem) = taken {
            return Reading {
                documents: composer.documents,
                broken: Some(problem),
            };
        }
    }
    Reading {
        documents: composer.documents,
        broken: None,
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    options
}

/// Returns the parser's message without the text it quotes.
fn words(error: &ScanError) -> String {
    match error.kind() {
        ErrorKind::UnexpectedCharacter { .. } => {
            "a character that cannot begin a value: if it is text, put it in quotes".to_owned()
        }
        ErrorKind::RecursionLimitExceeded => too_deep(),
        _ => error.info(),
    }
}

fn too_deep() -> String {
    format!("nested more than {MAX_DEPTH} levels deep")
}

/// Builds values from events.
struct Composer<'b> {
    budget: &'b mut Budget,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Located>,
    problems: Vec<Problem>,
    documents: Vec<Document>,
}

/// A collection that is not complete yet.
struct Frame {
    line: u64,
    anchor: usize,
    open: Open,
}

enum Open {
    List(Vec<Located>),
    Map {
        entries: BTreeMap<String, Located>,
        /// Maps that `<<` merges in. Own entries win over them.
        merges: Vec<Located>,
        key: Option<(Wanted, u64)>,
    },
}

/// What becomes of the value that follows a key.
enum Wanted {
    Entry(String),
    Merge,
    /// The value is dropped, because its key is wrong.
    Nothing,
}

struct Anchored {
    value: Located,
    size: Size,
}

// === impl Composer ===

impl Composer<'_> {
    fn take(&mut self, event: Event<'_>, line: u64) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.budget.node(line)?;
                let tag = tag_of(tag.as_deref());
                self.scalar(&text, style == ScalarStyle::Plain, tag, anchor, line)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), "seq", line)?;
                self.open(Open::List(Vec::new()), anchor, line)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), "map", line)?;
                self.open(Open::map(), anchor, line)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, line),
            Event::DocumentEnd => {
                self.document(line);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn document(&mut self, line: u64) {
        self.frames.clear();
        self.anchors.clear();
        self.documents.push(Document {
            root: self.root.take().unwrap_or_else(|| null(line)),
            problems: std::mem::take(&mut self.problems),
        });
    }

    fn scalar(&mut self, text: &str, plain: bool, tag: Tag<'_>, anchor: usize, line: u64) -> Result<(), Problem> {
        let is_key = self.is_at_key();
        let value = if is_key && anchor == 0 {
            null(line)
        } else {
            let value = scalar::value(text, plain, tag);
            let node = Node::Scalar(self.unless_wrong(value, line)?.unwrap_or_default());
            Located { line, node }
        };
        if is_key {
            let key = scalar::key(text, plain, tag);
            let key = self.unless_wrong(key, line)?;
            self.key(key, line)?;
        }
        self.keep(anchor, &value)?;
        if !is_key {
            self.place(value);
        }
        Ok(())
    }

    /// Checks the tag of a collection, which can only repeat its type.
    fn tag(&mut self, tag: Option<&granit_parser::Tag>, name: &str, line: u64) -> Result<(), Problem> {
        match tag_of(tag) {
            Tag::None | Tag::Text => Ok(()),
            Tag::Core(core) if core == name => Ok(()),
            Tag::Core(_) | Tag::Unknown => self.wrong(Problem::new(line, scalar::UNKNOWN_TAG)),
        }
    }

    fn open(&mut self, open: Open, anchor: usize, line: u64) -> Result<(), Problem> {
        self.budget.node(line)?;
        if self.is_at_key() {
            return Err(Problem::new(line, "a key that is a list or a mapping: keys are text"));
        }
        self.frames.push(Frame { line, anchor, open });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Problem> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let node = match frame.open {
            Open::List(items) => Node::List(items),
            Open::Map { entries, merges, .. } => Node::Map(self.merged(entries, merges)?),
        };
        let value = Located { line: frame.line, node };
        self.keep(frame.anchor, &value)?;
        self.place(value);
        Ok(())
    }

    fn alias(&mut self, anchor: usize, line: u64) -> Result<(), Problem> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(Problem::new(line, "an alias inside of what it stands for"));
        };
        self.budget.alias(anchored.size.weight, line)?;
        if self.frames.len() + anchored.size.height > MAX_DEPTH {
            return Err(Problem::new(line, too_deep()));
        }
        let value = Located {
            line,
            ..anchored.value.clone()
        };
        if !self.is_at_key() {
            self.place(value);
            return Ok(());
        }
        let key = value
            .text()
            .map(|text| Key::Text(text.to_owned()))
            .ok_or("a key that is not text");
        let key = self.unless_wrong(key, line)?;
        self.key(key, line)
    }

    /// Stores a value for later aliases.
    fn keep(&mut self, anchor: usize, value: &Located) -> Result<(), Problem> {
        if anchor == 0 {
            return Ok(());
        }
        let size = value.size();
        self.budget.alias(size.weight, value.line)?;
        let value = value.clone();
        self.anchors.insert(anchor, Anchored { value, size });
        Ok(())
    }

    fn is_at_key(&self) -> bool {
        let open = self.frames.last().map(|frame| &frame.open);
        matches!(open, Some(Open::Map { key: None, .. }))
    }

    fn key(&mut self, read: Option<Key>, line: u64) -> Result<(), Problem> {
        let Some(Open::Map { entries, key, .. }) = self.frames.last_mut().map(|frame| &mut frame.open) else {
            return Ok(());
        };
        let mut twice = None;
        let wanted = match read {
            None => Wanted::Nothing,
            Some(Key::Merge) => Wanted::Merge,
            Some(Key::Text(text)) => match entries.get(&text) {
                None => Wanted::Entry(text),
                Some(first) => {
                    twice = Some(format!("key {text:?} is given twice, first on line {}", first.line));
                    Wanted::Nothing
                }
            },
        };
        *key = Some((wanted, line));
        twice.map_or(Ok(()), |text| self.wrong(Problem::new(line, text)))
    }

    fn place(&mut self, value: Located) {
        match self.frames.last_mut().map(|frame| &mut frame.open) {
            None => self.root = Some(value),
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map { entries, merges, key }) => match key.take() {
                Some((Wanted::Entry(key), line)) => drop(entries.insert(key, Located { line, ..value })),
                Some((Wanted::Merge, _)) => merges.push(value),
                Some((Wanted::Nothing, _)) | None => {}
            },
        }
    }

    fn merged(
        &mut self,
        mut entries: BTreeMap<String, Located>,
        merges: Vec<Located>,
    ) -> Result<BTreeMap<String, Located>, Problem> {
        for merge in merges {
            let sources = match merge.node {
                Node::List(items) => items,
                node => vec![Located { line: merge.line, node }],
            };
            for source in sources {
                match source.node {
                    Node::Map(more) => more.into_iter().for_each(|(key, value)| {
                        entries.entry(key).or_insert(value);
                    }),
                    _ => self.wrong(Problem::new(source.line, "what `<<` merges in has to be a mapping"))?,
                }
            }
        }
        Ok(entries)
    }

    fn unless_wrong<T>(&mut self, read: Result<T, &'static str>, line: u64) -> Result<Option<T>, Problem> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(text) => self.wrong(Problem::new(line, text)).map(|()| None),
        }
    }

    /// Records an error that concerns one place only, and goes on, so that one run shows all such errors.
    fn wrong(&mut self, problem: Problem) -> Result<(), Problem> {
        if self.problems.len() >= MAX_ERRORS {
            return Err(problem);
        }
        self.problems.push(problem);
        Ok(())
    }
}

// === impl Open ===

impl Open {
    fn map() -> Self {
        Self::Map {
            entries: BTreeMap::new(),
            merges: Vec::new(),
            key: None,
        }
    }
}

fn null(line: u64) -> Located {
    Located {
        line,
        node: Node::Scalar(Value::Null),
    }
}

fn tag_of(tag: Option<&granit_parser::Tag>) -> Tag<'_> {
    let Some(tag) = tag else { return Tag::None };
    match tag.parts() {
        ("tag:yaml.org,2002:", name) => Tag::Core(name),
        ("!", "") | ("", "!") => Tag::Text,
        _ => Tag::Unknown,
    }
}
