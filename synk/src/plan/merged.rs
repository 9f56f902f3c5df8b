//! Predicts the result of a server-side apply without the schema of the kind. Field ownership shows which lists have
//! keys and which values are atomic.

use std::collections::{BTreeMap, BTreeSet};

use bindery_runtime::managed_fields::child;
use serde_json::{Map, Value};

use super::ownership::Ownership;

/// The predicted result of an apply.
#[derive(Debug)]
pub(super) struct Merged {
    /// The object after the apply.
    pub object: Value,
    /// True if only the API server can tell whether the prediction is complete.
    pub doubtful: bool,
}

/// A field of an object: its owners, and the value that was last applied to it.
#[derive(Clone, Copy)]
struct Field<'a> {
    ours: Option<&'a Value>,
    others: Option<&'a Value>,
    last: Last<'a>,
}

/// The last applied value of a field.
#[derive(Clone, Copy)]
enum Last<'a> {
    Unknown,
    Known(Option<&'a Value>),
}

/// How a value is merged, as its managed fields show.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// An object that is merged field by field.
    Fields,
    /// A list whose items have keys.
    Keyed,
    /// A list of values that are merged as a set.
    Set,
    /// An atomic value that is replaced as a whole.
    Whole,
    /// A value that no manager owns, such as a default.
    Unowned,
}

/// Predicts what a server-side apply of `wanted` makes of `live`. `last` is the object as synk last applied it, if
/// known.
pub(super) fn merged(live: &Value, wanted: &Value, ownership: &Ownership, last: Option<&Value>) -> Merged {
    let mut doubtful = false;
    let field = Field {
        ours: Some(&ownership.ours),
        others: Some(&ownership.others),
        last: last.map_or(Last::Unknown, |last| Last::Known(Some(last))),
    };
    let object = match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => fields(live, wanted, field, &mut doubtful),
        _ => wanted.clone(),
    };
    Merged { object, doubtful }
}

fn value(live: &Value, wanted: &Value, at: Field<'_>, doubtful: &mut bool) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) if at.shape() != Shape::Whole => {
            fields(live, wanted, at, doubtful)
        }
        (Value::Array(live), Value::Array(wanted)) if at.shape() == Shape::Keyed => items(live, wanted, at, doubtful)
            .unwrap_or_else(|| whole(&Value::Array(live.clone()), &Value::Array(wanted.clone()), at, doubtful)),
        (Value::Array(live), Value::Array(wanted)) if at.shape() == Shape::Set => set(live, wanted, at),
        _ => whole(live, wanted, at, doubtful),
    }
}

fn fields(live: &Map<String, Value>, wanted: &Map<String, Value>, at: Field<'_>, doubtful: &mut bool) -> Value {
    let mut all = Map::new();
    for (name, live) in live {
        let at = at.below(&format!("f:{name}"));
        let kept = match wanted.get(name) {
            Some(wanted) => Some(value(live, wanted, at, doubtful)),
            None => left(live, at.ours, at.others),
        };
        all.extend(kept.map(|kept| (name.clone(), kept)));
    }
    for (name, wanted) in wanted.iter().filter(|(name, _)| !live.contains_key(*name)) {
        if is_void(wanted) {
            *doubtful |= !at.below(&format!("f:{name}")).last.was_void();
        } else {
            all.insert(name.clone(), wanted.clone());
        }
    }
    Value::Object(all)
}

/// Merges a list whose items have keys. Returns `None` if the keys do not identify the items.
fn items(live: &[Value], wanted: &[Value], at: Field<'_>, doubtful: &mut bool) -> Option<Value> {
    let (ours, others) = (elements(at.ours), elements(at.others));
    let names = ours.keys().chain(others.keys()).next();
    let names: Vec<String> = serde_json::from_str::<Map<String, Value>>(names?)
        .ok()?
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let ids: Vec<_> = live.iter().map(|item| id(item, &names)).collect::<Option<_>>()?;
    let mut partners = Vec::new();
    for item in wanted {
        let partner = match id(item, &names) {
            Some(wanted) => ids.iter().position(|id| *id == wanted),
            None => live.iter().position(|live| {
                names.iter().all(|name| may_be(live.get(name), item.get(name))) && has_any(item, &names)
            }),
        };
        partners.push(partner);
    }
    let distinct: BTreeSet<_> = partners.iter().flatten().collect();
    if distinct.len() < partners.iter().flatten().count() {
        return None;
    }

    let below = |index: usize| Field {
        ours: ours.get(&ids[index]).copied(),
        others: others.get(&ids[index]).copied(),
        last: at.last.item(&ids[index]),
    };
    let in_order = partners.iter().flatten().is_sorted();
    let mut all = Vec::new();
    let of = |index: usize, doubtful: &mut bool| {
        let at = below(index);
        match partners.iter().position(|partner| *partner == Some(index)) {
            Some(place) => Some(value(&live[index], &wanted[place], at, doubtful)),
            None => left(&live[index], at.ours, at.others),
        }
    };
    if in_order {
        all.extend((0..live.len()).filter_map(|index| of(index, doubtful)));
    } else {
        let rest = (0..live.len()).filter(|index| !distinct.contains(index));
        let indexes: Vec<_> = partners.iter().flatten().copied().chain(rest).collect();
        all.extend(indexes.into_iter().filter_map(|index| of(index, doubtful)));
    }
    let added = wanted.iter().zip(&partners).filter(|(_, partner)| partner.is_none());
    all.extend(added.map(|(item, _)| item.clone()));
    Some(Value::Array(all))
}

fn set(live: &[Value], wanted: &[Value], at: Field<'_>) -> Value {
    let owns =
        |fields: Option<&Value>, item: &Value| fields.is_some_and(|fields| fields.get(format!("v:{item}")).is_some());
    let stays = |item: &&Value| wanted.contains(item) || !owns(at.ours, item) || owns(at.others, item);
    let kept = live.iter().filter(stays);
    let added = wanted.iter().filter(|item| !live.contains(item));
    Value::Array(kept.chain(added).cloned().collect())
}

/// Merges an atomic value. A live value that synk's last apply did not set is a default.
fn whole(live: &Value, wanted: &Value, at: Field<'_>, doubtful: &mut bool) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let mut all = Map::new();
            for (name, live) in live {
                let at = at.inside(at.last.field(name));
                match wanted.get(name) {
                    Some(wanted) => drop(all.insert(name.clone(), whole(live, wanted, at, doubtful))),
                    None if at.ours.is_some() && at.last.is_said() => {}
                    None => {
                        let is_default =
                            matches!(at.last, Last::Known(None)) && (at.ours.is_some() || at.others.is_none());
                        *doubtful |= !is_default;
                        all.insert(name.clone(), live.clone());
                    }
                }
            }
            for (name, wanted) in wanted.iter().filter(|(name, _)| !live.contains_key(*name)) {
                if is_void(wanted) {
                    *doubtful |= !at.last.field(name).was_void();
                } else {
                    all.insert(name.clone(), wanted.clone());
                }
            }
            Value::Object(all)
        }
        (Value::Array(live), Value::Array(wanted)) if live.len() == wanted.len() => {
            let pairs = live.iter().zip(wanted).enumerate();
            let items = pairs.map(|(index, (item, wanted))| {
                whole(item, wanted, at.inside(at.last.place(index, live.len())), doubtful)
            });
            Value::Array(items.collect())
        }
        (Value::Number(live), Value::Number(wanted)) if live.as_f64() == wanted.as_f64() => Value::Number(live.clone()),
        (live, wanted) if is_void(live) && is_void(wanted) => live.clone(),
        (_, wanted) => wanted.clone(),
    }
}

/// Returns what remains of a value that `wanted` lacks: the parts that synk does not own, or that another manager owns
/// too.
fn left(live: &Value, ours: Option<&Value>, others: Option<&Value>) -> Option<Value> {
    let Some(ours) = ours else {
        return Some(live.clone());
    };
    let is_all_ours = others.is_none() && (is_leaf(ours) || ours.get(".").is_some());
    let kept = match live {
        _ if is_all_ours => return None,
        _ if is_leaf(ours) => return Some(live.clone()),
        Value::Object(fields) => {
            let kept = fields.iter().filter_map(|(name, live)| {
                let element = format!("f:{name}");
                let kept = left(live, ours.get(&element), others.and_then(|others| others.get(&element)))?;
                Some((name.clone(), kept))
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => {
            let element = |of: &Value, item: &Value| of.as_object()?.keys().find(|key| is_of(item, key)).cloned();
            let kept = items.iter().filter_map(|item| {
                let Some(element) = element(ours, item) else {
                    return Some(item.clone());
                };
                left(item, ours.get(&element), others.and_then(|others| others.get(&element)))
            });
            Value::Array(kept.collect())
        }
        live => live.clone(),
    };
    (kept == *live || !is_void(&kept)).then_some(kept)
}

// === impl Field ===

impl<'a> Field<'a> {
    /// Returns a field below this one.
    fn below(self, element: &str) -> Self {
        let name = element.trim_start_matches("f:");
        let of = |fields: Option<&'a Value>| fields.and_then(|fields| fields.get(element));
        Self {
            ours: of(self.ours),
            others: of(self.others),
            last: self.last.field(name),
        }
    }

    /// Returns a part of an atomic value.
    fn inside(self, last: Last<'a>) -> Self {
        Self { last, ..self }
    }

    fn shape(self) -> Shape {
        let elements = [self.ours, self.others];
        let has = |prefix: &str| {
            let mut maps = elements.iter().flatten().filter_map(|fields| fields.as_object());
            maps.any(|fields| fields.keys().any(|key| key.starts_with(prefix)))
        };
        if has("k:") {
            Shape::Keyed
        } else if has("v:") {
            Shape::Set
        } else if has("f:") {
            Shape::Fields
        } else if elements.iter().flatten().next().is_some() {
            Shape::Whole
        } else {
            Shape::Unowned
        }
    }
}

// === impl Last ===

impl<'a> Last<'a> {
    fn map(self, of: impl FnOnce(&'a Value) -> Option<&'a Value>) -> Self {
        match self {
            Self::Known(Some(value)) => Self::Known(of(value)),
            known => known,
        }
    }

    fn field(self, name: &str) -> Self {
        self.map(|value| value.get(name))
    }

    /// Returns an item by its index, if the list has the same length as before.
    fn place(self, index: usize, len: usize) -> Self {
        match self {
            Self::Known(Some(Value::Array(items))) if items.len() == len => Self::Known(items.get(index)),
            _ => Self::Unknown,
        }
    }

    /// Returns an item by its keys.
    fn item(self, id: &str) -> Self {
        self.map(|value| child(value, &format!("k:{id}")))
    }

    fn is_said(self) -> bool {
        matches!(self, Self::Known(Some(_)))
    }

    /// Whether the last apply set this value to something empty.
    fn was_void(self) -> bool {
        matches!(self, Self::Known(Some(value)) if is_void(value))
    }
}

/// Returns the owned items of a list with keys, by these keys.
fn elements(fields: Option<&Value>) -> BTreeMap<String, &Value> {
    let fields = fields.and_then(Value::as_object).into_iter().flatten();
    let keyed = fields.filter_map(|(key, below)| {
        let keys: Map<String, Value> = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
        Some((Value::Object(keys).to_string(), below))
    });
    keyed.collect()
}

/// Returns the identity of an item, if it has all key fields.
fn id(item: &Value, names: &[String]) -> Option<String> {
    let keys = names.iter().map(|name| Some((name.clone(), item.get(name)?.clone())));
    let keys: Map<String, Value> = keys.collect::<Option<_>>()?;
    Some(Value::Object(keys).to_string())
}

/// Whether a live key field may be the default for a key field that `wanted` leaves out.
fn may_be(live: Option<&Value>, wanted: Option<&Value>) -> bool {
    wanted.is_none() || live == wanted
}

fn has_any(item: &Value, names: &[String]) -> bool {
    names.iter().any(|name| item.get(name).is_some())
}

/// Whether an element of a managed-fields path names this item.
fn is_of(item: &Value, element: &str) -> bool {
    let item = std::slice::from_ref(item);
    !element.starts_with("i:") && child(&Value::Array(item.to_vec()), element).is_some()
}

/// Whether these managed fields own a value as a whole.
fn is_leaf(fields: &Value) -> bool {
    fields
        .as_object()
        .is_none_or(|fields| fields.keys().all(|key| key == "."))
}

/// Whether a value is empty, so that a server may omit it.
pub(super) fn is_void(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_void),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
