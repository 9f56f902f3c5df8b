//! The origins of `--cors-allowed-origins`.

use bindery_proto::address::{Address, Scheme};
use http::HeaderValue;

/// Reads an origin, which must be spelled as browsers send it, for it is compared byte by byte.
pub(super) fn allowed(text: &str) -> Result<HeaderValue, String> {
    if text == "*" {
        return Err("would let the pages of every site call this server; list their origins".to_owned());
    }
    let address: Address = text
        .parse()
        .map_err(|_| "is no origin; write one as https://console.example.com".to_owned())?;
    if address.scheme() == Scheme::Http && !address.is_loopback() {
        return Err("must begin with https://, since anyone on the way could change a page of http://".to_owned());
    }
    let origin = address.to_string();
    if origin != text {
        let origin = origin.strip_suffix(address.prefix()).unwrap_or(&origin);
        return Err(format!("is not as browsers send it; write {origin}"));
    }
    if !address.prefix().is_empty() {
        let origin = origin.strip_suffix(address.prefix()).unwrap_or(&origin);
        return Err(format!("has a path, and an origin has none; write {origin}"));
    }
    HeaderValue::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_spelled_as_browsers_send_it() {
        for text in [
            "https://console.example.com",
            "https://[2001:db8::1]:8443",
            "http://localhost:3000",
        ] {
            assert_eq!(allowed(text), Ok(HeaderValue::from_static(text)));
        }
        for (text, complaint) in [
            ("*", "every site"),
            ("", "is no origin"),
            ("console.example.com", "write https://console.example.com"),
            ("https://Console.example.com", "write https://console.example.com"),
            ("https://console.example.com:443", "write https://console.example.com"),
            ("https://console.example.com/", "write https://console.example.com"),
            ("https://console.example.com/app", "has a path"),
            ("https://*.example.com", "is no origin"),
            ("http://console.example.com", "must begin with https://"),
            ("ftp://console.example.com", "is no origin"),
        ] {
            let error = allowed(text).expect_err(text);
            assert!(error.contains(complaint), "{text}: {error}");
        }
    }
}
