//! How messages are put into buffers.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{self, BufferSettings};
use tonic_prost::ProstCodec;

/// What a stream holds on to for as long as it lives, though it is silent for most of it: tonic's own 8 KiB would be much of
/// what a server needs for an agent. A larger message makes the buffer grow.
const ENCODE_BYTES: usize = 512;

/// Messages that are ready are sent together up to this size, as by default.
const TOGETHER_BYTES: usize = 32 * 1024;

/// Messages of prost, with a small buffer to encode them.
#[derive(Clone, Copy, Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as codec::Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as codec::Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(ENCODE_BYTES, TOGETHER_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::default().decoder()
    }
}
