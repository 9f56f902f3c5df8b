//! Tokens of pages and streams: the server reads those that it writes for the same call, and refuses every other text. The input
//! is taken as a token, as what is in a token, and as a key of a page.
#![no_main]

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bindery_server::front::fuzzing::{read_page_token, read_resume_token, write_page_token, write_resume_token};
use libfuzzer_sys::fuzz_target;

/// What the seeds were written for.
const ARGUMENTS: [&str; 2] = ["templates", "tier=gold"];
/// Arguments of another call, which differ only in where the first one ends.
const OTHER: [&str; 2] = ["templatest", "ier=gold"];
/// Keys of pages are names of objects.
const KEY_LENGTH_MAX: usize = 253;

fuzz_target!(|bytes: &[u8]| {
    let inside = URL_SAFE_NO_PAD.encode(bytes);
    check_any(&inside);
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_any(text);
        check_page(&text[..text.floor_char_boundary(KEY_LENGTH_MAX)], bytes);
    }
    check_stream(bytes);
});

/// A text is refused, or it is what the server writes for what is in it.
fn check_any(text: &str) {
    match read_page_token(text, &ARGUMENTS) {
        Ok(None) => assert!(text.is_empty()),
        Ok(Some(key)) => assert_eq!(write_page_token(&key, &ARGUMENTS), text),
        Err(refusal) => assert_eq!(refusal.reason.as_str_name(), "ERROR_REASON_PAGE_TOKEN_INVALID"),
    }
    match read_resume_token(&ARGUMENTS, text) {
        Ok(None) => {}
        Ok(Some(cursor)) => assert_eq!(write_resume_token(&ARGUMENTS, cursor), text),
        Err(refusal) => assert_eq!(refusal.reason.as_str_name(), "ERROR_REASON_RESUME_TOKEN_INVALID"),
    }
}

fn check_page(key: &str, bytes: &[u8]) {
    let token = write_page_token(key, &ARGUMENTS);
    let read = read_page_token(&token, &ARGUMENTS).expect("a token of the server");
    assert_eq!(read.as_deref(), Some(key));
    read_page_token(&token, &OTHER).expect_err("a token of another list");
    if let Ok(read) = read_resume_token(&ARGUMENTS, &token) {
        assert_eq!(read, None, "a token of a page");
    }
    check_changed(&token, bytes);
}

fn check_stream(bytes: &[u8]) {
    let mut numbers = bytes.chunks(8).map(|chunk| {
        let mut number = [0; 8];
        number[..chunk.len()].copy_from_slice(chunk);
        u64::from_be_bytes(number)
    });
    let cursor = std::array::from_fn(|_| numbers.next().unwrap_or_default());
    let token = write_resume_token(&ARGUMENTS, cursor);
    let read = read_resume_token(&ARGUMENTS, &token).expect("a token of the server");
    assert_eq!(read, Some(cursor));
    let other = read_resume_token(&OTHER, &token).expect("a token of another stream");
    assert_eq!(other, None);
    read_page_token(&token, &ARGUMENTS).expect_err("a token of a stream");
    check_changed(&token, bytes);
}

/// A token with one other letter, and one that is cut, is refused or means something else.
fn check_changed(token: &str, bytes: &[u8]) {
    let [at, letter, ..] = bytes else { return };
    let at = usize::from(*at) % token.len();
    let mut changed = token.as_bytes().to_vec();
    changed[at] = letter & 0x7f;
    for text in [String::from_utf8(changed).expect("ASCII"), token[..at].to_owned()] {
        check_any(&text);
    }
}
