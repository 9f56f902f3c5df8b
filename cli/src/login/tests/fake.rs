//! An issuer on loopback, over TLS with its own CA. It keeps to the protocol unless a test changes its [`State`].

use std::{
    collections::{HashMap, HashSet, VecDeque},
    convert::Infallible,
    fmt::Debug,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use openidconnect::{
    PkceCodeChallenge, PkceCodeVerifier,
    url::{Url, form_urlencoded},
};
use parking_lot::{Mutex, MutexGuard};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::login::{
    choice::{self, Named, Offer},
    issuer::Issuer,
    source::StoredLogin,
    store::{Folder, IssuerPin, Servers, StoredTokens, TokenFile},
};
use bindery_proto::v1alpha2::{AuthenticationMethod, OidcAuthentication, Provider, authentication_method::Method};

/// Address of the server that the tests log in to. Nobody calls it.
pub(super) const SERVER: &str = "https://bind.example.com";

/// An issuer, and a folder for logins.
pub(super) struct FakeIssuer {
    pub(super) url: String,
    pub(super) folder: TempDir,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

/// What the issuer knows, and how it departs from the protocol.
pub(super) struct State {
    url: String,
    key: Key,
    codes: HashMap<String, Code>,
    refresh_tokens: HashSet<String>,
    /// Secrets that the issuer gave out or was sent. None may appear in an error.
    secrets: Vec<String>,
    /// Number of requests by path.
    pub(super) requests: HashMap<String, usize>,
    /// Lifetime of ID tokens, in seconds.
    pub(super) lifetime: i64,
    /// Whether logins get a refresh token.
    pub(super) gives_refresh_tokens: bool,
    /// Whether a refresh yields an ID token.
    pub(super) refreshes_id_tokens: bool,
    /// Claims that replace those of ID tokens.
    pub(super) claims: Value,
    /// Fields that replace those of the configuration.
    pub(super) configuration: Value,
    /// What signs ID tokens.
    pub(super) signed: Signed,
    /// Path whose requests are processed and never answered.
    pub(super) stalls: Option<&'static str>,
    /// Answers to requests with a device code: errors, then the tokens.
    pub(super) device_answers: VecDeque<&'static str>,
    /// Seconds that a device code is valid.
    pub(super) device_expires_in: u64,
    /// Answers that replace those of a path.
    pub(super) replaced: HashMap<&'static str, (StatusCode, Option<String>, String)>,
    /// How long an answer takes.
    pub(super) delay: Duration,
}

/// What signs an ID token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signed {
    /// The published key.
    Key,
    /// A key that is not published.
    OtherKey,
    /// The published key, as the secret of an HMAC.
    PublicKey,
    /// Nothing: algorithm `none`.
    Nothing,
}

struct Key {
    sign: EncodingKey,
    public: Value,
}

struct Code {
    challenge: String,
    redirect: String,
    nonce: String,
}

impl Key {
    fn new() -> Self {
        let pair = KeyPair::generate().unwrap();
        let raw = pair.public_key_raw();
        let coordinate = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let public = json!({
            "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k",
            "x": coordinate(&raw[1..33]), "y": coordinate(&raw[33..65]),
        });
        Self {
            sign: EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap(),
            public,
        }
    }
}

impl Drop for FakeIssuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeIssuer {
    pub(super) async fn start() -> Self {
        // Another test may have installed it.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let folder = tempfile::tempdir().unwrap();
        let acceptor = tls(&folder.path().join("ca.crt"));
        let state = Arc::new(Mutex::new(State::new(url.clone())));
        let task = tokio::spawn(serve(listener, acceptor, Arc::clone(&state)));
        Self {
            url,
            folder,
            state,
            task,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn requests(&self, path: &str) -> usize {
        self.state().requests.get(path).copied().unwrap_or(0)
    }

    /// Waits until somebody has asked for a path.
    pub(super) async fn asked(&self, path: &str) {
        eventually(|| (self.requests(path) > 0).then_some(())).await;
    }

    pub(super) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    pub(super) fn pin(&self) -> IssuerPin {
        IssuerPin {
            url: self.url.clone(),
            client_id: "bindery".to_owned(),
            certificate_authority: Some(self.authority()),
        }
    }

    pub(super) fn offer(&self) -> Offer {
        let oidc = OidcAuthentication {
            issuer: self.url.clone(),
            client_id: "bindery".to_owned(),
            scopes: ["openid", "groups", "offline_access"].map(str::to_owned).to_vec(),
            flows: Vec::new(),
        };
        let provider = Provider {
            authentication_methods: vec![AuthenticationMethod {
                method: Some(Method::Oidc(oidc)),
            }],
            ..Provider::default()
        };
        let authority = self.authority();
        let named = Named {
            authority: Some(&authority),
            ..Named::default()
        };
        choice::issuer(SERVER, &provider, &Servers::default(), named).unwrap()
    }

    pub(super) async fn discover(&self) -> Issuer {
        Issuer::discover(&self.pin()).await.unwrap()
    }

    /// The folder for logins.
    pub(super) fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    pub(super) fn store(&self) -> Folder {
        Folder::new(self.config())
    }

    pub(super) fn file(&self) -> TokenFile {
        self.store().tokens(&SERVER.parse().unwrap()).unwrap()
    }

    pub(super) fn login(&self) -> StoredLogin {
        StoredLogin::new(self.file(), self.pin())
    }

    /// Stores a login that is to be refreshed at once, and is valid for so many seconds.
    pub(super) fn store_login(&self, valid_for: i64) -> StoredTokens {
        let tokens = self.state().tokens("subject-1", None);
        let now = Timestamp::now();
        let stored = StoredTokens {
            server: SERVER.to_owned(),
            issuer: self.url.clone(),
            client_id: "bindery".to_owned(),
            subject: "subject-1".to_owned(),
            expires_at: now + jiff::SignedDuration::from_secs(valid_for),
            refresh_at: now - jiff::SignedDuration::from_secs(1),
            id_token: tokens["id_token"].as_str().unwrap().into(),
            refresh_token: tokens["refresh_token"].as_str().map(Into::into),
        };
        self.file().write(&stored).unwrap();
        stored
    }

    /// Does what a user does in the browser who logs in: the issuer makes a code, and the browser is sent back with it. Returns
    /// the query of the redirect.
    pub(super) fn consent(&self, login_url: &str) -> String {
        let url: Url = login_url.parse().unwrap();
        let get = |name: &str| url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        assert_eq!(
            (get("response_type"), get("code_challenge_method")),
            ("code".to_owned(), "S256".to_owned())
        );
        let mut state = self.state();
        if state.refuses(&get("scope")) {
            return format!("error=invalid_scope&state={}", get("state"));
        }
        let prompt = url.query_pairs().find(|(key, _)| key == "prompt");
        let asks_for_consent = prompt.is_some_and(|(_, prompt)| prompt == "consent");
        assert_eq!(asks_for_consent, get("scope").contains("offline_access"));
        let code = format!("code-{:016x}", rand::random::<u64>());
        let known = Code {
            challenge: get("code_challenge"),
            redirect: get("redirect_uri"),
            nonce: get("nonce"),
        };
        state.codes.insert(code.clone(), known);
        state.secrets.push(code.clone());
        format!("code={code}&state={}", get("state"))
    }

    /// Asserts that a text holds no secret that the issuer gave out or was sent.
    #[track_caller]
    pub(super) fn check_secrets(&self, shown: &impl Debug) {
        let text = format!("{shown:?} {shown:#?}");
        for secret in &self.state().secrets {
            assert!(!text.contains(secret.as_str()), "{secret} is shown in {text}");
        }
    }
}

impl State {
    fn new(url: String) -> Self {
        Self {
            url,
            key: Key::new(),
            codes: HashMap::new(),
            refresh_tokens: HashSet::new(),
            secrets: Vec::new(),
            requests: HashMap::new(),
            lifetime: 3_600,
            gives_refresh_tokens: true,
            refreshes_id_tokens: true,
            claims: json!({}),
            configuration: json!({}),
            signed: Signed::Key,
            stalls: None,
            device_answers: VecDeque::new(),
            device_expires_in: 600,
            replaced: HashMap::new(),
            delay: Duration::ZERO,
        }
    }

    fn answer(&mut self, path: &str, form: &HashMap<String, String>) -> (StatusCode, Value) {
        let url = self.url.clone();
        match path {
            "/.well-known/openid-configuration" => {
                let mut configuration = json!({
                    "issuer": url,
                    "authorization_endpoint": format!("{url}/authorize"),
                    "token_endpoint": format!("{url}/token"),
                    "device_authorization_endpoint": format!("{url}/device"),
                    "revocation_endpoint": format!("{url}/revoke"),
                    "jwks_uri": format!("{url}/keys"),
                    "response_types_supported": ["code"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["ES256"],
                });
                merge(&mut configuration, &self.configuration);
                (StatusCode::OK, configuration)
            }
            "/keys" => (StatusCode::OK, self.keys(0)),
            "/token" => self.token(form),
            "/device" if self.refuses(&form["scope"]) => (StatusCode::BAD_REQUEST, json!({ "error": "invalid_scope" })),
            "/device" => {
                self.secrets.push("device-code-1".to_owned());
                (
                    StatusCode::OK,
                    json!({
                        "device_code": "device-code-1",
                        "user_code": "ABCD-EFGH",
                        "verification_uri": format!("{url}/enter"),
                        "expires_in": self.device_expires_in,
                        "interval": 0,
                    }),
                )
            }
            "/revoke" => {
                self.refresh_tokens.remove(&form["token"]);
                (StatusCode::OK, json!({}))
            }
            _ => (StatusCode::NOT_FOUND, json!({})),
        }
    }

    /// Whether the issuer publishes its scopes, and one of these is none of them.
    fn refuses(&self, scope: &str) -> bool {
        let known = self.configuration["scopes_supported"].as_array();
        known.is_some_and(|known| scope.split(' ').any(|name| !known.contains(&name.into())))
    }

    fn token(&mut self, form: &HashMap<String, String>) -> (StatusCode, Value) {
        assert_eq!(form["client_id"], "bindery");
        let refused = |error: &str, sent: &str| {
            // Some issuers quote what they were sent.
            let text = format!("{error} for {sent}");
            (
                StatusCode::BAD_REQUEST,
                json!({ "error": error, "error_description": text }),
            )
        };
        match form["grant_type"].as_str() {
            "authorization_code" => {
                let verifier = form["code_verifier"].clone();
                self.secrets.push(verifier.clone());
                // A code is good once.
                let known = self.codes.remove(&form["code"]);
                let challenge = PkceCodeChallenge::from_code_verifier_sha256(&PkceCodeVerifier::new(verifier));
                match known {
                    Some(known) if known.challenge == challenge.as_str() && known.redirect == form["redirect_uri"] => {
                        (StatusCode::OK, self.tokens("subject-1", Some(&known.nonce)))
                    }
                    _ => refused("invalid_grant", &form["code"]),
                }
            }
            "refresh_token" => {
                // Each refresh makes the former token void.
                if !self.refresh_tokens.remove(&form["refresh_token"]) {
                    return refused("invalid_grant", &form["refresh_token"]);
                }
                let mut tokens = self.tokens("subject-1", None);
                if !self.refreshes_id_tokens {
                    tokens.as_object_mut().unwrap().remove("id_token");
                }
                (StatusCode::OK, tokens)
            }
            _ => match self.device_answers.pop_front() {
                Some(error) => refused(error, &form["device_code"]),
                None => (StatusCode::OK, self.tokens("subject-1", None)),
            },
        }
    }

    /// Makes the tokens of an answer.
    fn tokens(&mut self, subject: &str, nonce: Option<&str>) -> Value {
        let now = Timestamp::now().as_second();
        let mut claims = json!({
            "iss": self.url, "sub": subject, "aud": "bindery", "iat": now, "exp": now + self.lifetime,
            "nonce": nonce, "jti": format!("{:x}", rand::random::<u64>()),
        });
        merge(&mut claims, &self.claims);
        let header = Header {
            kid: Some("k".to_owned()),
            ..Header::new(Algorithm::ES256)
        };
        let id_token = match self.signed {
            Signed::Key => jsonwebtoken::encode(&header, &claims, &self.key.sign).unwrap(),
            Signed::OtherKey => jsonwebtoken::encode(&header, &claims, &Key::new().sign).unwrap(),
            Signed::PublicKey => {
                let secret = EncodingKey::from_secret(self.key.public.to_string().as_bytes());
                jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &secret).unwrap()
            }
            Signed::Nothing => {
                let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
                format!("{}.{}.", part(&json!({ "alg": "none" })), part(&claims))
            }
        };
        let access_token = format!("access-{:032x}", rand::random::<u128>());
        self.secrets.extend([id_token.clone(), access_token.clone()]);
        let mut tokens = json!({ "access_token": access_token, "token_type": "Bearer", "id_token": id_token });
        if self.gives_refresh_tokens {
            let refresh_token = format!("refresh-{:032x}", rand::random::<u128>());
            self.refresh_tokens.insert(refresh_token.clone());
            self.secrets.push(refresh_token.clone());
            tokens["refresh_token"] = refresh_token.into();
        }
        tokens
    }

    /// The published keys: so many others, and the one that signs.
    pub(super) fn keys(&self, others: usize) -> Value {
        let other = |index: usize| {
            let mut key = self.key.public.clone();
            key["kid"] = format!("other-{index}").into();
            key
        };
        let keys: Vec<_> = (0..others).map(other).chain([self.key.public.clone()]).collect();
        json!({ "keys": keys })
    }

    /// Makes all refresh tokens void.
    pub(super) fn revoke_all(&mut self) {
        self.refresh_tokens.clear();
    }

    pub(super) fn is_valid(&self, refresh_token: &str) -> bool {
        self.refresh_tokens.contains(refresh_token)
    }
}

fn merge(into: &mut Value, from: &Value) {
    let into = into.as_object_mut().unwrap();
    for (key, value) in from.as_object().unwrap() {
        if value.is_null() {
            into.remove(key);
        } else {
            into.insert(key.clone(), value.clone());
        }
    }
}

/// A certificate for 127.0.0.1 by a new CA, whose certificate is written to a file.
fn tls(ca_path: &std::path::Path) -> TlsAcceptor {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(ca_path, ca.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &ca).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<Mutex<State>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            // A client that does not trust the CA breaks off.
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(move |request| respond(request, Arc::clone(&state)));
            let server = hyper::server::conn::http1::Builder::new();
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(request: Request<Incoming>, state: Arc<Mutex<State>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let form = form_urlencoded::parse(&body).into_owned().collect();
    let delay = state.lock().delay;
    tokio::time::sleep(delay).await;
    let (stalls, (status, location, body)) = {
        let mut state = state.lock();
        let replaced = state.replaced.get(path.as_str()).cloned();
        let answer = replaced.unwrap_or_else(|| {
            let (status, body) = state.answer(&path, &form);
            (status, None, body.to_string())
        });
        *state.requests.entry(path.clone()).or_default() += 1;
        (state.stalls == Some(path.as_str()), answer)
    };
    if stalls {
        std::future::pending::<()>().await;
    }
    let mut response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    if let Some(location) = location {
        response = response.header("location", location);
    }
    Ok(response.body(Full::new(Bytes::from(body))).unwrap())
}

/// Waits until there is a value, for at most a minute.
pub(super) async fn eventually<T>(mut get: impl FnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(value) = get() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), wait).await.unwrap()
}

/// Opens a page as a browser does. Returns the status and the page.
pub(super) async fn open_page(url: &str) -> (u16, String) {
    let url: Url = url.parse().unwrap();
    let mut stream = TcpStream::connect((url.host_str().unwrap(), url.port().unwrap()))
        .await
        .unwrap();
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let request = format!("GET {target} HTTP/1.1\r\nhost: {}\r\n\r\n", url.authority());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    (page[9..12].parse().unwrap(), page)
}
