//! A minimal HTTP client: one GET.

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

/// Gets `http://127.0.0.1:<port><path>`, and returns status and body.
pub async fn get(port: u16, path: &str) -> Result<(u16, String)> {
    get_over(TcpStream::connect(("127.0.0.1", port)).await?, path).await
}

/// Gets a path over a connection, which is closed afterwards, and returns status and body.
pub(crate) async fn get_over(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> Result<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).context("no status line")?.parse()?;
    Ok((status, body.to_owned()))
}
