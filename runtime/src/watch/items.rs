//! Takes a list apart as it arrives, so that only one of its objects is in memory at a time.

/// The longest object that is read, in bytes: one has some 1.5 MiB at rest at most, which JSON may escape to more.
const ITEM_BYTES_MAX: usize = 16 << 20;
/// The longest text that a list may have besides its objects, in bytes.
const REST_BYTES_MAX: usize = 1 << 20;

/// Reads the JSON text of a list in pieces of any length.
#[derive(Debug, Default)]
pub(super) struct ItemReader {
    /// Text of the object that has begun.
    item: Vec<u8>,
    /// Text of the list without its objects.
    rest: Vec<u8>,
    /// Open brackets and braces.
    depth: usize,
    /// The array `items` has begun, and has not ended.
    is_inside: bool,
    in_string: bool,
    is_escaped: bool,
}

/// Depth of the array `items` and of what is between its objects.
const ITEMS_DEPTH: usize = 2;

// === impl ItemReader ===

impl ItemReader {
    /// Reads the next piece, and calls `each` with the text of every object that it completes.
    pub(super) fn read(
        &mut self,
        text: &[u8],
        mut each: impl FnMut(&str) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        // Start of the text that belongs to no complete object yet.
        let mut from = 0;
        for (at, byte) in text.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    if self.is_between() {
                        from = at;
                    }
                    self.depth += 1;
                    if self.depth == ITEMS_DEPTH && *byte == b'[' {
                        self.rest.extend_from_slice(&text[from..at]);
                        self.is_inside = is_after_key(&self.rest);
                        self.rest.push(*byte);
                        from = at + 1;
                    }
                }
                b'}' | b']' => {
                    if self.is_between() {
                        self.is_inside = false;
                        from = at;
                    }
                    self.depth = self.depth.checked_sub(1).ok_or("a list ends that did not begin")?;
                    if self.is_between() {
                        self.item.extend_from_slice(&text[from..=at]);
                        each(std::str::from_utf8(&self.item).map_err(|_| "an object of the list is no text")?)?;
                        self.item.clear();
                        from = at + 1;
                    }
                }
                _ => {}
            }
        }
        self.buffer(&text[from..])
    }

    /// Returns the text of the list without its objects, once all of it was read.
    pub(super) fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Whether the reader is inside `items`, but not inside of an object.
    fn is_between(&self) -> bool {
        self.is_inside && self.depth == ITEMS_DEPTH
    }

    fn buffer(&mut self, text: &[u8]) -> Result<(), &'static str> {
        if self.is_between() {
            return Ok(());
        }
        let (part, max) = if self.is_inside {
            (&mut self.item, ITEM_BYTES_MAX)
        } else {
            (&mut self.rest, REST_BYTES_MAX)
        };
        part.extend_from_slice(text);
        if part.len() > max {
            return Err("an object of the list is too long");
        }
        Ok(())
    }
}

/// Whether a text ends with the key `items`, so that a bracket that follows opens the array of objects.
fn is_after_key(text: &[u8]) -> bool {
    let key = text.trim_ascii_end().strip_suffix(b":");
    key.is_some_and(|key| key.trim_ascii_end().ends_with(b"\"items\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// The objects of a list and what else it says, read in pieces that end at these places.
    fn read(text: &str, ends: &[usize]) -> (Vec<Value>, Value) {
        let (mut items, mut found, mut from) = (ItemReader::default(), Vec::new(), 0);
        let mut ends: Vec<_> = ends.iter().map(|end| end % (text.len() + 1)).collect();
        ends.push(text.len());
        ends.sort_unstable();
        for end in ends {
            let each = |item: &str| {
                found.push(serde_json::from_str(item).unwrap());
                Ok(())
            };
            items.read(&text.as_bytes()[from..end], each).unwrap();
            from = end;
        }
        (found, serde_json::from_slice(items.rest()).unwrap())
    }

    #[track_caller]
    fn check(text: &str, items: &[Value], rest: &Value) {
        let every: Vec<_> = (0..text.len()).collect();
        for ends in [&[][..], &every] {
            assert_eq!(read(text, ends), (items.to_vec(), rest.clone()), "{text}");
        }
    }

    #[test]
    fn objects_are_those_of_the_list_and_of_nothing_in_it() {
        let nothing = json!({"items": [], "metadata": {"resourceVersion": "5"}});
        check(r#"{"items":[],"metadata":{"resourceVersion":"5"}}"#, &[], &nothing);
        check(
            "{ \"items\" : [ {\"a\":1} ,\n {} ] , \"metadata\":{\"resourceVersion\":\"5\"} }\n",
            &[json!({"a": 1}), json!({})],
            &nothing,
        );
        check(
            r#"{"metadata":{"resourceVersion":"5"},"items":[{"items":[{"x":[]}],"s":"]}\\\"{["}]}"#,
            &[json!({"items": [{"x": []}], "s": "]}\\\"{["})],
            &nothing,
        );
        check(
            r#"{"other":[{"a":1}],"metadata":{"items":[{"b":1}]},"items":null}"#,
            &[],
            &json!({"other": [{"a": 1}], "metadata": {"items": [{"b": 1}]}, "items": null}),
        );
    }

    #[test]
    fn an_object_that_is_too_long_is_refused() {
        let mut items = ItemReader::default();
        items.read(br#"{"items":[{"a":""#, |_| Ok(())).unwrap();
        let part = vec![b'x'; ITEM_BYTES_MAX / 4];
        let result = (0..5).try_for_each(|_| items.read(&part, |_| Ok(())));
        assert!(result.is_err());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            r#"["\\\[\]{}:,aé]{0,6}|items"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((r#"[a"\[]{1,2}|items"#, inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Holds for any objects, in pieces that end anywhere.
        #[test]
        fn nothing_is_lost_and_nothing_added(
            objects in proptest::collection::vec(proptest::collection::vec((r#"[a"\[]{1,2}|items"#, value()), 0..4), 0..5),
            meta in value(),
            is_pretty: bool,
            ends in proptest::collection::vec(any::<usize>(), 0..8),
        ) {
            let objects: Vec<_> = objects.into_iter().map(|fields| Value::Object(fields.into_iter().collect())).collect();
            let list = json!({"apiVersion": "v1", "items": objects, "metadata": meta});
            let text = if is_pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) }.unwrap();
            let (found, rest) = read(&text, &ends);
            prop_assert_eq!(found, objects);
            prop_assert_eq!(rest, json!({"apiVersion": "v1", "items": [], "metadata": meta}));
        }

        #[test]
        fn any_text_is_kept_once_or_refused(pieces in proptest::collection::vec(r#"["\\\[\]{}:,a]{0,9}|"items":\["#, 0..8)) {
            let (mut items, mut objects, mut whole) = (ItemReader::default(), Vec::new(), 0);
            for piece in pieces {
                let each = |item: &str| {
                    objects.push(item.to_owned());
                    Ok(())
                };
                whole += piece.len();
                if items.read(piece.as_bytes(), each).is_err() {
                    return Ok(());
                }
            }
            let is_closed = |object: &String| object.starts_with(['{', '[']) && object.ends_with(['}', ']']);
            prop_assert!(objects.iter().all(is_closed), "{objects:?}");
            let objects: usize = objects.iter().map(String::len).sum();
            prop_assert!(objects + items.item.len() + items.rest().len() <= whole, "text was made up");
        }
    }
}
