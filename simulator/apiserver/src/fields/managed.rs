//! `metadata.managedFields`: who owns which fields of an object.

use serde_json::{Map, Value, json};

use super::set::Set;

/// More updaters than this are merged into one, from the oldest on.
const UPDATERS_MAX: usize = 10;
/// Name of the manager that merged updaters become.
const ANCIENT: &str = "ancient-changes";

/// Identity of a manager. One name may write by several operations, versions and subresources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManagerId {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// Empty for [`Operation::Apply`]: an applier is the same in all versions.
    pub(super) version: String,
    pub(super) subresource: String,
}

/// How a manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// A manager with what it owns.
#[derive(Clone, Debug)]
pub(super) struct Manager {
    pub(super) id: ManagerId,
    version: String,
    time: Option<String>,
    fields: Fields,
}

/// Owned fields; read from the object when first needed.
#[derive(Clone, Debug)]
enum Fields {
    Stored(Value),
    Set(Set),
}

/// All managers of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managed(Vec<Manager>);

// === impl ManagerId ===

impl ManagerId {
    pub(super) fn new(name: &str, operation: Operation, version: &str, subresource: &str) -> Self {
        Self {
            name: if name.is_empty() { "unknown" } else { name }.to_owned(),
            operation,
            version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => version.to_owned(),
            },
            subresource: subresource.to_owned(),
        }
    }
}

// === impl Operation ===

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

// === impl Manager ===

impl Manager {
    fn read(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
            return None;
        }
        let id = ManagerId {
            name: text("manager").to_owned(),
            ..ManagerId::new("-", operation, text("apiVersion"), text("subresource"))
        };
        Some(Self {
            id,
            version: text("apiVersion").to_owned(),
            time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
            fields: Fields::Stored(entry.get("fieldsV1").cloned().unwrap_or_else(|| json!({}))),
        })
    }

    fn written(&self) -> Value {
        let mut entry = Map::new();
        let mut put = |key: &str, value: Value| entry.insert(key.to_owned(), value);
        if !self.id.name.is_empty() {
            put("manager", json!(self.id.name));
        }
        put("operation", json!(self.id.operation.as_str()));
        put("apiVersion", json!(self.version));
        if let Some(time) = &self.time {
            put("time", json!(time));
        }
        put("fieldsType", json!("FieldsV1"));
        let fields = match &self.fields {
            Fields::Stored(fields) => fields.clone(),
            Fields::Set(set) => set.fields(),
        };
        put("fieldsV1", fields);
        if !self.id.subresource.is_empty() {
            put("subresource", json!(self.id.subresource));
        }
        Value::Object(entry)
    }

    /// The fields of the manager.
    pub(super) fn set(&mut self) -> &mut Set {
        if let Fields::Stored(stored) = &self.fields {
            self.fields = Fields::Set(Set::parse(stored));
        }
        match &mut self.fields {
            Fields::Set(set) => set,
            Fields::Stored(_) => unreachable!("the fields were read above"),
        }
    }
}

// === impl Managed ===

impl Managed {
    /// Reads `managedFields`; `None` if they are no such list.
    pub(super) fn read(entries: Option<&Value>) -> Option<Self> {
        let mut owners = Self::default();
        for entry in entries.and_then(Value::as_array).into_iter().flatten() {
            let manager = Manager::read(entry)?;
            owners.0.retain(|other| other.id != manager.id);
            owners.0.push(manager);
        }
        Some(owners)
    }

    /// Writes `managedFields`; `None` without managers.
    pub(super) fn written(mut self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        self.0.sort_by(|one, two| {
            let key = |it: &Manager| (it.id.operation, it.time.clone().unwrap_or_default());
            key(one)
                .cmp(&key(two))
                .then_with(|| one.id.name.cmp(&two.id.name))
                .then_with(|| one.version.cmp(&two.version))
                .then_with(|| one.id.subresource.cmp(&two.id.subresource))
        });
        Some(self.0.iter().map(Manager::written).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Manager> {
        self.0.iter_mut()
    }

    /// The manager of that identity.
    pub(super) fn get(&mut self, id: &ManagerId) -> Option<&mut Manager> {
        self.0.iter_mut().find(|manager| manager.id == *id)
    }

    /// Replaces what a manager owns. A new manager has no time.
    pub(super) fn put(&mut self, id: &ManagerId, version: &str, set: Set) {
        match self.get(id) {
            Some(manager) => {
                manager.fields = Fields::Set(set);
                version.clone_into(&mut manager.version);
            }
            None => self.0.push(Manager {
                id: id.clone(),
                version: version.to_owned(),
                time: None,
                fields: Fields::Set(set),
            }),
        }
    }

    /// Notes when a manager last wrote.
    pub(super) fn stamp(&mut self, id: &ManagerId, time: &str) {
        if let Some(manager) = self.get(id) {
            manager.time = Some(time.to_owned());
        }
    }

    /// Forgets managers that own nothing.
    pub(super) fn drop_empty(&mut self) {
        self.0.retain_mut(|manager| !manager.set().is_empty());
    }

    /// All fields that somebody owns.
    pub(super) fn all(&mut self) -> Set {
        let mut all = Set::default();
        for manager in &mut self.0 {
            all = all.union(manager.set());
        }
        all
    }

    /// Merges the oldest updaters until there are few enough.
    pub(super) fn cap(&mut self) {
        let updaters = self
            .0
            .iter()
            .filter(|manager| manager.id.operation == Operation::Update);
        let mut updaters: Vec<_> = updaters
            .map(|it| (it.time.clone(), it.id.clone(), it.version.clone()))
            .collect();
        let mut count = updaters.len();
        if count <= UPDATERS_MAX {
            return;
        }
        updaters.sort();
        let mut first: Vec<(String, ManagerId)> = Vec::new();
        for (time, id, version) in updaters {
            if count <= UPDATERS_MAX {
                return;
            }
            let Some((_, of_version)) = first.iter().find(|(other, _)| *other == version) else {
                first.push((version, id));
                continue;
            };
            let bucket = ManagerId::new(ANCIENT, Operation::Update, &version, "");
            if self.get(&bucket).is_none()
                && let Some(oldest) = self.get(of_version)
            {
                oldest.id = bucket.clone();
            }
            let Some(set) = self.get(&id).map(|manager| std::mem::take(manager.set())) else {
                continue;
            };
            self.0.retain(|manager| manager.id != id);
            if let Some(bucket) = self.get(&bucket) {
                *bucket.set() = set.union(bucket.set());
                bucket.time = time;
            }
            count -= 1;
        }
    }
}
