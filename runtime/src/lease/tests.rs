use super::*;

#[tokio::test]
async fn flags_that_could_make_two_lead_are_refused() {
    let client = Client::new(
        tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nowhere"))
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
