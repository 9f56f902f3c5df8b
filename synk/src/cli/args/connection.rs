//! Flags for cluster and user, the same as kubectl's.

use std::{path::PathBuf, time::Duration};

use bindery_runtime::terminal;
use secrecy::SecretString;

/// Selects the cluster and the user.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Connection (as of kubectl)")]
pub(in crate::cli) struct ConnectionArgs {
    /// Kubeconfig; found as kubectl finds it if left out.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(in crate::cli) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one if left out.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(in crate::cli) context: Option<String>,
    /// Cluster of the kubeconfig.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(in crate::cli) cluster: Option<String>,
    /// User of the kubeconfig.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(in crate::cli) user: Option<String>,
    /// Address of the API server.
    #[arg(short, long, global = true, hide_short_help = true, value_name = "URL", value_parser = server)]
    pub(in crate::cli) server: Option<http::Uri>,
    /// Bearer token, in place of the credentials of the kubeconfig. Others on this machine can see it.
    #[arg(long, global = true, hide_short_help = true, value_name = "TOKEN")]
    pub(in crate::cli) token: Option<SecretString>,
    /// User to act as.
    #[arg(long = "as", global = true, hide_short_help = true, value_name = "USER")]
    pub(in crate::cli) act_as: Option<String>,
    /// Group to act as a member of; may be given more than once.
    #[arg(long = "as-group", global = true, hide_short_help = true, value_name = "GROUP")]
    pub(in crate::cli) as_groups: Vec<String>,
    /// UID to act as.
    #[arg(long = "as-uid", global = true, hide_short_help = true, value_name = "UID")]
    pub(in crate::cli) as_uid: Option<String>,
    /// File with the CA (PEM) that the API server's certificate is verified with.
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "FILE",
        conflicts_with = "insecure_skip_tls_verify"
    )]
    pub(in crate::cli) certificate_authority: Option<PathBuf>,
    /// File with the certificate (PEM) to log in with.
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "FILE",
        requires = "client_key",
        conflicts_with = "token"
    )]
    pub(in crate::cli) client_certificate: Option<PathBuf>,
    /// File with the key (PEM) of that certificate.
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "FILE",
        requires = "client_certificate"
    )]
    pub(in crate::cli) client_key: Option<PathBuf>,
    /// Do not verify the API server's certificate: anybody on the way can read and change everything.
    #[arg(long, global = true, hide_short_help = true)]
    pub(in crate::cli) insecure_skip_tls_verify: bool,
    /// Name that the API server's certificate is verified for, in place of that of its address.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(in crate::cli) tls_server_name: Option<String>,
    /// Within which time each request must be answered, such as 30s; 0 for no limit.
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", value_parser = request_timeout)]
    pub(in crate::cli) request_timeout: Option<Duration>,
}

fn server(text: &str) -> Result<http::Uri, String> {
    let url: http::Uri = text.parse().map_err(|_| "this is no URL".to_owned())?;
    match (url.scheme_str(), url.host()) {
        (Some("https" | "http"), Some(_)) => Ok(url),
        _ => Err("write a URL such as https://10.0.0.1:6443".to_owned()),
    }
}

/// Parses a timeout as kubectl does: a duration, or a number of seconds.
fn request_timeout(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) if text == "0s" => Ok(Duration::ZERO),
        Err(_) => terminal::duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_with_its_scheme() {
        assert!(server("https://10.0.0.1:6443").is_ok() && server("http://localhost:8001/base").is_ok());
        for nonsense in ["", "localhost", "localhost:8080", "ftp://x", "https://"] {
            assert!(server(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_time_limit_is_a_duration_or_seconds() {
        for (text, expect) in [("30s", 30), ("1m", 60), ("5", 5), ("0", 0), ("0s", 0)] {
            assert_eq!(request_timeout(text), Ok(Duration::from_secs(expect)), "{text}");
        }
        for nonsense in ["", "-1s", "soon", "-1"] {
            assert!(request_timeout(nonsense).is_err(), "{nonsense}");
        }
    }
}
