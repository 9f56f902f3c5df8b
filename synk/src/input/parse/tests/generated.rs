//! Whatever objects are printed, they are read as they were.

use proptest::{collection, prelude::*, sample};

use super::*;

fn text() -> impl Strategy<Value = String> {
    let tricky = sample::select(vec![
        "",
        " ",
        "~",
        "null",
        "yes",
        "on",
        "n",
        "0644",
        "80",
        "1e3",
        "1_000",
        ".5",
        ".inf",
        "0x1f",
        "<<",
        "=",
        "---",
        "--- x",
        "...",
        "- a",
        "a: b",
        "a #b",
        "#",
        "'",
        "\"",
        "\\",
        "{",
        "[",
        "|",
        ">",
        "%",
        "@",
        "`",
        "!",
        "!!str",
        "&a",
        "*a",
        "?",
        ": ",
        "\n",
        "a\n",
        "\na",
        "a\n\nb\n",
        " a\n  b",
        "a\n---\nb",
        "\t",
        "a\tb",
        "\r\n",
        "\u{feff}",
        "\u{85}",
        "\u{2028}",
        "\u{1f600}",
        "\u{7f}",
        "\0",
        "2024-01-02",
    ]);
    prop_oneof![tricky.prop_map(str::to_owned), ".{0,20}", "[ -~\n]{0,200}"]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1_000_000..1_000_000_i32).prop_filter_map("a fraction", |number| {
            (number % 1000 != 0).then(|| Value::from(f64::from(number) / 1000.0))
        }),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            collection::btree_map(text(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    (
        "[A-Z][a-z]{0,8}",
        "[a-z]{1,12}",
        collection::btree_map("[b-h][a-zA-Z]{0,5}", value(), 0..5),
    )
        .prop_map(|(kind, name, more)| {
            let mut body: Map<String, Value> = more.into_iter().collect();
            body.insert("apiVersion".to_owned(), "example.com/v1".into());
            body.insert("kind".to_owned(), format!("{kind}s").into());
            body.insert("metadata".to_owned(), json!({"name": name}));
            body.into()
        })
}

fn read(text: &str) -> Vec<Value> {
    match parse("x", text) {
        Ok(manifests) => manifests.into_iter().map(|manifest| manifest.body.into()).collect(),
        Err(errors) => panic!("{errors}\n{text}"),
    }
}

/// What is read must be read the same once it is printed, and each error must name a document and a line that exist.
fn read_or_refused(text: &str) -> Result<(), TestCaseError> {
    match parse("x", text) {
        Ok(manifests) => {
            let bodies: Vec<Value> = manifests.into_iter().map(|manifest| manifest.body.into()).collect();
            let printed: Vec<_> = bodies.iter().map(Value::to_string).collect();
            prop_assert_eq!(read(&printed.join("\n")), bodies);
        }
        Err(InputErrors(errors)) => {
            prop_assert!(!errors.is_empty());
            let last = text.split(['\n', '\r']).count() as u64 + 1;
            for error in errors {
                let is_there = error.origin.document > 0 && (1..=last).contains(&error.origin.line);
                prop_assert!(is_there && !error.problem.is_empty(), "{}", error);
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn yaml_streams_are_read_as_they_were_printed(objects in collection::vec(object(), 0..5)) {
        let mut text = String::new();
        for object in &objects {
            text.push_str("---\n");
            text.push_str(&serde_saphyr::to_string(object).unwrap());
            text.push('\n');
        }
        prop_assert_eq!(&read(&text), &objects);
        if !text.contains('\r') && !text.contains(['|', '>']) {
            prop_assert_eq!(read(&text.replace('\n', "\r\n")), objects);
        }
    }

    #[test]
    fn json_streams_are_read_as_they_were_printed(objects in collection::vec(object(), 0..5), pretty: bool, between in sample::select(vec!["", "\n", "\n---\n"])) {
        let texts: Vec<_> = objects.iter().map(|object| if pretty { format!("{object:#}") } else { object.to_string() }).collect();
        prop_assert_eq!(read(&texts.join(between)), objects);
    }

    #[test]
    fn lists_are_read_as_their_items(objects in collection::vec(object(), 0..5)) {
        let inner = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [inner]});
        prop_assert_eq!(&read(&list.to_string()), &objects);
        prop_assert_eq!(read(&serde_saphyr::to_string(&list).unwrap()), objects);
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        read_or_refused(&text)?;
    }

    #[test]
    fn any_text_of_yaml_characters_is_read_or_refused(
        begin in sample::select(vec!["", "{apiVersion: v1, kind: A, metadata: {name: a}, b: ", "apiVersion: v1\nkind: A\nmetadata: {name: a}\nb: "]),
        text in "([a-c:,&*?!|>'\"%@`{}\\[\\]# \n\t<-]|---\n|: |- |<<: |&a |\\*a |\\.\\.\\.\n|\\{\"a\":|\r){0,60}",
    ) {
        read_or_refused(&format!("{begin}{text}"))?;
    }
}
