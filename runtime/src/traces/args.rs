//! The flags of traces.

use std::{fmt, str::FromStr};

use http::Uri;

/// Flags for traces, shared by server and konnector.
#[allow(rustdoc::bare_urls, reason = "the texts are shown by --help")]
#[derive(Clone, Debug, clap::Args)]
pub struct TraceArgs {
    /// URL of an OpenTelemetry collector to which traces are sent, by OTLP over gRPC, such as http://collector.observability:4317.
    /// Headers for the collector, such as a token, are read from variable OTEL_EXPORTER_OTLP_HEADERS. Without this flag nothing is traced.
    #[arg(long, value_name = "URL")]
    pub trace_endpoint: Option<TraceEndpoint>,
    /// The part of all changes and calls that is traced, from 0 to 1. A call whose caller has decided that, in header `traceparent`, is
    /// traced as the caller says.
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, value_parser = ratio)]
    pub trace_sample: f64,
}

/// The address of a collector: `http://` or `https://`, with a host and nothing else but a port.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceEndpoint(Uri);

/// The address names a user or a password, which would be shown wherever flags are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the URL names a user; put credentials in a header, by variable OTEL_EXPORTER_OTLP_HEADERS")]
pub struct NamesUser;

/// Why a text is not the address of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is no URL of `http` or `https`.
    #[error("write a URL that begins with http:// or https://, such as http://collector.observability:4317")]
    Scheme,
    /// It has a path or a query, which OTLP over gRPC has no use for.
    #[error(
        "the URL has a path or a query; OTLP over gRPC needs only host and port, such as http://collector.observability:4317"
    )]
    Path,
}

// === impl TraceEndpoint ===

impl TraceEndpoint {
    /// The address as a URI. Fails if it names a user: the parser of flags would repeat the password in its error.
    pub(super) fn uri(&self) -> Result<&Uri, NamesUser> {
        let authority = self.0.authority();
        if authority.is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(NamesUser);
        }
        Ok(&self.0)
    }

    /// Whether the collector is reached by TLS.
    pub(super) fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

impl FromStr for TraceEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let uri: Uri = text.parse().map_err(|_| EndpointError::Scheme)?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().filter(|_| is_known).ok_or(EndpointError::Scheme)?;
        if authority.host().is_empty() {
            return Err(EndpointError::Scheme);
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(EndpointError::Path);
        }
        Ok(Self(uri))
    }
}

/// Shows the host, and no password.
impl fmt::Debug for TraceEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TraceEndpoint").field(&self.0.host()).finish()
    }
}

/// Parses a part of the whole.
fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "must be a number from 0 to 1, such as 0.01".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<bool, EndpointError>) {
        let got = text.parse::<TraceEndpoint>();
        assert_eq!(got.map(|endpoint| endpoint.is_https()), expect, "{text}");
    }

    #[test]
    fn an_endpoint_has_a_scheme_and_a_host_and_nothing_else_but_a_port() {
        check("http://collector.observability:4317", Ok(false));
        check("https://collector.example.com", Ok(true));
        check("https://collector.example.com/", Ok(true));
        check("http://[::1]:4317", Ok(false));
        check("collector:4317", Err(EndpointError::Scheme));
        check("grpc://collector:4317", Err(EndpointError::Scheme));
        check("", Err(EndpointError::Scheme));
        check("http://", Err(EndpointError::Scheme));
        check("http://collector:4318/v1/traces", Err(EndpointError::Path));
        check("http://collector:4317?a=b", Err(EndpointError::Path));
    }

    #[test]
    fn a_user_is_refused_and_no_password_is_shown() {
        let endpoint: TraceEndpoint = "http://me:secret@collector:4317".parse().unwrap();
        let error = endpoint.uri().unwrap_err();
        let shown = format!("{error} {error:?} {endpoint:?}");
        assert!(
            shown.contains("OTEL_EXPORTER_OTLP_HEADERS") && !shown.contains("secret"),
            "{shown}"
        );
        let endpoint: TraceEndpoint = "http://collector:4317".parse().unwrap();
        assert!(endpoint.uri().is_ok());
    }

    #[test]
    fn a_ratio_is_a_part_of_the_whole() {
        for (text, expect) in [("0", Some(0.0)), ("0.01", Some(0.01)), ("1", Some(1.0))] {
            assert_eq!(ratio(text).ok(), expect, "{text}");
        }
        for text in ["-0.1", "1.1", "NaN", "1%", ""] {
            assert!(ratio(text).is_err(), "{text}");
        }
    }
}
