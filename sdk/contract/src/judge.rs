//! Compares what came of a case with what must come of it.

use std::collections::BTreeMap;
use std::time::Duration;

use prost_reflect::MethodDescriptor;
use serde_json::Value;

use crate::case::{Case, Expect, SeenExpect};
use crate::large;
use crate::proto_json;
use crate::server::{Seen, Server};

/// The language whose client speaks gRPC alone.
const WITHOUT_WEB: &str = "python";

/// What is wrong with a client's answer; empty if nothing is.
pub(crate) fn faults(case: &Case, language: &str, answer: &Value, server: &Server, took_ms: u64) -> Vec<String> {
    let expect = &case.expect;
    let seen = server.seen();
    let mut faults = Faults(Vec::new());
    if let Some(error) = &expect.without_web
        && language == WITHOUT_WEB
    {
        faults.without_web(error, answer, seen.len());
        faults.secrets(answer, &expect.hides);
        return faults.0;
    }
    faults.outcomes(case, language, answer);
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
    faults.delays(&expect.delays_ms, &seen);
    faults.every_call(case, language, &seen);
    faults.secrets(answer, &expect.hides);
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

    /// What came of the action, or of each of those that were done at the same moment.
    fn outcomes(&mut self, case: &Case, language: &str, answer: &Value) {
        let Some(number) = case.concurrent else {
            self.outcome(case, language, answer);
            return;
        };
        let results = answer["ok"].as_array().map(Vec::as_slice).unwrap_or_default();
        if results.len() != number {
            self.add(format!(
                "{} results, and not {number}: {}",
                results.len(),
                short(answer)
            ));
        }
        for result in results {
            self.outcome(case, language, result);
        }
    }

    fn outcome(&mut self, case: &Case, language: &str, answer: &Value) {
        let Expect {
            ok,
            error,
            any_error,
            error_in,
            ..
        } = &case.expect;
        let own = error_in.get(language);
        let allowed: Vec<_> = own.map_or_else(|| error.iter().chain(any_error).collect(), |own| vec![own]);
        let is = answer.get("error").filter(|error| !error.is_null());
        match (is, allowed.as_slice()) {
            (None, []) => {
                if let Some(ok) = ok
                    && !same_message(&case.action, &large::value(ok), &answer["ok"])
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

    /// What came of an action that needs gRPC-Web, by a client that does not speak it.
    fn without_web(&mut self, expect: &Value, answer: &Value, calls: usize) {
        let events = answer["events"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of_watch = events.iter().filter_map(|event| event.pointer("/disconnected/error"));
        // Of the call, or of the first one of those at the same moment.
        let of_calls = ["/error", "/ok/0/error"]
            .into_iter()
            .filter_map(|place| answer.pointer(place));
        let found = of_calls.chain(of_watch).find(|error| !error.is_null());
        let error = found.unwrap_or(&Value::Null);
        if !holds(expect, &normal_error(error)) {
            self.add(format!("error {} and not {expect}", short(error)));
        }
        self.range("calls", calls, Some((0, 0)));
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
        for (name, prefix) in &expect.header_prefixes {
            let value = seen.headers.get(name);
            if !value.is_some_and(|value| value.starts_with(prefix)) {
                self.add(format!("call {index} has {name}: {value:?} and not {prefix}…"));
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

    /// Whether the delays between attempts are random below bounds: they differ, some are above half of it, and most are not above.
    ///
    /// A busy machine only makes them longer, so nothing is said of the longest one.
    fn delays(&mut self, bounds: &[u64], seen: &[Seen]) {
        const LATE: Duration = Duration::from_millis(600);
        if bounds.is_empty() {
            return;
        }
        let mut attempts: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        for call in seen {
            let id = call.headers.get("x-request-id").map_or("", String::as_str);
            attempts.entry(id).or_default().push(call.at);
        }
        for (index, bound) in bounds.iter().map(|bound| Duration::from_millis(*bound)).enumerate() {
            let gaps = attempts.values().filter_map(|times| times.get(index..index + 2));
            let mut gaps: Vec<_> = gaps.map(|pair| pair[1].saturating_sub(pair[0])).collect();
            gaps.sort();
            let (Some(least), Some(middle), Some(most)) = (gaps.first(), gaps.get(gaps.len() / 2), gaps.last()) else {
                self.add(format!("no delay {index}"));
                continue;
            };
            let differ = most.saturating_sub(*least) >= bound / 4;
            if !differ || *most < bound / 2 || *middle > bound + LATE {
                self.add(format!(
                    "delay {index} is {least:?} to {most:?}, in the middle {middle:?}, and not random below {bound:?}"
                ));
            }
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
            let is_one_call = case.action.get("call").is_some() && case.concurrent.is_none();
            if is_one_call && *id.get_or_insert(own) != own {
                self.add("x-request-id changes between attempts".to_owned());
            }
            // All SDKs have one version.
            let agent = format!("bindery-sdk-{language}/{}", env!("CARGO_PKG_VERSION"));
            if !text("user-agent").contains(&agent) {
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

    fn secrets(&mut self, answer: &Value, hides: &[String]) {
        let shows = |value: &Value, secret: &str| value.to_string().contains(secret);
        for secret in hides.iter().map(String::as_str).chain([Case::TOKEN_PREFIX]) {
            if ["error", "shown", "events"]
                .iter()
                .any(|part| shows(&answer[part], secret))
            {
                self.add(format!("{secret}… is shown"));
            }
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
    if let Some(method) = action["typed"].as_str() {
        return proto_json::method(method).is_ok_and(|method| same_result(&method, expect, is));
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

/// Whether the result of a method of a client is the response, or the one field of it that matters: an object, or the items of a list.
fn same_result(method: &MethodDescriptor, expect: &Value, is: &Value) -> bool {
    let output = method.output();
    if same(output.name(), expect, is) {
        return true;
    }
    let mut fields = output.fields().map(|field| field.json_name().to_owned());
    fields.any(|field| {
        let has = |value: &Value| serde_json::json!({ &field: value });
        expect.get(&field).is_some() && same(output.name(), &has(&expect[&field]), &has(is))
    })
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
    fn a_client_without_web_fails_where_others_fall_back() {
        let judge = |answer: Value, calls| {
            let mut faults = Faults(Vec::new());
            faults.without_web(&json!({ "kind": "transport" }), &answer, calls);
            faults.0.len()
        };
        assert_eq!(judge(json!({ "error": { "kind": "transport" } }), 0), 0);
        let event = json!({ "disconnected": { "error": { "kind": "transport" } } });
        assert_eq!(judge(json!({ "ok": null, "events": [event] }), 0), 0);
        assert_eq!(judge(json!({ "ok": {} }), 1), 2);
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
    fn a_result_is_the_response_or_a_field_of_it() {
        let method = proto_json::method("GetExport").unwrap();
        let expect = json!({ "export": { "metadata": { "name": "a" } } });
        assert!(same_result(&method, &expect, &expect));
        assert!(same_result(&method, &expect, &expect["export"]));
        assert!(!same_result(&method, &expect, &json!({ "metadata": { "name": "b" } })));
        assert!(!same_result(&method, &expect, &json!({})));
        let method = proto_json::method("ListExports").unwrap();
        let expect = json!({ "exports": [{ "metadata": { "name": "a" } }] });
        assert!(same_result(&method, &expect, &expect["exports"]));
        assert!(!same_result(&method, &expect, &json!([])));
    }

    #[test]
    fn delays_are_random_below_their_bound() {
        let judge = |delay: &dyn Fn(u64) -> u64| {
            let calls = (0..40).flat_map(|call| {
                let at = |ms| Seen {
                    path: String::new(),
                    headers: BTreeMap::from([("x-request-id".to_owned(), call.to_string())]),
                    message: Vec::new(),
                    at: Duration::from_millis(ms),
                    connection: 0,
                    reset: None,
                };
                [at(7), at(7 + delay(call))]
            });
            let mut faults = Faults(Vec::new());
            faults.delays(&[1000], &calls.collect::<Vec<_>>());
            faults.0.len()
        };
        assert_eq!(judge(&|call| call * 25), 0);
        assert!(judge(&|_| 500) > 0, "always the same");
        assert!(judge(&|call| call) > 0, "far below the bound");
        assert!(judge(&|call| call * 100) > 0, "above the bound");
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
