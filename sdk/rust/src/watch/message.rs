//! What the watches of the API have in common, seen through one pair of traits.

use bindery_proto::v1alpha2::{
    BindableResourcesRequest, Export, Removed, SnapshotBegin, SnapshotComplete, WatchBindableResourcesRequestsRequest,
    WatchBindableResourcesRequestsResponse, WatchExportsRequest, WatchExportsResponse,
    watch_bindable_resources_requests_response, watch_exports_response,
};
use prost::Message;

/// An event as it comes; None where it is unknown or a heartbeat.
pub(crate) type Incoming<T> = Option<Raw<T>>;

pub(crate) enum Raw<T> {
    SnapshotBegin(SnapshotBegin),
    Applied(T),
    Removed(Removed),
    SnapshotComplete(SnapshotComplete),
}

/// A request for a stream.
pub(crate) trait WatchRequest: Message + Clone + Send + 'static {
    fn resume_token(&self) -> &str;
    fn with_resume_token(self, token: String) -> Self;
}

/// A message of a stream.
pub(crate) trait WatchAnswer: Message + Default + Send + 'static {
    type Object: Send + 'static;

    /// The event, and the token that goes with it.
    fn split(self) -> (Incoming<Self::Object>, String);
}

macro_rules! watch_messages {
    ($request:ty, $answer:ty, $event:path, $object:ty) => {
        impl WatchRequest for $request {
            fn resume_token(&self) -> &str {
                &self.resume_token
            }

            fn with_resume_token(self, resume_token: String) -> Self {
                Self { resume_token, ..self }
            }
        }

        impl WatchAnswer for $answer {
            type Object = $object;

            fn split(self) -> (Incoming<$object>, String) {
                use $event as Event;
                let event = self.event.and_then(|event| match event {
                    Event::SnapshotBegin(begin) => Some(Raw::SnapshotBegin(begin)),
                    Event::Applied(object) => Some(Raw::Applied(object)),
                    Event::Removed(removed) => Some(Raw::Removed(removed)),
                    Event::SnapshotComplete(complete) => Some(Raw::SnapshotComplete(complete)),
                    Event::Heartbeat(_) => None,
                });
                (event, self.resume_token)
            }
        }
    };
}

watch_messages!(
    WatchExportsRequest,
    WatchExportsResponse,
    watch_exports_response::Event,
    Export
);
watch_messages!(
    WatchBindableResourcesRequestsRequest,
    WatchBindableResourcesRequestsResponse,
    watch_bindable_resources_requests_response::Event,
    BindableResourcesRequest
);
