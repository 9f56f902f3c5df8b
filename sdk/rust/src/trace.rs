//! Follows the calls of a client for a tracer.

use tonic::Code;

/// Follows the calls of a client, such as for distributed tracing. The client calls it when a call begins, with all of its attempts, and when a
/// watch opens a stream.
pub trait CallTracer: Send + Sync + 'static {
    /// Begins to follow a call of this method, such as `/kubebind.v1alpha2.BindingService/CreateBindableResourcesRequest`. Returns `None`
    /// for one that is not traced.
    fn begin(&self, method: &'static str) -> Option<Box<dyn TracedCall>>;
}

/// A call that is traced. It is dropped without [`TracedCall::end`] if its caller gives it up.
pub trait TracedCall: Send + Sync {
    /// The value of the header `traceparent` that the call is sent with. A value that no header can hold is not sent.
    fn traceparent(&self) -> String;

    /// Ends the call: with the code of the server's response, or with `None` if there was none. The call of a stream ends when the stream is
    /// open.
    fn end(self: Box<Self>, code: Option<Code>);
}
