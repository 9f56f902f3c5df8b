//! Messages of the API as proto JSON, by their descriptors.

use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use bindery_proto::FILE_DESCRIPTOR_SET;
use bytes::Bytes;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, SerializeOptions};
use serde_json::Value;

const PACKAGE: &str = "kubebind.v1alpha2";

/// Reads a message of this type, such as `Export`, and returns its bytes on the wire.
pub fn encode(name: &str, value: &Value) -> Result<Bytes> {
    encode_as(message(name)?, value)
}

/// Reads a message of the package by its JSON.
pub fn read<M: Message + Default>(name: &str, value: &Value) -> Result<M> {
    M::decode(encode(name, value)?).with_context(|| format!("a {name} cannot be decoded"))
}

/// Writes a message of this type as JSON, with the fields that are set.
pub fn write(name: &str, message: &impl Message) -> Result<Value> {
    decode(name, &message.encode_to_vec())
}

/// Writes the bytes of a message of this type as JSON.
pub fn decode(name: &str, bytes: &[u8]) -> Result<Value> {
    decode_as(message(name)?, bytes)
}

/// All methods of the API.
pub fn methods() -> Result<impl Iterator<Item = MethodDescriptor>> {
    let services = pool()?.services().filter(|service| service.package_name() == PACKAGE);
    Ok(services.flat_map(|service| service.methods().collect::<Vec<_>>()))
}

/// Finds a method by its name, which is unique among all services.
pub fn method(name: &str) -> Result<MethodDescriptor> {
    methods()?
        .find(|method| method.name() == name)
        .with_context(|| format!("there is no method {name:?}"))
}

/// Reads the request or the response of a method.
pub fn encode_as(descriptor: MessageDescriptor, value: &Value) -> Result<Bytes> {
    let name = descriptor.full_name().to_owned();
    let message = DynamicMessage::deserialize(descriptor, value).with_context(|| format!("no {name}: {value}"))?;
    Ok(message.encode_to_vec().into())
}

/// Writes the request or the response of a method as JSON.
pub fn decode_as(descriptor: MessageDescriptor, bytes: &[u8]) -> Result<Value> {
    let message = DynamicMessage::decode(descriptor, bytes)?;
    let options = SerializeOptions::new();
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

fn message(name: &str) -> Result<MessageDescriptor> {
    pool()?
        .get_message_by_name(&format!("{PACKAGE}.{name}"))
        .with_context(|| format!("there is no message {name:?}"))
}

fn pool() -> Result<&'static DescriptorPool> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    match POOL.get_or_init(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).ok()) {
        Some(pool) => Ok(pool),
        None => bail!("the descriptors of the API cannot be decoded"),
    }
}
