//! Compares what came of a case with what must come of it.

use serde_json::Value;

use crate::case::{Case, Expect, SeenExpect};
use crate::proto_json;
use crate::server::{Seen, Server};

/// What is wrong with a client's answer; empty if nothing is.
pub(crate) fn faults(case: &Case, language: &str, answer: &Value, server: &Server, took_ms: u64) -> Vec<String> {
    let expect = &case.expect;
    let seen = server.seen();
    let mut faults = Faults(Vec::new());
    faults.outcome(case, answer);
    faults.range("calls", seen.len(), expect.calls);
    faults.range("connections", server.connections(), expect.connections);
    faults.range("milliseconds", took_ms, expect.took_ms);
    if server.pings() < expect.pings {
        faults.add(format!("{} PING frames, and not {}", server.pings(), expect.pings));
    }
    if expect.progress.is_some() && answer["progress"].as_u64() != expect.progress {
        faults.add(format!("progress {} and not {:?}", answer["progress"], expect.progress));
    }
    if let Some(token) = &expect.resume_token
        && answer["resumeToken"].as_str().unwrap_or_default() != token
    {
        faults.add(format!("resume token {} and not {token:?}", answer["resumeToken"]));
    }
    if let Some(events) = &expect.events {
        faults.events(&case.action, events, &answer["events"]);
    }
    for (index, expect) in expect.seen.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| seen.get(before));
        match seen.get(index) {
            Some(seen) => faults.seen(index, expect, seen, before),
            None => faults.add(format!("no call {index}")),
        }
    }
    faults.every_call(case, language, &seen);
    faults.secrets(answer);
    faults.0
}

struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, fault: String) {
        self.0.push(fault);
    }

    fn range<T: Copy + PartialOrd + std::fmt::Display>(&mut self, what: &str, is: T, expect: Option<(T, T)>) {
        if let Some((least, most)) = expect
            && (is < least || is > most)
        {
            self.add(format!("{is} {what}, and not {least} to {most}"));
        }
    }

    fn outcome(&mut self, case: &Case, answer: &Value) {
        let Expect {
            ok, error, any_error, ..
        } = &case.expect;
        let allowed: Vec<_> = error.iter().chain(any_error).collect();
        let is = answer.get("error").filter(|error| !error.is_null());
        match (is, allowed.as_slice()) {
            (None, []) => {
                if let Some(ok) = ok
                    && !same_message(&case.action, ok, &answer["ok"])
                {
                    self.add(format!("ok {} and not {ok}", short(&answer["ok"])));
                }
            }
            (None, _) => self.add(format!("ok {} and no error", short(&answer["ok"]))),
            (Some(is), []) => self.add(format!("error {}", short(is))),
            (Some(is), allowed) => {
                if !allowed.iter().any(|allowed| holds(allowed, &normal_error(is))) {
                    let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
                    self.add(format!("error {} and not {}", short(is), allowed.join(" or ")));
                }
                let text = is["message"].as_str().unwrap_or_default();
                if let Some(part) = &case.expect.message
                    && !text.to_lowercase().contains(&part.to_lowercase())
                {
                    self.add(format!("the message {text:?} does not say {part:?}"));
                }
                if text.chars().any(|char| char.is_control() && char != '\n') {
                    self.add(format!("the message {text:?} has control characters"));
                }
            }
        }
    }

    fn events(&mut self, action: &Value, expect: &[Value], is: &Value) {
        let none = Vec::new();
        let is = is.as_array().unwrap_or(&none);
        if is.len() != expect.len() {
            self.add(format!(
                "{} events, and not {}: {}",
                is.len(),
                expect.len(),
                short(&Value::from(is.clone()))
            ));
            return;
        }
        for (index, (expect, is)) in expect.iter().zip(is).enumerate() {
            let mut is = is.clone();
            if let Some(error) = is.pointer_mut("/disconnected/error") {
                *error = normal_error(error);
            }
            if !holds_event(action, expect, &is) {
                self.add(format!("event {index} is {} and not {expect}", short(&is)));
            }
        }
    }

    fn seen(&mut self, index: usize, expect: &SeenExpect, seen: &Seen, before: Option<&Seen>) {
        if expect.method.as_ref().is_some_and(|method| method != seen.method()) {
            self.add(format!("call {index} is of {}", seen.path));
        }
        for (name, value) in &expect.headers {
            if seen.headers.get(name) != Some(value) {
                self.add(format!(
                    "call {index} has {name}: {:?} and not {value:?}",
                    seen.headers.get(name)
                ));
            }
        }
        for name in &expect.absent {
            if let Some(value) = seen.headers.get(name) {
                self.add(format!("call {index} has {name}: {value:?}"));
            }
        }
        if let Some(request) = &expect.request {
            match is_request(seen, request) {
                Ok(true) => {}
                Ok(false) => self.add(format!("call {index} has another request than {request}")),
                Err(error) => self.add(format!("call {index}: {error:#}")),
            }
        }
        let since = before.map(|before| seen.at.saturating_sub(before.at));
        let since = since.and_then(|since| u64::try_from(since.as_millis()).ok());
        if let Some(since) = since {
            self.range("milliseconds after the call before", since, expect.after_ms);
        }
        if expect.deadline_ms.is_some() {
            match seen.headers.get("grpc-timeout").and_then(|text| deadline(text)) {
                Some(deadline) => self.range("milliseconds of deadline", deadline, expect.deadline_ms),
                None => self.add(format!("call {index} has no deadline")),
            }
        }
        if !expect.reset.is_empty() && !seen.reset.as_ref().is_some_and(|reset| expect.reset.contains(reset)) {
            self.add(format!(
                "call {index} ended by {:?} and not {:?}",
                seen.reset, expect.reset
            ));
        }
    }

    /// What holds for each call of each case.
    fn every_call(&mut self, case: &Case, language: &str, seen: &[Seen]) {
        let mut id = None;
        for call in seen {
            let text = |name: &str| call.headers.get(name).map_or("", String::as_str);
            let own = text("x-request-id");
            if own.len() != 32
                || !own
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
            {
                self.add(format!("x-request-id {own:?} is not 32 digits"));
            }
            if case.action.get("call").is_some() && *id.get_or_insert(own) != own {
                self.add("x-request-id changes between attempts".to_owned());
            }
            if !text("user-agent").contains(&format!("bindery-sdk-{language}/")) {
                self.add(format!("user agent {:?}", text("user-agent")));
            }
            let is_stream = call.method().starts_with("Watch");
            if !is_stream && text("grpc-timeout").is_empty() {
                self.add(format!("a call of {} without a deadline", call.method()));
            }
            if call.method() == "GetProvider" && !text("authorization").is_empty() {
                self.add("GetProvider is called with a token".to_owned());
            }
        }
    }

    fn secrets(&mut self, answer: &Value) {
        let shows = |value: &Value| value.to_string().contains(Case::TOKEN_PREFIX);
        if shows(&answer["error"]) || shows(&answer["shown"]) || shows(&answer["events"]) {
            self.add("a token is shown".to_owned());
        }
        if answer["shown"].as_array().is_none_or(Vec::is_empty) {
            self.add("nothing is shown of the client".to_owned());
        }
    }
}

/// An error with its fault as a variant, which some write as a reason.
fn normal_error(error: &Value) -> Value {
    let mut error = error.clone();
    let fault = match error["fault"].as_str() {
        Some("ConnectionRefused") => "Refused",
        Some("CertificateNameMismatch") => "CertificateName",
        Some("ClientCertificateRefused") => "ClientCertificate",
        Some("TlsFailed") => "Tls",
        Some("ConnectionBroken") => "Broken",
        Some("StreamSilent") => "Silent",
        _ => return error,
    };
    error["fault"] = Value::from(fault);
    error
}

/// Whether a value has all that is expected of it; null expects absence.
fn holds(expect: &Value, is: &Value) -> bool {
    match (expect, is) {
        (Value::Object(expect), Value::Object(_)) => expect.iter().all(|(key, expect)| holds(expect, &is[key])),
        (Value::Array(expect), Value::Array(is)) => {
            expect.len() == is.len() && expect.iter().zip(is).all(|(expect, is)| holds(expect, is))
        }
        _ => expect == is,
    }
}

fn holds_event(action: &Value, expect: &Value, is: &Value) -> bool {
    let (Some(expect), Some(is_object)) = (expect.get("applied"), is.get("applied")) else {
        return holds(expect, is);
    };
    let object = match action["watch"].as_str() {
        Some("WatchExports") => "Export",
        Some("WatchContracts") => "Contract",
        _ => "BindableResourcesRequest",
    };
    same(object, expect, is_object)
}

/// Whether two answers of an action say the same: the message of a call, the items of a list, what a bind returns.
fn same_message(action: &Value, expect: &Value, is: &Value) -> bool {
    if let Some(method) = action["call"].as_str() {
        let Ok(method) = proto_json::method(method) else {
            return false;
        };
        return same(method.output().name(), expect, is);
    }
    if let Some(method) = action["list"].as_str() {
        let item = match method {
            "ListTemplates" => "Template",
            "ListCollections" => "Collection",
            "ListExports" => "Export",
            "ListContracts" => "Contract",
            _ => "BindableResourcesRequest",
        };
        let (Some(expect), Some(is)) = (expect.as_array(), is.as_array()) else {
            return false;
        };
        return expect.len() == is.len() && expect.iter().zip(is).all(|(expect, is)| same(item, expect, is));
    }
    if action.get("bind").is_some() {
        return same("BindableResourcesRequest", &expect["request"], &is["request"])
            && same("BindingResourceResponse", &expect["response"], &is["response"]);
    }
    holds(expect, is)
}

/// Whether two JSON texts are of the same message of this type.
fn same(message: &str, expect: &Value, is: &Value) -> bool {
    let normal = |value| proto_json::encode(message, value).and_then(|bytes| proto_json::decode(message, &bytes));
    match (normal(expect), normal(is)) {
        (Ok(expect), Ok(is)) => expect == is,
        _ => false,
    }
}

fn is_request(seen: &Seen, expect: &Value) -> anyhow::Result<bool> {
    let input = proto_json::method(seen.method())?.input();
    let is = proto_json::decode_as(input.clone(), &seen.message)?;
    let expect = proto_json::encode_as(input.clone(), expect)?;
    Ok(is == proto_json::decode_as(input, &expect)?)
}

/// Reads a header `grpc-timeout`, in milliseconds.
fn deadline(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => number * 3_600_000,
        "M" => number * 60_000,
        "S" => number * 1000,
        "m" => number,
        "u" => number / 1000,
        "n" => number / 1_000_000,
        _ => return None,
    })
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(600) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_absence_and_other_fields_are_free() {
        let is = json!({ "kind": "status", "code": "INTERNAL", "list": [{ "a": 1, "b": 2 }] });
        assert!(holds(
            &json!({ "code": "INTERNAL", "reason": null, "list": [{ "a": 1 }] }),
            &is
        ));
        assert!(!holds(&json!({ "code": null }), &is));
        assert!(!holds(&json!({ "reason": "X" }), &is));
        assert!(!holds(&json!({ "list": [] }), &is));
    }

    #[test]
    fn messages_are_compared_and_not_their_text() {
        let action = json!({ "call": "GetExport" });
        let one = json!({ "export": { "metadata": { "name": "a", "generation": "1" }, "spec": {} } });
        let other = json!({ "export": { "spec": {}, "metadata": { "name": "a", "generation": 1, "namespace": "" } } });
        assert!(same_message(&action, &one, &other));
        assert!(!same_message(
            &action,
            &one,
            &json!({ "export": { "metadata": { "name": "a" }, "spec": {} } })
        ));
        assert!(!same_message(&action, &one, &json!("no message")));
    }

    #[test]
    fn deadlines_are_read_in_each_unit() {
        for (text, expect) in [
            ("10S", Some(10_000)),
            ("9999m", Some(9999)),
            ("1500000u", Some(1500)),
            ("S", None),
            ("5", None),
            ("", None),
        ] {
            assert_eq!(deadline(text), expect, "{text}");
        }
    }
}
