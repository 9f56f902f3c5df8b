//! Plans the condition `Ready` of templates, and of collections: named lists of templates in the catalog.

use bindery_api::{
    Condition, Severity,
    conditions::{READY, false_condition, true_condition},
    v1alpha2::Collection,
};

use crate::template::{ExportPlan, Refusal};

/// A template is ready if its export can be planned; otherwise the condition carries the refusal.
pub(super) fn template(verdict: &Result<ExportPlan, Refusal>) -> Condition {
    match verdict {
        Ok(_) => true_condition(READY),
        Err(refusal) => false_condition(READY, Severity::Error, refusal.reason(), refusal.to_string()),
    }
}

/// A collection is ready if all its templates exist. Else the severity is only Warning: those that exist can still be
/// bound.
pub(super) fn collection(collection: &Collection, exists: impl Fn(&str) -> bool) -> Condition {
    let templates = collection.spec.templates.iter().map(|template| template.name.as_str());
    let missing: Vec<_> = templates.filter(|template| !exists(template)).collect();
    if missing.is_empty() {
        return true_condition(READY);
    }
    let message = format!(
        "no such APIServiceExportTemplate: {}; create it or take it out of the collection",
        missing.join(", ")
    );
    false_condition(READY, Severity::Warning, "TemplateNotFound", message)
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{CollectionSpec, NameRef};

    use super::*;

    #[test]
    fn a_collection_is_ready_when_all_its_templates_exist() {
        let spec = CollectionSpec {
            description: None,
            templates: vec![NameRef::new("cowboys"), NameRef::new("sheriffs")],
        };
        let wild_west = Collection::new("wildwest", spec);
        assert!(collection(&wild_west, |_| true).is_true());
        let condition = collection(&wild_west, |name| name == "cowboys");
        assert_eq!(condition.reason, "TemplateNotFound");
        assert!(condition.message.contains("sheriffs") && !condition.message.contains("cowboys"));
    }

    #[test]
    fn a_refusal_is_told_as_it_is() {
        let refusal = Refusal::SchemaNotFound {
            definition: "cowboys.wildwest.dev".to_owned(),
        };
        let condition = template(&Err(refusal.clone()));
        assert_eq!(
            (condition.reason, condition.message),
            (refusal.reason().to_owned(), refusal.to_string())
        );
    }
}
