//! Requests as they are sent: encoded once for all attempts.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::{BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

use super::MESSAGE_SEND_MAX;
use crate::error::Error;

/// Bytes of memory for responses that a call holds from its beginning. They grow with the response; a thousand quiet watches hold a
/// thousand of them.
const RESPONSE_BUFFER: usize = 1024;

/// tonic's own, of an encoder alone.
const YIELD_THRESHOLD: usize = 32 * 1024;

/// An encoded request of at most [`MESSAGE_SEND_MAX`] bytes.
#[derive(Clone)]
pub(crate) struct EncodedRequest(pub(super) Bytes);

impl EncodedRequest {
    /// Encodes a request. A request that is too large is an error before anything is sent.
    pub(crate) fn new(message: &impl Message, request_id: &str) -> Result<Self, Error> {
        let length = message.encoded_len();
        if length > MESSAGE_SEND_MAX {
            return Err(Error::too_large(length, MESSAGE_SEND_MAX, request_id));
        }
        Ok(Self(message.encode_to_vec().into()))
    }
}

/// A codec that sends encoded requests and decodes responses `R`.
pub(super) struct RequestCodec<R>(PhantomData<fn() -> R>);

/// Writes an encoded request.
pub(super) struct RequestEncoder;

impl<R> RequestCodec<R> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<R: Message + Default + 'static> Codec for RequestCodec<R> {
    type Encode = Bytes;
    type Decode = R;
    type Encoder = RequestEncoder;
    type Decoder = ProstDecoder<R>;

    fn encoder(&mut self) -> Self::Encoder {
        RequestEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(RESPONSE_BUFFER, YIELD_THRESHOLD))
    }
}

impl Encoder for RequestEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}
