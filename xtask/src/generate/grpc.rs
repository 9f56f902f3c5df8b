//! The reference of the gRPC API, made of the descriptors of `proto/` with their comments.

use std::{collections::HashMap, fmt::Write as _};

use anyhow::{Context as _, Result};
use bindery_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, MessageOptions,
    MethodDescriptorProto, MethodOptions, ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type},
    method_options::IdempotencyLevel,
};

use super::markdown::{cell, prose};

const PACKAGE: &str = "kubebind.v1alpha2";

const HEAD: &str = "\
# gRPC API

<!-- Written by `cargo xtask gen` from proto/kubebind/v1alpha2/*.proto. -->

The services, messages and error reasons of package `kubebind.v1alpha2`. [gRPC with grpcurl](grpc.md) shows calls, and
[SDKs](sdks.md) the clients. Every error has an `ErrorInfo` of domain `kube-bind.io` with one of the [reasons](#errorreason).

A method that has no side effects or is idempotent may be called again after an error.
";

// The numbers of fields in descriptors, of which the paths of comments are made.
const OF_FILE_MESSAGE: i32 = 4;
const OF_FILE_ENUM: i32 = 5;
const OF_FILE_SERVICE: i32 = 6;
const OF_MESSAGE_FIELD: i32 = 2;
const OF_MESSAGE_NESTED: i32 = 3;
const OF_MESSAGE_ENUM: i32 = 4;
const OF_ENUM_VALUE: i32 = 2;
const OF_SERVICE_METHOD: i32 = 2;

/// The comments of a file, by the path of what they are about.
struct Comments<'a>(HashMap<&'a [i32], &'a str>);

/// The page.
pub(super) fn page() -> Result<String> {
    render(&FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).context("the descriptors of proto/")?)
}

fn render(set: &FileDescriptorSet) -> Result<String> {
    let ours = || set.file.iter().filter(|file| file.package() == PACKAGE);
    let mut page = HEAD.to_owned();
    for file in ours() {
        let comments = Comments::of(file);
        for (number, service) in (0..).zip(&file.service) {
            add_service(&mut page, &comments, &[OF_FILE_SERVICE, number], service)?;
        }
    }
    page.push_str("\n## Messages\n");
    for file in ours() {
        let comments = Comments::of(file);
        for (number, message) in (0..).zip(&file.message_type) {
            add_message(&mut page, &comments, &[OF_FILE_MESSAGE, number], "", message)?;
        }
    }
    page.push_str("\n## Enums\n");
    for file in ours() {
        let comments = Comments::of(file);
        for (number, one) in (0..).zip(&file.enum_type) {
            add_enum(&mut page, &comments, &[OF_FILE_ENUM, number], "", one)?;
        }
    }
    Ok(page)
}

fn add_service(
    page: &mut String,
    comments: &Comments<'_>,
    path: &[i32],
    service: &ServiceDescriptorProto,
) -> Result<()> {
    writeln!(page, "\n## {}\n\n{}", service.name(), comments.prose(path))?;
    for (number, method) in (0..).zip(&service.method) {
        let comment = comments.prose(&[path, &[OF_SERVICE_METHOD, number]].concat());
        let (input, output) = (short(method.input_type()), short(method.output_type()));
        writeln!(
            page,
            "\n### {}\n\n[{input}](#{}) → {}[{output}](#{}). {}\n\n{comment}",
            method.name(),
            input.to_lowercase(),
            if method.server_streaming() { "a stream of " } else { "" },
            output.to_lowercase(),
            idempotency(method),
        )?;
    }
    Ok(())
}

/// Writes a message and what is nested in it. `outer` is the names that it is nested in, each with a dot.
fn add_message(
    page: &mut String,
    comments: &Comments<'_>,
    path: &[i32],
    outer: &str,
    message: &DescriptorProto,
) -> Result<()> {
    let is_map = message.options.as_ref().is_some_and(MessageOptions::map_entry);
    if is_map {
        return Ok(());
    }
    let name = format!("{outer}{}", message.name());
    writeln!(page, "\n### {name}\n\n{}", comments.prose(path))?;
    if !message.field.is_empty() {
        page.push_str("\n| field | type | number | meaning |\n|---|---|---|---|\n");
    }
    for (number, field) in (0..).zip(&message.field) {
        let meaning = comments.cell(&[path, &[OF_MESSAGE_FIELD, number]].concat());
        // A field with an explicit presence has a oneof of its own, which is no choice.
        let index = field.oneof_index.filter(|_| !field.proto3_optional());
        let choice = index.and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?));
        let one_of = choice
            .map(|oneof| format!(" (one of `{}`)", oneof.name()))
            .unwrap_or_default();
        let kind = field_type(message, field);
        writeln!(
            page,
            "| `{}`{one_of} | {kind} | {} | {meaning} |",
            field.name(),
            field.number()
        )?;
    }
    let outer = format!("{name}.");
    for (number, nested) in (0..).zip(&message.nested_type) {
        add_message(
            page,
            comments,
            &[path, &[OF_MESSAGE_NESTED, number]].concat(),
            &outer,
            nested,
        )?;
    }
    for (number, nested) in (0..).zip(&message.enum_type) {
        add_enum(
            page,
            comments,
            &[path, &[OF_MESSAGE_ENUM, number]].concat(),
            &outer,
            nested,
        )?;
    }
    Ok(())
}

fn add_enum(
    page: &mut String,
    comments: &Comments<'_>,
    path: &[i32],
    outer: &str,
    one: &EnumDescriptorProto,
) -> Result<()> {
    writeln!(page, "\n### {outer}{}\n\n{}", one.name(), comments.prose(path))?;
    page.push_str("\n| value | number | meaning |\n|---|---|---|\n");
    for (number, value) in (0..).zip(&one.value) {
        let meaning = comments.cell(&[path, &[OF_ENUM_VALUE, number]].concat());
        writeln!(page, "| `{}` | {} | {meaning} |", value.name(), value.number())?;
    }
    Ok(())
}

/// What a client may do after an error of a method.
fn idempotency(method: &MethodDescriptorProto) -> &'static str {
    match method.options.as_ref().map(MethodOptions::idempotency_level) {
        Some(IdempotencyLevel::NoSideEffects) => "No side effects.",
        Some(IdempotencyLevel::Idempotent) => "Idempotent.",
        _ => "Not idempotent.",
    }
}

/// The type of a field, with a link where it is of this package.
fn field_type(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let entry = message.nested_type.iter().find(|nested| {
        nested.options.as_ref().is_some_and(MessageOptions::map_entry)
            && field.type_name().ends_with(&format!(".{}", nested.name()))
    });
    if let Some([key, value]) = entry.map(|entry| &entry.field[..]) {
        return format!("map of {} to {}", one_type(key), one_type(value));
    }
    match field.label() {
        Label::Repeated => format!("list of {}", one_type(field)),
        Label::Optional | Label::Required => one_type(field),
    }
}

fn one_type(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => {
            let name = short(field.type_name());
            if name == field.type_name().trim_start_matches('.') {
                format!("`{name}`")
            } else {
                format!("[{name}](#{})", name.to_lowercase().replace('.', ""))
            }
        }
        other => format!("`{}`", other.as_str_name().trim_start_matches("TYPE_").to_lowercase()),
    }
}

/// A name without the package of this API. Names of other packages are whole.
fn short(name: &str) -> &str {
    let name = name.trim_start_matches('.');
    name.strip_prefix(PACKAGE)
        .map_or(name, |name| name.trim_start_matches('.'))
}

// === impl Comments ===

impl<'a> Comments<'a> {
    fn of(file: &'a FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        Self(
            locations
                .map(|location| (&location.path[..], location.leading_comments()))
                .collect(),
        )
    }

    fn text(&self, path: &[i32]) -> &str {
        self.0.get(path).copied().unwrap_or_default().trim()
    }

    /// A comment as paragraphs, each line without the space that follows the slashes.
    fn prose(&self, path: &[i32]) -> String {
        let lines: Vec<_> = self.text(path).lines().map(str::trim).collect();
        prose(&lines.join("\n").replace("\nErrors: ", "\n\nErrors: "))
    }

    fn cell(&self, path: &[i32]) -> String {
        cell(self.text(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_message_and_reason_has_its_comment() {
        let page = page().unwrap();
        let has = |text: &str| assert!(page.contains(text), "{text}");
        has("\n## BindingService\n\nBinds templates to consumer clusters.");
        has(
            "\n### CreateBindableResourcesRequest\n\n[CreateBindableResourcesRequestRequest](#createbindableresourcesrequestrequest) → ",
        );
        has(
            "→ a stream of [WatchBindableResourcesRequestsResponse](#watchbindableresourcesrequestsresponse). No side effects.",
        );
        has("\n### ErrorReason\n");
        has("| `ERROR_REASON_TOKEN_EXPIRED` | 3 | UNAUTHENTICATED: the token has expired. |");
        has("| `wait` | `google.protobuf.Duration` | 2 | How long to wait for the controller.");
        has("(one of `event`)");
        assert!(!page.contains("|  |\n"), "a field or a value without a comment");
    }
}
