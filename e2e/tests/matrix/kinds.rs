//! What is synced: the bound API and what is claimed with it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::v1alpha2::Scope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use crate::{
    cells::Cell,
    offer::{self, CLAIM_LABEL},
};

/// A kind of object, each with one word that tells its versions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The API itself.
    Bound,
    Secret,
    ConfigMap,
    ServiceAccount,
    /// A resource beyond the core ones, which the provider's allow-list names.
    Horse,
}

// === impl Kind ===

impl Kind {
    pub(crate) fn resource(self, cell: &Cell) -> ApiResource {
        match self {
            Self::Bound => cell.resource(),
            Self::Secret => ApiResource::erase::<Secret>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::ServiceAccount => ApiResource::erase::<ServiceAccount>(&()),
            Self::Horse => offer::horses(),
        }
    }

    /// Its objects in a namespace; all of them if they have none as seen in this scope.
    pub(crate) fn api(self, cell: &Cell, scope: Scope, client: Client, namespace: &str) -> Api<DynamicObject> {
        match (self, scope) {
            (Self::Bound, Scope::Cluster) => Api::all_with(client, &self.resource(cell)),
            _ => Api::namespaced_with(client, namespace, &self.resource(cell)),
        }
    }

    /// An object that no claim selects.
    pub(crate) fn object(self, cell: &Cell, name: &str, word: &str) -> DynamicObject {
        let mut object = DynamicObject::new(name, &self.resource(cell)).data(self.says(word));
        if self == Self::ServiceAccount {
            object.labels_mut().insert("word".to_owned(), word.to_owned());
        }
        object
    }

    /// An object that the claim selects by its label.
    pub(crate) fn labelled(self, cell: &Cell, name: &str, word: &str) -> DynamicObject {
        let mut object = self.object(cell, name, word);
        object.labels_mut().insert(CLAIM_LABEL.to_owned(), cell.name.to_owned());
        object
    }

    /// A merge patch that makes it say another word.
    pub(crate) fn patch(self, word: &str) -> Value {
        match self {
            Self::ServiceAccount => json!({"metadata": {"labels": {"word": word}}}),
            _ => self.says(word),
        }
    }

    /// Whether an object says this word.
    pub(crate) fn is(self, object: &DynamicObject, word: &str) -> bool {
        match self {
            Self::Bound => object.data["spec"]["intent"] == word,
            Self::Secret => object.data["data"]["word"] == STANDARD.encode(word),
            Self::ConfigMap => object.data["data"]["word"] == word,
            Self::Horse => object.data["spec"]["word"] == word,
            Self::ServiceAccount => object.labels().get("word").is_some_and(|said| said == word),
        }
    }

    fn says(self, word: &str) -> Value {
        match self {
            Self::Bound => json!({"spec": {"intent": word}}),
            Self::Secret => json!({"data": {"word": STANDARD.encode(word)}}),
            Self::ConfigMap => json!({"data": {"word": word}}),
            Self::Horse => json!({"spec": {"word": word}}),
            Self::ServiceAccount => json!({}),
        }
    }
}
