//! The loopback port to which an issuer sends the browser at the end of the code flow.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
};

/// What the page at the end says.
pub(crate) const FAREWELL: &str = "You may close this page.";

/// A listener on a port of the system's choice.
#[derive(Debug)]
pub(crate) struct Loopback {
    listener: TcpListener,
    port: u16,
}

impl Loopback {
    pub(crate) async fn listen() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/callback", self.port)
    }

    /// Waits for the browser, and returns the query that it brings. Other requests, such as for an icon, are answered with 404.
    pub(crate) async fn redirected(&self) -> Result<Vec<(String, String)>> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let mut stream = BufReader::new(stream);
            let mut first = String::new();
            stream.read_line(&mut first).await?;
            let mut line = first.clone();
            while !line.trim_end().is_empty() {
                line.clear();
                stream.read_line(&mut line).await?;
            }
            let path = first.split(' ').nth(1).unwrap_or_default();
            let query = path.strip_prefix("/callback?");
            let status = if query.is_some() { "200 OK" } else { "404 Not Found" };
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{FAREWELL}",
                FAREWELL.len()
            );
            stream
                .write_all(answer.as_bytes())
                .await
                .context("cannot answer the browser")?;
            stream.shutdown().await?;
            if let Some(query) = query {
                return Ok(form_urlencoded::parse(query.as_bytes()).into_owned().collect());
            }
        }
    }
}
