//! Builds gRPC messages as programs send them, and sends bytes that are no message.

use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestSpec, ClusterIdentity, CreateBindableResourcesRequestRequest,
    NameRef, ObjectMeta,
};
use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Builds the request to bind a template under a name, for the cluster with this identity.
pub fn wish(name: &str, template: &str, identity: &str) -> CreateBindableResourcesRequestRequest {
    let metadata = ObjectMeta {
        name: name.to_owned(),
        ..ObjectMeta::default()
    };
    let spec = BindableResourcesRequestSpec {
        template_ref: Some(NameRef {
            name: template.to_owned(),
        }),
        cluster_identity: Some(ClusterIdentity {
            identity: identity.to_owned(),
            ..ClusterIdentity::default()
        }),
        ..BindableResourcesRequestSpec::default()
    };
    CreateBindableResourcesRequestRequest {
        bindable_resources_request: Some(BindableResourcesRequest {
            metadata: Some(metadata),
            spec: Some(spec),
            status: None,
        }),
        ..CreateBindableResourcesRequestRequest::default()
    }
}

/// A gRPC codec that sends and receives bytes as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
