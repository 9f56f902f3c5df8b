//! The listener on the loopback of this machine to which the issuer sends the browser back.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::pin,
    str::FromStr,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use openidconnect::url::{Host, Url};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

use super::{
    entry::{Entry, Step},
    redirect::Redirect,
};
use crate::login::error::LoginError;

/// Path of the redirect unless flags name another one.
const PATH: &str = "/callback";
/// A browser has this long to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A browser has this long to take its page once the login has ended.
const PAGE_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections at the same time. More wait in the system's queue.
const CONNECTIONS_MAX: usize = 16;

/// Where the issuer may send the browser back: a URL of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedirectAddress {
    /// The host as it is written, such as `127.0.0.1` or `localhost`.
    host: String,
    ip: IpAddr,
    /// 0 means a port of the system's choice.
    port: u16,
    /// The path as it is written: issuers tell an empty one from `/`.
    path: String,
}

/// The listener. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Loopback {
    /// The URL without its path.
    origin: String,
    url: String,
    entry: Entry,
    arrivals: mpsc::Receiver<Arrival>,
    connections: JoinSet<()>,
}

/// A browser that came back and waits for its page.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The query of the request.
    pub(super) query: String,
    page: oneshot::Sender<Page>,
}

/// What the listener serves.
#[derive(Clone, Debug)]
struct Site {
    /// Path of the redirect.
    path: String,
    entry: Entry,
    arrivals: mpsc::Sender<Arrival>,
}

/// What the browser shows.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    status: StatusCode,
    text: &'static str,
}

impl Default for RedirectAddress {
    /// A port of the system's choice, which issuers must allow for programs such as this one (RFC 8252, 7.3).
    fn default() -> Self {
        Self {
            host: Ipv4Addr::LOCALHOST.to_string(),
            ip: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            path: PATH.to_owned(),
        }
    }
}

impl FromStr for RedirectAddress {
    type Err = String;

    /// Reads `http://127.0.0.1:8000/callback` and the like. Without a port, the system chooses one.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "write a URL of this machine, such as http://127.0.0.1:8000/callback or http://localhost:8000";
        let url = Url::parse(text)
            .ok()
            .filter(|url| url.scheme() == "http" && url.query().is_none() && url.fragment().is_none());
        let url = url
            .filter(|url| url.username().is_empty() && url.password().is_none())
            .ok_or(wrong)?;
        let ip: IpAddr = match url.host() {
            Some(Host::Ipv4(ip)) => ip.into(),
            Some(Host::Ipv6(ip)) => ip.into(),
            Some(Host::Domain("localhost")) => Ipv4Addr::LOCALHOST.into(),
            _ => return Err(wrong.to_owned()),
        };
        if !ip.is_loopback() {
            return Err(wrong.to_owned());
        }
        Ok(Self {
            host: url.host_str().unwrap_or_default().to_owned(),
            ip,
            port: url.port().unwrap_or(0),
            path: match url.path() {
                "/" if !text.ends_with('/') => String::new(),
                path => path.to_owned(),
            },
        })
    }
}

impl Loopback {
    /// Listens at the first of these addresses whose port is free.
    pub(crate) async fn listen(addresses: &[RedirectAddress]) -> Result<Self, LoginError> {
        let mut faults = Vec::new();
        for address in addresses {
            match TcpListener::bind(SocketAddr::new(address.ip, address.port)).await {
                Ok(listener) => return Self::serve(listener, address).map_err(|error| fault(&[error.to_string()])),
                Err(error) => faults.push(format!("{}:{}: {error}", address.host, address.port)),
            }
        }
        Err(fault(&faults))
    }

    fn serve(listener: TcpListener, address: &RedirectAddress) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        // Browsers cut off a port 80.
        let origin = format!("http://{}:{port}", address.host);
        let entry = Entry::default();
        let (sender, arrivals) = mpsc::channel(CONNECTIONS_MAX);
        let mut connections = JoinSet::new();
        let path = if address.path.is_empty() { "/" } else { &address.path };
        let site = Site {
            path: path.to_owned(),
            entry: entry.clone(),
            arrivals: sender,
        };
        connections.spawn(accept(listener, site));
        Ok(Self {
            url: format!("{origin}{}", address.path),
            origin,
            entry,
            arrivals,
            connections,
        })
    }

    /// The URL to which the issuer sends the browser back.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The address to open a browser with: it leads to this URL of the issuer once, and tells nothing of it before.
    pub(crate) fn entry(&self, url: &str) -> String {
        match self.entry.lead_to(url) {
            Some(path) => format!("{}{path}", self.origin),
            // A URL has no characters that a header must not have.
            None => url.to_owned(),
        }
    }

    /// Waits for a browser that comes back.
    pub(super) async fn next(&mut self) -> Option<Arrival> {
        self.arrivals.recv().await
    }

    /// Ends the listener once the pages that are under way were sent.
    pub(super) async fn close(mut self) {
        self.arrivals.close();
        // A browser that does not read its page is not waited for.
        let _ = timeout(PAGE_TIMEOUT, async {
            while self.connections.join_next().await.is_some() {}
        })
        .await;
    }
}

impl Arrival {
    /// Answers the browser with a page that says what became of the redirect.
    pub(super) fn answer(self, redirect: &Redirect) {
        let page = match redirect {
            Redirect::Code(_) => Page {
                status: StatusCode::OK,
                text: "Go back to the terminal: the login goes on there. You can close this page.",
            },
            Redirect::Failed(_) => Page {
                status: StatusCode::OK,
                text: "The login failed. The terminal says why. You can close this page.",
            },
            Redirect::Foreign(_) => Page {
                status: StatusCode::BAD_REQUEST,
                text: "This is not the answer to the login that kubectl bind waits for.",
            },
        };
        // The browser may have gone.
        let _ = self.page.send(page);
    }
}

/// Accepts browsers until nobody waits for arrivals any more.
async fn accept(listener: TcpListener, site: Site) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
            Some(_) = connections.join_next() => continue,
            () = site.arrivals.closed() => break,
        };
        let Ok((stream, _)) = stream else { continue };
        connections.spawn(serve_browser(stream, site.clone()));
    }
    while connections.join_next().await.is_some() {}
}

/// Serves one connection. Browsers also open connections that they may never use: these end with the login.
async fn serve_browser(stream: TcpStream, site: Site) {
    let ended = site.arrivals.clone();
    let service = service_fn(move |request| respond(request, site.clone()));
    let mut server = hyper::server::conn::http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .keep_alive(false);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    // A browser that breaks the connection off may come again.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = ended.closed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

async fn respond(request: Request<Incoming>, site: Site) -> Result<Response<Full<Bytes>>, Infallible> {
    let nothing = Page {
        status: StatusCode::NOT_FOUND,
        text: "Nothing is here.",
    };
    if request.method() != Method::GET {
        return Ok(response(&nothing));
    }
    match site.entry.open(request.uri().path()) {
        Step::To(target) => return Ok(forward(target)),
        Step::Used => {
            return Ok(response(&Page {
                status: StatusCode::GONE,
                text: "This address was opened before. If that was not you, press Ctrl-C in the terminal: another user of this machine \
                       may have opened it. If it was you, open the address that the terminal shows.",
            }));
        }
        Step::Elsewhere if request.uri().path() != site.path => return Ok(response(&nothing)),
        Step::Elsewhere => {}
    }
    let (page, answered) = oneshot::channel();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let page = match site.arrivals.send(Arrival { query, page }).await {
        Ok(()) => answered.await.ok(),
        Err(_) => None,
    };
    Ok(response(&page.unwrap_or(Page {
        status: StatusCode::GONE,
        text: "The login has ended already.",
    })))
}

/// Sends the browser to the issuer.
fn forward(target: HeaderValue) -> Response<Full<Bytes>> {
    let mut response = response(&Page {
        status: StatusCode::SEE_OTHER,
        text: "Go on to the issuer.",
    });
    response.headers_mut().insert(header::LOCATION, target);
    response
}

fn response(page: &Page) -> Response<Full<Bytes>> {
    let body = format!(
        "<!doctype html><meta charset=utf-8><title>kubectl bind login</title><p>{}</p>\n",
        page.text
    );
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = page.status;
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn fault(faults: &[String]) -> LoginError {
    LoginError::Loopback {
        fault: faults.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_this_machine_alone() {
        for (text, expect) in [
            ("http://127.0.0.1:8000/callback", Some(("127.0.0.1", 8000, "/callback"))),
            ("http://localhost:18000", Some(("localhost", 18000, ""))),
            ("http://[::1]:8000/a/b", Some(("[::1]", 8000, "/a/b"))),
            ("http://127.0.0.1", Some(("127.0.0.1", 0, ""))),
            ("http://localhost:8000/", Some(("localhost", 8000, "/"))),
            ("https://127.0.0.1:8000", None),
            ("http://10.0.0.1:8000", None),
            ("http://localhost.example.com:8000", None),
            ("http://user@127.0.0.1:8000", None),
            ("http://127.0.0.1:8000/?a=b", None),
            ("127.0.0.1:8000", None),
            ("", None),
        ] {
            let got = text.parse::<RedirectAddress>().ok();
            let got = got
                .as_ref()
                .map(|address| (address.host.as_str(), address.port, address.path.as_str()));
            assert_eq!(got, expect, "{text}");
        }
    }

    #[tokio::test]
    async fn the_next_address_is_taken_where_a_port_is_not_free() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let first: RedirectAddress = format!("http://127.0.0.1:{port}/callback").parse().unwrap();
        let error = Loopback::listen(std::slice::from_ref(&first)).await.unwrap_err();
        assert!(error.to_string().contains(&port.to_string()), "{error}");
        let loopback = Loopback::listen(&[first, RedirectAddress::default()]).await.unwrap();
        assert!(!loopback.url().contains(&format!(":{port}/")), "{}", loopback.url());
    }
}
