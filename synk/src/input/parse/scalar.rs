//! Interprets plain scalars as kubectl does, which follows YAML 1.1 in part: `yes` and `off` are booleans, `0644` is
//! octal, and a number without a fraction is an integer.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Number, Value};

/// The tag of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag<'a> {
    /// No tag: the look of a plain scalar decides.
    None,
    /// `!`, which means text.
    Text,
    /// `!!NAME`.
    Core(&'a str),
    /// Another tag. Tools disagree about the meaning of such tags.
    Unknown,
}

/// A key of a mapping.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key {
    Text(String),
    /// `<<`
    Merge,
}

enum Scalar {
    Value(Value),
    Integer(Number),
    Float(f64),
}

const NOT_FINITE: &str = "infinite and undefined numbers cannot be sent: if it is text, put it in quotes";
const TOO_LARGE: &str = "a number that is too large: if it is text, put it in quotes";
pub(super) const UNKNOWN_TAG: &str = "a tag that means nothing here: text that begins with `!` has to be in quotes";
const MISFIT: &str = "a value that is not what its tag says";
const BINARY: &str = "a value tagged !!binary that is not text in base64";
const KEY: &str = "a key that is not text: put it in quotes";

/// Returns the value of a scalar. Errors do not repeat the scalar.
pub(super) fn value(text: &str, plain: bool, tag: Tag<'_>) -> Result<Value, &'static str> {
    Ok(match scalar(text, plain, tag)? {
        Scalar::Value(value) => value,
        Scalar::Integer(number) => Value::Number(number),
        Scalar::Float(number) => float(number),
    })
}

/// Returns the key that a scalar stands for. Integers and booleans become text as kubectl writes them. Fractions are
/// refused, because they may lose digits.
pub(super) fn key(text: &str, plain: bool, tag: Tag<'_>) -> Result<Key, &'static str> {
    if text == "<<" && (plain && tag == Tag::None || tag == Tag::Core("merge")) {
        return Ok(Key::Merge);
    }
    match scalar(text, plain, tag)? {
        Scalar::Value(Value::String(text)) => Ok(Key::Text(text)),
        Scalar::Value(Value::Bool(is)) => Ok(Key::Text(is.to_string())),
        Scalar::Integer(number) => Ok(Key::Text(number.to_string())),
        Scalar::Value(_) | Scalar::Float(_) => Err(KEY),
    }
}

/// Returns a number as JSON. A number without a fraction becomes an integer, as it does on the way to the API server.
pub(super) fn float(number: f64) -> Value {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if number.fract() == 0.0 && (-LIMIT..LIMIT).contains(&number) {
        #[expect(clippy::cast_possible_truncation, reason = "it is an integer in range")]
        let integer = number as i64;
        return Value::from(integer);
    }
    Value::from(number)
}

fn scalar(text: &str, plain: bool, tag: Tag<'_>) -> Result<Scalar, &'static str> {
    let string = || Scalar::Value(Value::String(text.to_owned()));
    match tag {
        Tag::None if plain => implied(text),
        Tag::None | Tag::Text | Tag::Core("str" | "timestamp") => Ok(string()),
        Tag::Core("binary") => Ok(Scalar::Value(Value::String(binary(text).ok_or(BINARY)?))),
        Tag::Core(name @ ("int" | "float" | "bool" | "null")) => {
            let scalar = implied(text)?;
            let fits = match &scalar {
                Scalar::Integer(_) => matches!(name, "int" | "float"),
                Scalar::Float(_) => name == "float",
                Scalar::Value(value) => name == "bool" && value.is_boolean() || name == "null" && value.is_null(),
            };
            if fits { Ok(scalar) } else { Err(MISFIT) }
        }
        Tag::Core("map" | "seq" | "set" | "omap") => Err(MISFIT),
        Tag::Core(_) | Tag::Unknown => Err(UNKNOWN_TAG),
    }
}

fn binary(text: &str) -> Option<String> {
    let compact: String = text.split_whitespace().collect();
    String::from_utf8(STANDARD.decode(compact).ok()?).ok()
}

fn implied(text: &str) -> Result<Scalar, &'static str> {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => return Err(NOT_FINITE),
        text => {
            if let Some(number) = number(text)? {
                return Ok(number);
            }
            Value::String(text.to_owned())
        }
    };
    Ok(Scalar::Value(value))
}

fn number(text: &str) -> Result<Option<Scalar>, &'static str> {
    let digits = match text.as_bytes().first() {
        Some(b'.') => text.to_owned(),
        Some(b'+' | b'-' | b'0'..=b'9') => text.replace('_', ""),
        _ => return Ok(None),
    };
    if let Some(integer) = integer(&digits)? {
        return Ok(Some(Scalar::Integer(integer)));
    }
    if !is_float(&digits) {
        return Ok(None);
    }
    Ok(digits
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .map(Scalar::Float))
}

/// Parses an integer with the prefixes `0x`, `0o`, `0b` or `0`. Returns `None` if the text is no integer, or a decimal
/// one that only a float can hold.
fn integer(text: &str) -> Result<Option<Number>, &'static str> {
    let magnitude = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (radix, digits) = match magnitude.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &magnitude[2..]),
        [b'0', b'o' | b'O', ..] => (8, &magnitude[2..]),
        [b'0', b'b' | b'B', ..] => (2, &magnitude[2..]),
        [b'0', _, ..] => (8, &magnitude[1..]),
        _ => (10, magnitude),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Ok(None);
    }
    let Ok(number) = i128::from_str_radix(digits, radix) else {
        return if is_float(text) { Ok(None) } else { Err(TOO_LARGE) };
    };
    let number = if text.starts_with('-') { -number } else { number };
    let fits = i64::try_from(number)
        .map(Number::from)
        .or_else(|_| u64::try_from(number).map(Number::from));
    match fits {
        Ok(number) => Ok(Some(number)),
        Err(_) if is_float(text) => Ok(None),
        Err(_) => Err(TOO_LARGE),
    }
}

/// Whether the text matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let is_exponent = |text: &str| is_digits(text.strip_prefix(['+', '-']).unwrap_or(text));
    let is_mantissa = match mantissa.split_once('.') {
        None => is_digits(mantissa),
        Some(("", fraction)) => is_digits(fraction),
        Some((whole, fraction)) => is_digits(whole) && (fraction.is_empty() || is_digits(fraction)),
    };
    is_mantissa && exponent.is_none_or(is_exponent)
}
