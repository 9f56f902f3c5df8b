//! The address of a backend, and the audience that goes with it.
//!
//! A token for a backend is for the audience that the client derives from the address it dials, and the server derives
//! the one it demands from its own external address, by the same function. Both must come to the same text, so there is
//! one spelling: scheme and host in lower case, the port only where it is not the scheme's default, no trailing slash.
//! `HTTPS://Bind.Example.com:443/` and `bind.example.com` are both `https://bind.example.com`.
//!
//! A proxy may serve the backend below a path prefix. The prefix belongs to the address and to the audience: another prefix
//! of the same host may lead to another backend, which must not be able to use the token.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Longest host name that DNS knows.
const HOST_LENGTH_MAX: usize = 253;

/// How the backend is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// TLS.
    Https,
    /// Plaintext: for loopback alone.
    Http,
}

/// Where a backend is: scheme, host, port, and the path prefix below which a proxy serves it, if any. Displayed in its one
/// spelling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    scheme: Scheme,
    host: Host,
    port: u16,
    prefix: String,
}

/// Host of an address: a name, or an IP address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Host {
    Name(String),
    Ip(IpAddr),
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address:?} is no address of a backend: {fault}; write https://host, https://host:port or https://host:port/prefix"
)]
pub struct AddressError {
    address: String,
    fault: &'static str,
}

/// The audience of tokens for the backend at this address.
///
/// ```
/// use bindery_proto::address::audience;
///
/// assert_eq!(audience("https://Bind.Example.com:443/").as_deref(), Ok("https://bind.example.com"));
/// assert_eq!(audience("bind.example.com:8443").as_deref(), Ok("https://bind.example.com:8443"));
/// assert_eq!(audience("https://example.com/bindery/").as_deref(), Ok("https://example.com/bindery"));
/// ```
pub fn audience(address: &str) -> Result<String, AddressError> {
    Ok(address.parse::<Address>()?.to_string())
}

impl Scheme {
    /// As it stands before `://`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

impl Address {
    /// TLS or plaintext.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host, without the brackets of an IPv6 address: what a certificate must be for.
    pub fn host(&self) -> String {
        match &self.host {
            Host::Name(name) => name.clone(),
            Host::Ip(ip) => ip.to_string(),
        }
    }

    /// The port, also where it is the scheme's default.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path before that of each method, such as `/bindery`, which is plain segments; empty if there is none.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether nothing leaves this machine: a loopback IP address, or `localhost`.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Name(name) => name == "localhost",
            Host::Ip(ip) => ip.is_loopback(),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).map_err(|fault| AddressError {
            address: text.to_owned(),
            fault,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]")?,
            Host::Ip(IpAddr::V4(ip)) => write!(f, "{ip}")?,
            Host::Name(name) => f.write_str(name)?,
        }
        if self.port != self.scheme.default_port() {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.prefix)
    }
}

/// Takes an address apart. A missing scheme is https.
fn parse(text: &str) -> Result<Address, &'static str> {
    let (scheme, rest) = match text.split_once("://") {
        None => (Scheme::Https, text),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
        Some(_) => return Err("its scheme is neither https nor http"),
    };
    if rest.contains(['?', '#']) {
        return Err("it has a query or a fragment");
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("it names a user");
    }
    let (host, port) = split_port(authority)?;
    let port = match port {
        None => scheme.default_port(),
        Some(digits) => parse_port(digits)?,
    };
    let prefix = parse_prefix(path)?;
    Ok(Address {
        scheme,
        host,
        port,
        prefix,
    })
}

fn split_port(authority: &str) -> Result<(Host, Option<&str>), &'static str> {
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (ip, rest) = bracketed.split_once(']').ok_or("its bracket is not closed")?;
        let ip: Ipv6Addr = ip.parse().map_err(|_| "what stands in brackets is no IPv6 address")?;
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port),
            None if rest.is_empty() => None,
            None => return Err("something other than a port follows the IPv6 address"),
        };
        return Ok((Host::Ip(ip.into()), port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    Ok((parse_host(host)?, port))
}

fn parse_host(host: &str) -> Result<Host, &'static str> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(Host::Ip(ip));
    }
    if host.is_empty() {
        return Err("it has no host");
    }
    let label_fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if host.len() > HOST_LENGTH_MAX || !host.split('.').all(label_fits) {
        return Err("its host is no DNS name");
    }
    Ok(Host::Name(host.to_ascii_lowercase()))
}

fn parse_port(digits: &str) -> Result<u16, &'static str> {
    // `parse` alone would take a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("its port is no number");
    }
    match digits.parse() {
        Ok(0) | Err(_) => Err("its port is not between 1 and 65535"),
        Ok(port) => Ok(port),
    }
}

/// Reads the path below which a proxy serves the backend. Only characters that every proxy leaves as they are may stand in it:
/// an escaped or a dotted segment could mean one path to the client and another one to the proxy.
fn parse_prefix(path: &str) -> Result<String, &'static str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some(segments) = path.strip_prefix('/') else {
        return Ok(String::new());
    };
    for segment in segments.split('/') {
        if matches!(segment, "" | "." | "..") {
            return Err("its path has an empty segment, or one of dots");
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if !segment.bytes().all(is_plain) {
            return Err("its path has characters other than letters, digits, '-', '.', '_' and '~'");
        }
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(address: &str, expect: &str) {
        assert_eq!(audience(address).as_deref(), Ok(expect), "{address}");
    }

    #[track_caller]
    fn check_refused(address: &str, fault: &str) {
        let error = audience(address)
            .expect_err("an address that must be refused")
            .to_string();
        assert!(error.contains(fault), "{error}");
    }

    #[test]
    fn one_address_has_one_audience() {
        for spelling in [
            "https://bind.example.com",
            "https://bind.example.com/",
            "https://bind.example.com:443",
            "HTTPS://BIND.Example.com:0443/",
            "bind.example.com",
            "bind.example.com:443",
        ] {
            check(spelling, "https://bind.example.com");
        }
        check("https://bind.example.com:8443/", "https://bind.example.com:8443");
        check("https://bind.example.com:80", "https://bind.example.com:80");
        check("http://127.0.0.1:80", "http://127.0.0.1");
        check("http://localhost:8080", "http://localhost:8080");
        check("https://[2001:DB8:0:0::1]:443", "https://[2001:db8::1]");
        check("[::1]:6443", "https://[::1]:6443");
    }

    #[test]
    fn a_prefix_belongs_to_the_audience() {
        check("https://example.com/bindery", "https://example.com/bindery");
        check("HTTPS://Example.com:443/bindery/", "https://example.com/bindery");
        check("example.com:8443/a/b-c_d.e~f/", "https://example.com:8443/a/b-c_d.e~f");
        check("https://example.com/Bindery", "https://example.com/Bindery");
        check("https://[::1]:443/x", "https://[::1]/x");
        let address: Address = "https://example.com:443/a/b/".parse().expect("an address");
        assert_eq!((address.host().as_str(), address.prefix()), ("example.com", "/a/b"));
        let address: Address = "https://example.com/".parse().expect("an address");
        assert_eq!(address.prefix(), "");
    }

    #[test]
    fn a_prefix_that_could_mean_two_paths_is_refused() {
        for path in ["//", "/a//b", "//a", "/a//", "/.", "/..", "/a/../b", "/a/./"] {
            check_refused(&format!("https://example.com{path}"), "empty segment, or one of dots");
        }
        for path in [
            "/%2e%2e", "/a%2fb", "/a b", "/a;b", "/a:b", "/a@b", "/a\\b", "/ä", "/a\r\nb", "/a\0", "/a*",
        ] {
            check_refused(
                &format!("https://example.com{path}"),
                "its path has characters other than",
            );
        }
        check_refused("https://example.com/a?b", "a query or a fragment");
        check_refused("https://example.com/a#b", "a query or a fragment");
        check_refused("https://me@example.com/a", "a user");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        check_refused("", "no host");
        check_refused("https://", "no host");
        check_refused("https://:443", "no host");
        check_refused("ftp://bind.example.com", "neither https nor http");
        check_refused("https://bind.example.com?x", "a query");
        check_refused("https://me@bind.example.com", "a user");
        check_refused("https://bind.example.com:0", "between 1 and 65535");
        check_refused("https://bind.example.com:65536", "between 1 and 65535");
        check_refused("https://bind.example.com:+443", "no number");
        check_refused("https://bind.example.com:", "between 1 and 65535");
        check_refused("https://bind..example.com", "no DNS name");
        check_refused("https://bücher.example", "no DNS name");
        check_refused("https://[::1", "not closed");
        check_refused("https://[::1]x", "other than a port");
        check_refused("https://[host]", "no IPv6");
    }

    #[test]
    fn loopback_is_told_from_the_rest() {
        for (text, expect) in [
            ("http://127.0.0.1:1", true),
            ("http://127.9.9.9:1", true),
            ("http://[::1]:1", true),
            ("http://LOCALHOST:1", true),
            ("http://localhost.example.com:1", false),
            ("http://0.0.0.0:1", false),
            ("http://10.0.0.1:1", false),
        ] {
            let address: Address = text.parse().expect("an address");
            assert_eq!(address.is_loopback(), expect, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_audience_is_its_own_audience(
            host in "[a-zA-Z0-9]{1,9}(\\.[a-zA-Z]{1,9}){0,3}", port in 1_u16.., tls: bool, prefix in "(/[a-z_~]{1,5}){0,3}/?",
        ) {
            let scheme = if tls { "https" } else { "http" };
            let first = audience(&format!("{scheme}://{host}:{port}{prefix}")).expect("an address");
            let second = audience(&first).expect("an audience is an address");
            prop_assert_eq!(first, second);
        }

        #[test]
        fn any_text_is_refused_or_an_address(text in "\\PC{0,40}|https?://[a-z0-9:@/?\\[\\].]{0,20}") {
            match audience(&text) {
                Ok(first) => {
                    let has_scheme = first.starts_with("https://") || first.starts_with("http://");
                    prop_assert!(has_scheme && !first.contains(['@', '?', '#', ' ']), "{}", first);
                    prop_assert_eq!(audience(&first), Ok(first));
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
