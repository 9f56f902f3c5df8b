//! Flags of the commands that log in and out, and that show and choose logins.

use std::path::PathBuf;

use clap::Subcommand;

use crate::login::code::RedirectAddress;

/// Flags of `login`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
What it does:
  1. asks the server where you can log in. At the first login, it asks you whether issuer and client are right; without a
     terminal, you have to name the issuer with --issuer. It remembers both: a server that names another issuer later is
     refused until you confirm that with --issuer, and another client, or the client of another server, with --client-id
  2. opens your browser at the issuer, and prints the address too; without a display, it prints a code to enter on any
     device, if the issuer lets you
  3. checks what the issuer answers, and asks the server who you are to it
  4. keeps the login in ~/.config/bindery, in files that you alone can read, and makes this server the current one

All commands then use the login until you log out, and refresh it before it expires. $BINDERY_CONFIG names another folder.
Flags and environment variables win over a stored login.

If no browser reaches this machine, open the printed address anywhere. The browser then ends at an address that it cannot
open: paste that one into the terminal.

Examples:
  kubectl bind login https://bind.example.com
  kubectl bind login https://bind.example.com --device
  kubectl bind login https://bind.example.com --certificate-authority ca.crt --issuer-ca login-ca.crt
  kubectl bind login --prompt select_account        # as somebody else, at the current server")]
pub(crate) struct LoginArgs {
    /// Address of the provider's server; by default the current one.
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Log in with a code that you enter on any device, instead of with a browser on this machine.
    #[arg(long, conflicts_with_all = ["no_browser", "redirect_url", "prompt"])]
    pub(crate) device: bool,
    /// Open no browser: print the address, and read from standard input the address that the browser ends at.
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// The issuer to log in at, of those that the server names; also confirms that the server names another one than before.
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<String>,
    /// The client to log in with, which the server names too; confirms that it is another one than before, or that of another
    /// server, which could then be opened with your token.
    #[arg(long, value_name = "CLIENT")]
    pub(crate) client_id: Option<String>,
    /// File with the CA (PEM) that signed the issuer's certificate; by default the CAs of the system.
    #[arg(long, value_name = "FILE")]
    pub(crate) issuer_ca: Option<PathBuf>,
    /// Where the issuer sends the browser back, for issuers that allow only registered addresses, such as
    /// http://localhost:8000; may be repeated, and the first one whose port is free is used.
    #[arg(long, value_name = "URL")]
    pub(crate) redirect_url: Vec<RedirectAddress>,
    /// What the issuer shall show, such as login or select_account.
    #[arg(long, value_name = "WORD")]
    pub(crate) prompt: Option<String>,
}

impl LoginArgs {
    /// Whether the flags have an effect in a login with a browser alone.
    pub(crate) fn need_browser(&self) -> bool {
        self.no_browser || self.prompt.is_some() || !self.redirect_url.is_empty()
    }
}

/// Flags of `logout`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Makes the refresh token void at the issuer, where the issuer can do that, and deletes the tokens from this machine. The
issuer's own session in your browser stays.

Examples:
  kubectl bind logout
  kubectl bind logout https://bind.example.com")]
pub(crate) struct LogoutArgs {
    /// Address of the provider's server; by default the current one.
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
}

/// Flags of `token`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The token lets everybody who has it act as you until it expires: give it to no other server, and to programs by the
environment or a pipe. All users of a machine can read the arguments of its programs.

Examples:
  TOKEN=$(kubectl bind token) grpcurl -expand-headers -H 'authorization: Bearer ${TOKEN}' \\
    bind.example.com:443 kubebind.v1alpha2.CatalogService/ListTemplates
  kubectl bind token --exec-credential      # as an exec credential plugin of client-go prints it")]
pub(crate) struct TokenArgs {
    /// Print an ExecCredential of client.authentication.k8s.io instead of the token alone.
    #[arg(long)]
    pub(crate) exec_credential: bool,
}

/// Flags of `server`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  kubectl bind server list
  kubectl bind server use https://bind.example.com
  kubectl bind server remove https://bind.example.com")]
pub(crate) struct ServersArgs {
    #[command(subcommand)]
    pub(crate) command: ServersCommand,
}

/// The commands of `server`.
#[derive(Subcommand, Debug)]
pub(crate) enum ServersCommand {
    /// List the servers that you have logged in to.
    List,
    /// Make a server the current one.
    Use {
        /// Address of the server.
        #[arg(value_name = "URL")]
        url: String,
    },
    /// Log out of a server, and forget it with its issuer.
    Remove {
        /// Address of the server.
        #[arg(value_name = "URL")]
        url: String,
    },
}
