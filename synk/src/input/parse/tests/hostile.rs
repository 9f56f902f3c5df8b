//! Input that is made to do harm, or that could give away what a Secret holds.

use super::*;

#[track_caller]
fn check_refused(text: &str, expect: &str) {
    let InputErrors(errors) = parse("x.yaml", text).unwrap_err();
    assert!(errors.len() <= MAX_ERRORS, "{}", errors.len());
    assert!(errors[0].problem.contains(expect), "{}", errors[0].problem);
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let text = (1..12).fold("a0: &a0 [lol, lol, lol]\n".to_owned(), |text, level| {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text + &format!("a{level}: &a{level} [{aliases}]\n")
    });
    check_refused(&text, "anchors and aliases blow the input up");
    let large = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 1000].join(", "));
    check_refused(&large, "anchors and aliases blow the input up");
    let small = format!("---\na: &a {}\nb: [*a, *a]\n", "x".repeat(1 << 20));
    let InputErrors(errors) = parse("x.yaml", &small.repeat(8)).unwrap_err();
    let refused = errors
        .iter()
        .filter(|error| error.problem.contains("blow the input up"));
    assert_eq!(refused.count(), 3, "the documents of a text share what aliases may add");
    let merged = (1..40).fold("a0: &a0 {k: v}\n".to_owned(), |text, level| {
        let last = level - 1;
        text + &format!("a{level}: &a{level} {{x{level}: *a{last}, <<: [*a{last}, *a{last}]}}\n")
    });
    check_refused(&merged, "anchors and aliases blow the input up");
}

#[test]
fn deep_nesting_is_refused() {
    let deep = "nested more than 100 levels deep";
    check_refused(&"[".repeat(100_000), deep);
    check_refused(&"{a: ".repeat(100_000), deep);
    check_refused(&"- ".repeat(100_000), deep);
    check_refused(&r#"{"a":"#.repeat(100_000), deep);
    let json = format!("{}1{}", r#"{"a":"#.repeat(110), "}".repeat(110));
    check_refused(&json, deep);
    let block: Vec<_> = (0..1000).map(|level| format!("{}a:", " ".repeat(level))).collect();
    check_refused(&block.join("\n"), deep);
    let chained = (1..20).fold("a0: &a0 x\n".to_owned(), |text, level| {
        text + &format!(
            "a{level}: &a{level} {}*a{} {}\n",
            "[".repeat(20),
            level - 1,
            "]".repeat(20)
        )
    });
    check_refused(&chained, deep);
    let list = format!("{}1{}", r#"{"kind": "List", "items": ["#.repeat(49), "]}".repeat(49));
    check_refused(&list, "an object is a mapping");
}

#[test]
fn much_input_ends_in_time() {
    check_refused(&"a: 1\n".repeat(1_000_000), "key \"a\" is given twice");
    check_refused(&"---\nx\n".repeat(100_000), "an object is a mapping");
    check_refused(&"[1, ".repeat(99).repeat(2000), "");
    check_refused(&format!("a: \"{}", "x\n".repeat(1_000_000)), "");
    check_refused(&"#\n".repeat(1_000_000).replace('#', "? a"), "");
    check_refused(&format!("{{{}", "a ".repeat(1_000_000)), "");
    check_names(&"#\n".repeat(1_000_000), &[]);
    check_names(&"\n".repeat(1_000_000), &[]);
    let long = format!("{A}data: {{k: {}}}\n", "v".repeat(1 << 20));
    check_names(&long, &["a"]);
}

#[test]
fn a_text_may_hold_so_many_values_only() {
    let broken = |read: fn(&str, u64, &mut Budget) -> Reading, text: &str, nodes: usize| {
        let mut budget = Budget { nodes, aliased: 0 };
        read(text, 1, &mut budget).broken.map(|problem| problem.text)
    };
    let expect = Some("more than 4000000 values: split the input".to_owned());
    let (yaml, json) = ("a: [b, c]", r#"{"a": ["b", "c"]}"#);
    assert_eq!(broken(yaml::read, yaml, 4), expect);
    assert_eq!(broken(yaml::read, yaml, 5), None);
    assert_eq!(broken(json::read, json, 3), expect);
    assert_eq!(broken(json::read, json, 4), None);
}

#[test]
fn no_error_repeats_a_value() {
    let broken = [
        "password: @hunter2",
        "password: `hunter2`",
        "password: %hunter2",
        "password: !hunter2 x",
        "password: !hunter2",
        "password: *hunter2",
        "password: \"hunter2",
        "password: 'hunter2",
        "password: hunter2: x",
        "password: [hunter2",
        "password: {hunter2: }]",
        "password: \"\\hunter2\"",
        "password: !!int hunter2",
        "password: &hunter2 [*hunter2]",
        "password: |hunter2",
        "password: >-hunter2\n x",
        "? [hunter2]\n  : x",
        "password: hunter2\n password: x",
        "<<: hunter2",
        "password: \"hunter2\" x",
        "password: !!binary hunter2",
    ];
    for line in broken {
        let text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\nstringData:\n  {line}\n");
        let error = parse("x.yaml", &text).expect_err(line).to_string();
        assert!(!error.contains("hunter2"), "{line}: {error}");
    }
    for json in [
        r#"{"stringData": {"a": "hunter2}}"#,
        r#"{"stringData": {"a": "hunter2" "b"}}"#,
        r#"{"stringData": {"a": hunter2}}"#,
    ] {
        let error = parse("x.json", json).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{json}: {error}");
    }
}
