use std::path::Path;

use super::*;

#[test]
fn shipped_files_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let files = yaml_files().unwrap();
    for (name, content) in &files {
        let shipped = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            shipped == *content,
            "deploy/crds/{name} is not current: run `cargo xtask gen`"
        );
    }
    let shipped = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(shipped, files.len(), "deploy/crds holds files that nothing generates");
}

#[test]
fn files_read_back_as_what_was_written() {
    for (crd, (name, content)) in all().iter().zip(yaml_files().unwrap()) {
        let read: CustomResourceDefinition = serde_saphyr::from_str(&content).unwrap();
        assert_eq!(&read, crd, "{name}");
    }
}

#[test]
fn each_crd_is_installed_on_one_side() {
    let names =
        |crds: Vec<CustomResourceDefinition>| -> Vec<_> { crds.into_iter().map(|crd| crd.spec.names.plural).collect() };
    let consumer = names(for_consumer());
    assert_eq!(consumer, ["apiservicebindings", "apiservicebindingbundles"]);
    assert!(names(for_provider()).iter().all(|plural| !consumer.contains(plural)));
    assert_eq!(all().len(), 11);
}
