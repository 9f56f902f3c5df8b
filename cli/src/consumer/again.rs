//! Repeats requests that the API server asks to repeat, as kubectl does: the storage of a new kind is not ready for a second,
//! and an overloaded server sheds load. Only requests that may be sent twice go through here.

use std::time::Duration;

use bindery_runtime::backoff::Backoff;

const ATTEMPTS: u32 = 8;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Repeats the call, up to [`ATTEMPTS`] times, while the API server asks to come back later.
pub(super) async fn again<T>(call: impl AsyncFn() -> kube::Result<T>) -> kube::Result<T> {
    let mut attempt = 0;
    loop {
        match call().await {
            Err(error) if attempt + 1 < ATTEMPTS && is_put_off(&error) => {
                tracing::debug!(%error, attempt, "the API server asks to come back later");
                tokio::time::sleep(BACKOFF.delay(attempt)).await;
                attempt += 1;
            }
            answer => return answer,
        }
    }
}

fn is_put_off(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let asks_to_return = status
        .details
        .as_ref()
        .is_some_and(|details| details.retry_after_seconds > 0);
    status.code == 429 || (status.code >= 500 && asks_to_return)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(code: u16, retry_after_seconds: u32) -> kube::Error {
        let status = json!({ "code": code, "details": { "retryAfterSeconds": retry_after_seconds } });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn only_what_is_put_off_is_asked_again() {
        for (code, seconds, expect) in [
            (429, 0, true),
            (503, 1, true),
            (503, 0, false),
            (403, 1, false),
            (404, 0, false),
        ] {
            assert_eq!(is_put_off(&refusal(code, seconds)), expect, "{code} {seconds}");
        }
    }
}
