//! Results on standard output: tables for people, JSON and YAML for programs.

use std::io::Write;

use bindery_runtime::terminal;
pub(crate) use bindery_runtime::terminal::{age, printable, span, table};
use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::errors::Failure;

/// Format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table, or a text for people.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kind and name, one a line.
    Name,
}

/// Something that is shown as a row, a document or a name.
pub(crate) trait Show: Serialize {
    /// Headings of the columns; those of the wide view at the end.
    const HEADINGS: &'static [&'static str];
    /// How many of the columns a plain table has.
    const PLAIN: usize;

    /// One cell per heading.
    fn cells(&self, now: Timestamp) -> Vec<String>;

    /// `<kind>.<group>/<name>`, as kubectl writes it.
    fn reference(&self) -> String;
}

/// Writes results in one format.
pub(crate) struct Printer<W> {
    format: Format,
    out: W,
}

impl<W: Write> Printer<W> {
    pub(crate) fn new(format: Format, out: W) -> Self {
        Self { format, out }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// A list, also an empty one.
    pub(crate) fn list<S: Show>(&mut self, items: &[S], now: Timestamp) -> Result<(), Failure> {
        match self.format {
            Format::Json | Format::Yaml => {
                self.document(&json!({ "apiVersion": "v1", "kind": "List", "items": items }))
            }
            _ => self.rows(items, now),
        }
    }

    /// One object.
    pub(crate) fn one<S: Show>(&mut self, item: &S, now: Timestamp) -> Result<(), Failure> {
        match self.format {
            Format::Json | Format::Yaml => self.document(item),
            _ => self.rows(std::slice::from_ref(item), now),
        }
    }

    /// One document: JSON if that is the format, else YAML.
    pub(crate) fn document(&mut self, document: &impl Serialize) -> Result<(), Failure> {
        match self.format {
            Format::Json => {
                let text =
                    serde_json::to_string_pretty(document).map_err(|error| Failure::Format(error.to_string()))?;
                writeln!(self.out, "{text}")?;
            }
            _ => write!(self.out, "{}", yaml(document)?)?,
        }
        self.flush()
    }

    /// Several documents: a List in JSON, else YAML documents one after the other.
    pub(crate) fn documents(&mut self, documents: &[Value]) -> Result<(), Failure> {
        if self.format == Format::Json {
            return self.document(&json!({ "apiVersion": "v1", "kind": "List", "items": documents }));
        }
        for (index, document) in documents.iter().enumerate() {
            let rule = if index == 0 { "" } else { "---\n" };
            write!(self.out, "{rule}{}", yaml(document)?)?;
        }
        self.flush()
    }

    /// Text as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes())?;
        self.flush()
    }

    fn rows<S: Show>(&mut self, items: &[S], now: Timestamp) -> Result<(), Failure> {
        if self.format == Format::Name {
            for item in items {
                writeln!(self.out, "{}", item.reference())?;
            }
            return self.flush();
        }
        if items.is_empty() {
            return Ok(());
        }
        let columns = if self.format == Format::Wide {
            S::HEADINGS.len()
        } else {
            S::PLAIN
        };
        let rows = items.iter().map(|item| item.cells(now));
        self.text(&table(S::HEADINGS, rows, columns))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}

/// Several values in one cell.
pub(crate) fn joined<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    if values.is_empty() {
        "<none>".to_owned()
    } else {
        values.join(",")
    }
}

fn yaml(document: &impl Serialize) -> Result<String, Failure> {
    terminal::yaml(document).map_err(Failure::Format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Row(&'static str);

    impl Show for Row {
        const HEADINGS: &'static [&'static str] = &["NAME", "AGE", "NOTE"];
        const PLAIN: usize = 2;

        fn cells(&self, now: Timestamp) -> Vec<String> {
            vec![
                self.0.to_owned(),
                age(Some(Timestamp::UNIX_EPOCH), now),
                "a\u{1b}[2Jb".to_owned(),
            ]
        }

        fn reference(&self) -> String {
            format!("row/{}", self.0)
        }
    }

    fn printed(format: Format, rows: &[Row]) -> String {
        let mut out = Vec::new();
        let now = Timestamp::from_second(300).unwrap();
        Printer::new(format, &mut out).list(rows, now).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_format_shows_the_same_rows() {
        let rows = [Row("a"), Row("longer")];
        assert_eq!(
            printed(Format::Table, &rows),
            "NAME     AGE\na        5m\nlonger   5m\n"
        );
        assert_eq!(
            printed(Format::Wide, &rows[..1]),
            "NAME   AGE   NOTE\na      5m    a [2Jb\n"
        );
        assert_eq!(printed(Format::Name, &rows), "row/a\nrow/longer\n");
        let json: Value = serde_json::from_str(&printed(Format::Json, &rows)).unwrap();
        assert_eq!(json["items"], json!(["a", "longer"]));
        let yaml: Value = serde_saphyr::from_str(&printed(Format::Yaml, &rows)).unwrap();
        assert_eq!(yaml, json);
    }

    #[test]
    fn an_empty_list_is_a_list_for_programs_and_nothing_for_people() {
        assert_eq!(printed(Format::Table, &[]), "");
        let json: Value = serde_json::from_str(&printed(Format::Json, &[])).unwrap();
        assert_eq!(json["items"], json!([]));
    }

    #[test]
    fn documents_stand_one_after_the_other() {
        let mut out = Vec::new();
        Printer::new(Format::Table, &mut out)
            .documents(&[json!({ "a": 1 }), json!({ "b": "yes" })])
            .unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a: 1\n---\nb: \"yes\"\n");
    }
}
