//! Walks the descriptor set that reflection serves: everything has a comment, and says how its fields behave.

use std::collections::{BTreeSet, HashMap};

use bindery_proto::{FILE_DESCRIPTOR_SET, idempotency};
use protox::prost::Message as _;
use protox::prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use protox::prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, Value};

const PACKAGE: &str = "kubebind.v1alpha2";
const FIELD_BEHAVIOR: &str = "google.api.field_behavior";

fn pool() -> DescriptorPool {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the set decodes")
}

/// Comments of a file by their path in the descriptor.
fn comments(file: &FileDescriptorProto) -> HashMap<Vec<i32>, String> {
    let info = file.source_code_info.as_ref().expect("source info is kept");
    let leading = |location: &protox::prost_reflect::prost_types::source_code_info::Location| {
        (location.path.clone(), location.leading_comments().trim().to_owned())
    };
    info.location.iter().map(leading).collect()
}

#[test]
fn everything_has_a_comment() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the set decodes");
    let mut seen = 0;
    for file in set.file.iter().filter(|file| file.package() == PACKAGE) {
        let comments = comments(file);
        let mut check = |path: &[usize], name: &str| {
            let path: Vec<i32> = path.iter().map(|part| i32::try_from(*part).unwrap()).collect();
            let comment = comments.get(&path).map_or("", String::as_str);
            assert!(comment.len() >= 4, "{} {name} has no comment", file.name());
            seen += 1;
        };
        // Numbers are those of the fields of FileDescriptorProto and its parts.
        for (at, message) in file.message_type.iter().enumerate() {
            check(&[4, at], message.name());
            for (field_at, field) in message.field.iter().enumerate() {
                check(&[4, at, 2, field_at], &format!("{}.{}", message.name(), field.name()));
            }
            // The compiler adds a oneof for each optional field.
            let written = |oneof: &str| !oneof.starts_with('_');
            for (oneof_at, oneof) in message
                .oneof_decl
                .iter()
                .enumerate()
                .filter(|(_, oneof)| written(oneof.name()))
            {
                check(&[4, at, 8, oneof_at], &format!("{}.{}", message.name(), oneof.name()));
            }
        }
        for (at, of) in file.enum_type.iter().enumerate() {
            check(&[5, at], of.name());
            for (value_at, value) in of.value.iter().enumerate() {
                check(&[5, at, 2, value_at], value.name());
            }
        }
        for (at, service) in file.service.iter().enumerate() {
            check(&[6, at], service.name());
            for (method_at, method) in service.method.iter().enumerate() {
                check(&[6, at, 2, method_at], &format!("{}.{}", service.name(), method.name()));
            }
        }
    }
    assert!(seen > 300, "only {seen} things were looked at");
}

#[test]
fn every_method_has_messages_of_its_own() {
    let mut messages = BTreeSet::new();
    let mut paths = Vec::new();
    for service in pool().services() {
        for method in service.methods() {
            paths.push(format!("/{}/{}", service.full_name(), method.name()));
            assert_eq!(method.input().name(), format!("{}Request", method.name()));
            assert_eq!(method.output().name(), format!("{}Response", method.name()));
            assert!(
                messages.insert(method.input().full_name().to_owned())
                    && messages.insert(method.output().full_name().to_owned()),
                "{}",
                method.name()
            );
        }
    }
    paths.sort();
    assert!(paths.iter().map(String::as_str).eq(idempotency::method_paths()));
}

#[test]
fn fields_of_requests_say_how_they_behave() {
    let pool = pool();
    let extension = pool
        .get_extension_by_name(FIELD_BEHAVIOR)
        .expect("the set carries the annotation");
    let behaviors = |field: &FieldDescriptor| match field.options().get_extension(&extension).into_owned() {
        Value::List(values) => values.iter().filter_map(Value::as_enum_number).collect(),
        other => panic!("{other:?} is no list"),
    };
    let mut open: Vec<MessageDescriptor> = pool
        .services()
        .flat_map(|service| service.methods().map(|method| method.input()).collect::<Vec<_>>())
        .collect();
    let mut done = BTreeSet::new();
    let mut required = 0;
    while let Some(message) = open.pop() {
        if message.package_name() != PACKAGE || message.is_map_entry() || !done.insert(message.full_name().to_owned()) {
            continue;
        }
        for field in message.fields() {
            let found: Vec<i32> = behaviors(&field);
            assert!(
                matches!(found[..], [1..=3]),
                "{} is annotated {found:?}",
                field.full_name()
            );
            required += usize::from(found == [2]);
            if let Kind::Message(inner) = field.kind() {
                open.push(inner);
            }
        }
    }
    assert!(required >= 15, "only {required} required fields were found");
}

#[test]
fn watches_keep_their_numbers() {
    for name in [
        "WatchExportsResponse",
        "WatchBindableResourcesRequestsResponse",
        "WatchContractsResponse",
    ] {
        let message = pool()
            .get_message_by_name(&format!("{PACKAGE}.{name}"))
            .expect("the message");
        let numbers: Vec<_> = message
            .fields()
            .map(|field| (field.name().to_owned(), field.number()))
            .collect();
        let expect = [
            ("snapshot_begin", 1),
            ("applied", 2),
            ("removed", 3),
            ("snapshot_complete", 4),
            ("heartbeat", 5),
            ("resume_token", 15),
        ];
        assert_eq!(
            numbers,
            expect.map(|(name, number)| (name.to_owned(), number)),
            "{name}"
        );
        let outside = message
            .get_field_by_name("resume_token")
            .expect("the token")
            .containing_oneof();
        assert!(outside.is_none(), "{name}.resume_token must be outside the oneof");
    }
}
