use bindery_api::v1alpha2::{APIServiceExportTemplateSpec, ExportResource, GroupResource};
use bindery_proto::v1alpha2::Scope;

use super::*;

fn template() -> APIServiceExportTemplate {
    let spec = APIServiceExportTemplateSpec {
        description: Some("Cowboys\u{1b}[2J".to_owned()),
        resources: vec![ExportResource {
            group_resource: GroupResource::new("wildwest.dev", "cowboys"),
            versions: Vec::new(),
        }],
        ..APIServiceExportTemplateSpec::default()
    };
    APIServiceExportTemplate::new("cowboys", spec)
}

#[test]
fn every_column_has_a_cell() {
    let cells = template().cells(Timestamp::UNIX_EPOCH);
    assert_eq!(cells.len(), APIServiceExportTemplate::HEADINGS.len());
    assert_eq!(
        cells[..5],
        ["cowboys", "cowboys.wildwest.dev", "<none>", "Unknown", "<unknown>"]
    );
    let collection = Collection::new("west", bindery_api::v1alpha2::CollectionSpec::default());
    assert_eq!(
        collection.cells(Timestamp::UNIX_EPOCH).len(),
        Collection::HEADINGS.len()
    );
}

#[test]
fn a_template_is_described_by_what_it_brings() {
    let schema = TemplateSchema {
        group: "wildwest.dev".to_owned(),
        resource: "cowboys".to_owned(),
        kind: "Cowboy".to_owned(),
        scope: Scope::Namespaced.into(),
        versions: vec!["v1alpha1".to_owned()],
    };
    let mut template = template();
    template.spec.permission_claims = vec![claims::tests::claim("secrets", None)];
    assert_eq!(
            described(&template, &[schema], None),
            "\
Name:           cowboys
Description:    Cowboys [2J
Ready:          Unknown
Schema updates: Never
Objects stand:  in namespaces that are this cluster's alone
Claims:         secrets: EVERY Secret of this cluster
                both ways: your objects that it selects are copied to the provider, which reads them; the provider's are copied here

KIND     RESOURCE               SCOPE        VERSIONS
Cowboy   cowboys.wildwest.dev   Namespaced   v1alpha1

Bind it with: kubectl bind apiservice cowboys
"
        );
}
