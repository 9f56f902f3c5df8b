use std::sync::Arc;

use kube::client::Body;
use parking_lot::Mutex;

use super::*;

#[tokio::test]
async fn flags_that_could_make_two_lead_are_refused() {
    let client = Client::new(
        tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("nowhere"))
        }),
        "default",
    );
    for (duration, deadline, retry, fine) in [
        (15, 10, 2, true),
        (5, 3, 1, true),
        (15, 14, 2, false),
        (15, 10, 60, false),
        (15, 2, 2, false),
    ] {
        let args = LeaseArgs {
            lease_name: None,
            lease_namespace: None,
            lease_identity: None,
            lease_duration: duration,
            lease_renew_deadline: deadline,
            lease_retry_period: retry,
        };
        assert_eq!(
            Candidate::new(client.clone(), &args, "a", "b").is_ok(),
            fine,
            "{args:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_stopped_during_its_attempt_leaves_no_holder_behind() {
    let server = LeaseServer::default();
    let stop = CancellationToken::new();
    let elected = server.candidate().elected(&stop);
    let stopped = async {
        // The API server has taken the Lease by then, and has not answered yet.
        sleep(ANSWER + ANSWER / 2).await;
        assert_eq!(server.holder().as_deref(), Some("this"));
        stop.cancel();
    };
    let (leadership, ()) = tokio::join!(elected, stopped);
    assert!(leadership.is_none());
    assert_eq!(server.holder(), None);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_renewal_is_not_answered_yet_releases_the_lease() {
    let server = LeaseServer::default();
    let mut leadership = server.candidate().elected(&CancellationToken::new()).await.unwrap();
    let before = server.version();
    let renewal = RENEW_PERIOD + ANSWER / 2;
    assert!(
        timeout(renewal, leadership.lost()).await.is_err(),
        "the Lease is not lost"
    );
    assert_eq!(server.version(), before + 1, "a renewal has arrived");
    leadership.release().await;
    assert_eq!(server.holder(), None);
}

/// How long the API server of these tests takes to answer a request that it carries out at once.
const ANSWER: Duration = Duration::from_millis(400);
/// The pause between two renewals in these tests.
const RENEW_PERIOD: Duration = Duration::from_secs(2);

/// An API server that keeps one Lease, with resource versions.
#[derive(Clone, Default)]
struct LeaseServer(Arc<Mutex<Option<Lease>>>);

impl LeaseServer {
    fn candidate(&self) -> Candidate {
        let timing = LeaseTiming {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            renew_period: RENEW_PERIOD,
            retry_period: RENEW_PERIOD,
            foreign_duration_max: Duration::MAX,
        };
        Candidate::with(self.client(), "here", "lease", "this".to_owned(), timing)
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move {
                let is_read = request.method() == http::Method::GET;
                let sent = request.into_body().collect_bytes().await?;
                let (code, answer) = server.answer((!is_read).then(|| serde_json::from_slice(&sent).unwrap()));
                sleep(ANSWER).await;
                Ok::<_, kube::Error>(http::Response::builder().status(code).body(Body::from(answer)).unwrap())
            }
        });
        Client::new(service, "default")
    }

    /// Carries a request out: a write of this Lease, or a read.
    fn answer(&self, write: Option<Lease>) -> (u16, Vec<u8>) {
        let mut kept = self.0.lock();
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        if let Some(mut lease) = write {
            if version(&lease) != kept.as_ref().and_then(version) {
                return (409, failure(409, "Conflict"));
            }
            let next = version(&lease).map_or(1, |version| version.parse::<u64>().unwrap() + 1);
            lease.metadata.resource_version = Some(next.to_string());
            *kept = Some(lease);
        }
        match &*kept {
            Some(lease) => (200, serde_json::to_vec(lease).unwrap()),
            None => (404, failure(404, "NotFound")),
        }
    }

    fn holder(&self) -> Option<String> {
        self.0.lock().as_ref()?.spec.as_ref()?.holder_identity.clone()
    }

    fn version(&self) -> u64 {
        let version = self
            .0
            .lock()
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.clone());
        version.unwrap().parse().unwrap()
    }
}

fn failure(code: u16, reason: &str) -> Vec<u8> {
    let status =
        serde_json::json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason});
    serde_json::to_vec(&status).unwrap()
}
