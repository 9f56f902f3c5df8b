use super::*;

#[derive(Serialize)]
struct Row(&'static str);

impl Show for Row {
    const HEADINGS: &'static [&'static str] = &["NAME", "AGE", "NOTE"];
    const PLAIN: usize = 2;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.0.to_owned(),
            age(Some(Timestamp::UNIX_EPOCH), now),
            "a\u{1b}[2Jb".to_owned(),
        ]
    }

    fn reference(&self) -> String {
        format!("row/{}", self.0)
    }
}

fn printed(format: Format, rows: &[Row]) -> String {
    let mut out = Vec::new();
    let now = Timestamp::from_second(300).unwrap();
    Printer::new(format, &mut out).list(rows, now).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn each_format_shows_the_same_rows() {
    let rows = [Row("a"), Row("longer")];
    assert_eq!(
        printed(Format::Table, &rows),
        "NAME     AGE\na        5m\nlonger   5m\n"
    );
    assert_eq!(
        printed(Format::Wide, &rows[..1]),
        "NAME   AGE   NOTE\na      5m    a [2Jb\n"
    );
    assert_eq!(printed(Format::Name, &rows), "row/a\nrow/longer\n");
    let json: Value = serde_json::from_str(&printed(Format::Json, &rows)).unwrap();
    assert_eq!(json["items"], json!(["a", "longer"]));
    let yaml: Value = serde_saphyr::from_str(&printed(Format::Yaml, &rows)).unwrap();
    assert_eq!(yaml, json);
}

#[test]
fn an_empty_list_is_a_list_for_programs_and_nothing_for_people() {
    assert_eq!(printed(Format::Table, &[]), "");
    let json: Value = serde_json::from_str(&printed(Format::Json, &[])).unwrap();
    assert_eq!(json["items"], json!([]));
}

#[test]
fn documents_stand_one_after_the_other() {
    let mut out = Vec::new();
    Printer::new(Format::Table, &mut out)
        .documents(&[json!({ "a": 1 }), json!({ "b": "yes" })])
        .unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "a: 1\n---\nb: \"yes\"\n");
}
