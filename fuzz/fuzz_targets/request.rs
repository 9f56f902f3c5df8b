//! Messages of calls: the first byte chooses the method's message, the others are the message as a client may send it. A message
//! becomes a validated request that keeps its promises, or a refusal that names wrong fields and fits into headers.
#![no_main]

use bindery_api::names::{bind_request, is_label, is_subdomain};
use bindery_server::front::fuzzing::{Held, MESSAGES, Refusal, Valid, stored, validate};
use libfuzzer_sys::fuzz_target;

/// The message whose request is stored on the provider.
const CREATE: &str = "CreateBindableResourcesRequestRequest";
/// Many clients take no more header bytes of a response.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Ten years, in seconds.
const LIFETIME_MAX: u64 = 10 * 365 * 24 * 3600;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let message = MESSAGES[usize::from(*first) % MESSAGES.len()];
    match validate(message, bytes) {
        None => {}
        Some(Err(refusal)) => check_refusal(&refusal),
        Some(Ok(valid)) => {
            valid.held.iter().for_each(check);
            if message == CREATE {
                check_stored(&valid, bytes);
            }
        }
    }
});

fn check_refusal(refusal: &Refusal) {
    assert_eq!(refusal.reason.as_str_name(), "ERROR_REASON_FIELD_INVALID");
    assert!(!refusal.violations.is_empty());
    for (field, description) in &refusal.violations {
        assert!(!field.is_empty() && !description.is_empty(), "{refusal:?}");
    }
    assert!(refusal.header_bytes <= HEADER_BYTES_MAX, "{refusal:?}");
}

fn check(held: &Held) {
    let is_plain = |text: &str, length_max: usize| text.len() <= length_max && !text.contains(char::is_control);
    match held {
        Held::Label(name) => assert!(is_label(name), "{held:?}"),
        Held::Subdomain(name) => assert!(is_subdomain(name), "{held:?}"),
        Held::Identity(name) => {
            assert!(
                !name.is_empty() && name.trim() == name && is_plain(name, 253),
                "{held:?}"
            );
            assert!(is_subdomain(&bind_request("fuzz", name, "fuzz")), "{held:?}");
        }
        Held::Text(text, length_max) => assert!(is_plain(text, *length_max), "{held:?}"),
        Held::Lifetime(time) => assert!(!time.is_zero() && time.as_secs() <= LIFETIME_MAX, "{held:?}"),
    }
}

/// What is stored on the provider and shown again is the same valid request.
fn check_stored(valid: &Valid, bytes: &[u8]) {
    let shown = stored(bytes).expect("a valid request");
    let again = validate(CREATE, &shown).expect("a message");
    assert_eq!(again.as_ref().ok(), Some(valid), "{again:?}");
}
