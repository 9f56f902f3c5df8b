//! Requests from the provider's backend that it deletes the export of a binding that ends.

use std::{sync::Arc, time::Duration};

use bindery_proto::v1alpha2::DeleteExportRequest;
use bindery_runtime::backoff::Backoff;

use crate::{
    attempt::Attempt,
    session::{Session, backend},
};

/// The backend may wait this long for the last objects before it answers.
const WAIT_SECONDS: i64 = 10;
/// Pause after the first failed request.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Requests the deletion of an export from the backend until the backend accepts. `force` deletes the export although
/// objects are left on the provider.
pub(super) fn start(
    session: &Arc<Session>,
    name: String,
    uid: String,
    force: bool,
    pause_max: Duration,
) -> Attempt<(), String> {
    let credential = session.credential().clone();
    let request = DeleteExportRequest {
        contract: session.contract().namespace.to_string(),
        name,
        uid,
        allow_missing: true,
        force,
        wait: Some(prost_types::Duration {
            seconds: WAIT_SECONDS,
            nanos: 0,
        }),
        ..DeleteExportRequest::default()
    };
    Attempt::start(Backoff::new(FIRST_PAUSE.min(pause_max), pause_max), move || {
        let (credential, request) = (credential.clone(), request.clone());
        async move {
            let (_, client) = credential.backend().map_err(|error| error.to_string())?;
            let answer = client.delete_export(request).await;
            let answer = answer.map_err(|error| backend::describe(&error))?;
            let meta = answer.export.map(|export| export.metadata.unwrap_or_default());
            match meta {
                Some(meta) if meta.deletion_timestamp.is_none() => {
                    Err(format!("{} objects are left there", answer.remaining_objects))
                }
                _ => Ok(()),
            }
        }
    })
}
