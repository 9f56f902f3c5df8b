//! Defines the output of a command: one text or one document on standard output, and errors on standard error.

use bindery_runtime::terminal;
use serde_json::{Map, Value, json};

use super::{
    args::Format,
    errors::{Exit, Failure},
    render::document,
};

/// The result of a command.
#[derive(Debug)]
pub(super) struct Answer {
    /// Text for people.
    pub(super) text: String,
    /// Document for programs. Empty if the text is the whole result.
    pub(super) document: Map<String, Value>,
    pub(super) exit: Exit,
}

/// The reason why a command failed, and its result until then.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) failure: Failure,
    pub(super) before: Option<Box<Answer>>,
}

/// The text for each output stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) out: String,
    pub(super) err: String,
    pub(super) exit: Exit,
}

impl<F: Into<Failure>> From<F> for Stop {
    fn from(failure: F) -> Self {
        Self {
            failure: failure.into(),
            before: None,
        }
    }
}

/// Formats a result.
pub(super) fn say(format: Format, result: &Result<Answer, Stop>) -> Said {
    match result {
        Ok(answer) => Said {
            out: shown(format, &answer.text, &answer.document),
            err: String::new(),
            exit: answer.exit,
        },
        Err(stop) => {
            let failure = &stop.failure;
            let mut document = document("Failure", json!({ "error": error(failure) }));
            let mut text = "";
            if let Some(before) = &stop.before {
                // A document that has its own `kind` is printed as it is.
                document.extend(before.document.clone());
                text = &before.text;
            }
            Said {
                out: shown(format, text, &document),
                err: complaint(failure),
                exit: failure.exit(),
            }
        }
    }
}

fn shown(format: Format, text: &str, document: &Map<String, Value>) -> String {
    if document.is_empty() {
        return text.to_owned();
    }
    match format {
        Format::Table => text.to_owned(),
        Format::Json => format!("{:#}\n", Value::Object(document.clone())),
        Format::Yaml => terminal::yaml(document).unwrap_or_else(|error| format!("error: {error:?}\n")),
    }
}

fn error(failure: &Failure) -> Value {
    let mut error = json!({ "reason": failure.reason(), "message": failure.to_string() });
    if let Some(mend) = failure.mend() {
        error["mend"] = mend.into();
    }
    error
}

fn complaint(failure: &Failure) -> String {
    match failure.exit() {
        // The parser has already reported its own error. An interrupted user needs no mend.
        Exit::Usage | Exit::Done => String::new(),
        _ => terminal::error_text(&failure.to_string(), failure.mend().as_deref()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn answer() -> Answer {
        Answer {
            text: "text\n".to_owned(),
            document: Map::from_iter([("kind".to_owned(), json!("Answer"))]),
            exit: Exit::Pending,
        }
    }

    #[test]
    fn a_result_is_one_text_or_one_document() {
        let said = |format| say(format, &Ok(answer()));
        assert_eq!(said(Format::Table).out, "text\n");
        assert_eq!(said(Format::Json).out, "{\n  \"kind\": \"Answer\"\n}\n");
        assert_eq!(said(Format::Yaml).out, "kind: Answer\n");
        assert_eq!(
            (said(Format::Json).err.as_str(), said(Format::Json).exit),
            ("", Exit::Pending)
        );
    }

    #[test]
    fn a_failure_is_told_on_standard_error_and_in_the_one_document() {
        let failed = |before: Option<Answer>| {
            Err(Stop {
                failure: Failure::Impossible(2),
                before: before.map(Box::new),
            })
        };
        let said = say(Format::Table, &failed(Some(answer())));
        assert_eq!((said.out.as_str(), said.exit), ("text\n", Exit::Failed));
        assert_eq!(said.err, "error: 2 of the objects cannot be applied\n");
        for (before, kind) in [(None, "Failure"), (Some(answer()), "Answer")] {
            let said = say(Format::Json, &failed(before));
            let document: Value = serde_json::from_str(&said.out).unwrap();
            assert_eq!(document["error"]["reason"], "Impossible");
            assert_eq!(document["apiVersion"], "synk.cloudrobotics.com/v1");
            assert_eq!(document["kind"], kind);
        }
    }

    #[test]
    fn what_comes_from_elsewhere_cannot_rewrite_the_terminal() {
        let failure = Failure::Setup("a\u{1b}[2J\nb".to_owned());
        assert_eq!(complaint(&failure), "error: cannot start: a [2J\nb\n");
    }

    #[test]
    fn a_reader_that_went_away_hears_nothing() {
        let gone = Failure::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(complaint(&gone), "");
        assert_eq!(complaint(&Failure::Usage("told already".to_owned())), "");
    }
}
