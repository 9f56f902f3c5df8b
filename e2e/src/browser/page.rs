//! A page of a browser: what a person sees, types and clicks.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::connection::Connection;
use crate::{eventually, issuers::IssuerUser};

/// A page that takes longer to come has failed.
const LIMIT: Duration = Duration::from_secs(30);
/// The most pages of an issuer on the way from a URL to the program that waits for the person.
const PAGES_MAX: usize = 10;

/// How the URLs begin of the pages that say what Chromium could not open.
const ERROR_PAGE: &str = "chrome-error:";

/// What JavaScript calls a page from which a form was sent, so that the next page is waited for.
const SENT: &str = "window.sentByTest";

/// Tells what is on a page, once it has loaded.
const VIEW: &str = "(() => {
    if (document.readyState !== 'complete' || window.sentByTest) return null;
    const has = (selector) => document.querySelector(selector) !== null;
    const buttons = [...document.querySelectorAll('button')].map((button) => button.innerText);
    // A form without a button is sent by a script.
    if (document.forms.length > 0 && buttons.length === 0) return null;
    return {url: location.href, text: document.body?.innerText ?? '', password: has('input[type=password]'),
        field: has('input[type=text]:not([name=user_code])'), buttons};
})()";

/// A page, whose cookies are its own. It is closed on drop.
#[derive(Debug)]
pub struct Page {
    connection: Connection,
    /// The id of the browser context, which holds the cookies.
    context: String,
    session: String,
}

/// What a person answers when an issuer asks whether a client may have access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// The first button.
    Allow,
    /// The last button, of several.
    Deny,
}

/// What is on a page.
#[derive(Clone, Debug, Deserialize)]
struct View {
    url: String,
    text: String,
    password: bool,
    field: bool,
    buttons: Vec<String>,
}

/// The result of an expression.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Evaluated {
    result: Remote,
    exception_details: Option<Value>,
}

#[derive(Deserialize)]
struct Remote {
    #[serde(default)]
    value: Value,
}

impl Page {
    pub(super) async fn open_in(connection: Connection) -> Result<Self> {
        let text = |value: &Value, field: &str| -> Result<String> {
            let text = value[field].as_str();
            Ok(text.with_context(|| format!("Chromium told no {field}"))?.to_owned())
        };
        let context = connection.call(None, "Target.createBrowserContext", json!({})).await?;
        let context = text(&context, "browserContextId")?;
        let params = json!({"url": "about:blank", "browserContextId": &context});
        let target = connection.call(None, "Target.createTarget", params).await?;
        let params = json!({"targetId": text(&target, "targetId")?, "flatten": true});
        let attached = connection.call(None, "Target.attachToTarget", params).await?;
        Ok(Self {
            session: text(&attached, "sessionId")?,
            connection,
            context,
        })
    }

    /// Opens a URL. Fails if there is no answer.
    pub async fn open(&self, url: &str) -> Result<()> {
        let answer = self.call("Page.navigate", json!({"url": url})).await?;
        if let Some(error) = answer["errorText"].as_str() {
            bail!("Chromium cannot open {url}: {error}");
        }
        Ok(())
    }

    /// The URL in the address bar, also of a page that cannot be opened.
    pub async fn address(&self) -> Result<String> {
        let history = self.call("Page.getNavigationHistory", json!({})).await?;
        let current = history["currentIndex"]
            .as_u64()
            .and_then(|index| usize::try_from(index).ok());
        let entry = current.and_then(|index| history["entries"].get(index));
        let url = entry.and_then(|entry| entry["url"].as_str());
        Ok(url.context("Chromium told no address")?.to_owned())
    }

    /// The URL of the page, once it has loaded.
    pub async fn url(&self) -> Result<String> {
        Ok(self.view().await?.url)
    }

    /// The text that a person sees on the page, once it has loaded.
    pub async fn text(&self) -> Result<String> {
        Ok(self.view().await?.text)
    }

    /// Waits until a page has loaded whose text contains `part`, and returns the text.
    pub async fn wait_for_text(&self, part: &str) -> Result<String> {
        let what = format!("a page with the text {part:?}");
        eventually(what, LIMIT, async || {
            let View { url, text, .. } = self.look().await?.context("no page has loaded")?;
            ensure!(text.contains(part), "{url} has the text {text:?}");
            Ok(Some(text))
        })
        .await
    }

    /// Types a text into the field that a CSS selector finds, in place of what is in it.
    pub async fn fill(&self, selector: &str, text: &str) -> Result<()> {
        // In one step, between which nothing else of the page can take the focus, as `autofocus` does a moment after the page has loaded.
        let script = format!(
            "(() => {{
                const field = document.querySelector({});
                field?.focus();
                field?.select();
                return field !== null && document.execCommand('insertText', false, {text}) && field.value === {text};
            }})()",
            json!(selector),
            text = json!(text)
        );
        let is_typed: bool = self.evaluate(&script).await?;
        ensure!(is_typed, "the page has no field {selector}, or it cannot be typed into");
        Ok(())
    }

    /// Clicks on the button with a text, and waits until the next page has loaded.
    pub async fn click(&self, text: &str) -> Result<()> {
        let script = format!(
            "(() => {{
                const button = [...document.querySelectorAll('button')].find((it) => it.innerText === {});
                if (button === undefined) return false;
                {SENT} = true;
                button.click();
                return true;
            }})()",
            json!(text)
        );
        let is_there: bool = self.evaluate(&script).await?;
        ensure!(is_there, "the page has no button {text:?}");
        self.view().await?;
        Ok(())
    }

    /// Opens a URL of an issuer and does what its pages ask for: fills in user and password, sends the code of the device flow that is
    /// filled in already, and answers whether the client may have access. Returns the text of the page at the end, of the issuer or of the
    /// program on loopback to which the issuer sends the browser: the first one that asks nothing, or the one after the answer
    /// [`Consent::Deny`]. It is one of Chromium's own if the browser cannot open the last address. Fails if the issuer refuses the password.
    pub async fn sign_in(&self, url: &str, user: &IssuerUser, consent: Consent) -> Result<String> {
        self.open(url).await?;
        let mut has_typed = false;
        for _ in 0..PAGES_MAX {
            let view = self.view().await?;
            let (Some(first), Some(last)) = (view.buttons.first(), view.buttons.last()) else {
                return Ok(view.text);
            };
            if view.url.starts_with(ERROR_PAGE) {
                return Ok(view.text);
            }
            if view.password {
                ensure!(!has_typed, "{} refuses the password: {}", view.url, view.text);
                ensure!(view.field, "{} asks for no user", view.url);
                self.fill("input[type=text]:not([name=user_code])", &user.name).await?;
                self.fill("input[type=password]", &user.password).await?;
                has_typed = true;
            }
            // Where there is a choice, it is whether the client may have access.
            let is_denied = consent == Consent::Deny && view.buttons.len() > 1;
            self.click(if is_denied { last } else { first }).await?;
            if is_denied {
                return self.text().await;
            }
        }
        bail!("after {PAGES_MAX} pages, {} still asks", self.url().await?)
    }

    /// Waits until the page has loaded.
    async fn view(&self) -> Result<View> {
        eventually("a page to load", LIMIT, async || self.look().await).await
    }

    async fn look(&self) -> Result<Option<View>> {
        self.evaluate(VIEW).await
    }

    async fn evaluate<T: DeserializeOwned>(&self, expression: &str) -> Result<T> {
        let params = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", params).await?;
        let answer: Evaluated = serde_json::from_value(answer)?;
        if let Some(exception) = answer.exception_details {
            bail!("a script failed: {exception}");
        }
        Ok(serde_json::from_value(answer.result.value)?)
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value> {
        self.connection.call(Some(&self.session), method, params).await
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Outside of the runtime, the browser is about to end too.
        if let Ok(runtime) = Handle::try_current() {
            let (connection, params) = (self.connection.clone(), json!({"browserContextId": self.context}));
            runtime.spawn(async move { connection.call(None, "Target.disposeBrowserContext", params).await });
        }
    }
}
