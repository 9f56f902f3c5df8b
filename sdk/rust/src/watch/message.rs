//! Traits over the requests and responses of the watch methods.

use bindery_proto::v1alpha2::{
    BindableResourcesRequest, Contract, Export, Removed, SnapshotBegin, SnapshotComplete,
    WatchBindableResourcesRequestsRequest, WatchBindableResourcesRequestsResponse, WatchContractsRequest,
    WatchContractsResponse, WatchExportsRequest, WatchExportsResponse, watch_bindable_resources_requests_response,
    watch_contracts_response, watch_exports_response,
};
use prost::Message;

/// The event of a response; `None` for a heartbeat or an event that this build does not know.
pub(crate) type Incoming<T> = Option<Raw<T>>;

/// An event of a response, before its protocol is checked.
pub(crate) enum Raw<T> {
    SnapshotBegin(SnapshotBegin),
    Applied(T),
    Removed(Removed),
    SnapshotComplete(SnapshotComplete),
}

/// A request of a watch method.
pub(crate) trait WatchRequest: Message + Clone + Send + 'static {
    fn resume_token(&self) -> &str;
    fn with_resume_token(self, token: String) -> Self;
}

/// A response of a watch method.
pub(crate) trait WatchResponse: Message + Default + Send + 'static {
    type Object: Send + 'static;

    /// Splits a response into its event and its resume token.
    fn split(self) -> (Incoming<Self::Object>, String);
}

macro_rules! watch_messages {
    ($request:ty, $response:ty, $event:path, $object:ty) => {
        impl WatchRequest for $request {
            fn resume_token(&self) -> &str {
                &self.resume_token
            }

            fn with_resume_token(self, resume_token: String) -> Self {
                Self { resume_token, ..self }
            }
        }

        impl WatchResponse for $response {
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
watch_messages!(
    WatchContractsRequest,
    WatchContractsResponse,
    watch_contracts_response::Event,
    Contract
);
