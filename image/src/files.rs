//! The files of an image.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use pem::Pem;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use crate::{
    libraries::{self, Libraries},
    notices::NOTICES,
};

/// The user and group that programs run as.
pub(crate) const USER: u64 = 65532;
/// The bundle of public CAs, where TLS libraries look for it.
pub(crate) const CA_BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

const PASSWD: &str = "\
root:x:0:0:root:/root:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
";
const GROUP: &str = "\
root:x:0:
nonroot:x:65532:
";
/// Hosts are looked up in `/etc/hosts`, then by DNS. The C library needs no other module for it.
const NSSWITCH: &str = "\
passwd: files
group: files
hosts: files dns
";
const LICENSE: &[u8] = include_bytes!("../../LICENSE");

/// A file or folder of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageFile {
    /// The path from the root of the image, without a slash before it.
    pub(crate) path: String,
    /// The permissions.
    pub(crate) mode: u32,
    /// The number of its user and of its group.
    pub(crate) owner: u64,
    /// The content. `None` makes a folder.
    pub(crate) content: Option<Vec<u8>>,
}

impl ImageFile {
    fn folder(path: &str, mode: u32, owner: u64) -> Self {
        Self {
            path: path.to_owned(),
            mode,
            owner,
            content: None,
        }
    }

    fn file(path: String, content: Vec<u8>) -> Self {
        Self {
            path,
            mode: 0o644,
            owner: 0,
            content: Some(content),
        }
    }
}

/// Returns the files that all images share, sorted: libraries, users, name lookup, public CAs, and folders to mount on.
pub(crate) fn shared(libraries: &Libraries) -> Result<Vec<ImageFile>> {
    let mut files = vec![
        ImageFile::folder("home/nonroot", 0o700, USER),
        ImageFile::folder("tmp", 0o1777, 0),
        ImageFile::file("etc/passwd".to_owned(), PASSWD.into()),
        ImageFile::file("etc/group".to_owned(), GROUP.into()),
        ImageFile::file("etc/nsswitch.conf".to_owned(), NSSWITCH.into()),
        ImageFile::file("etc/os-release".to_owned(), libraries.os_release.clone()),
        ImageFile::file(CA_BUNDLE.to_owned(), public_authorities()?),
    ];
    for it in &libraries.packages {
        let name = it.name;
        // As images of distroless have it, so that scanners find the package.
        files.push(ImageFile::file(
            format!("var/lib/dpkg/status.d/{name}"),
            it.status.clone(),
        ));
        files.push(ImageFile::file(
            format!("usr/share/doc/{name}/copyright"),
            it.copyright.clone(),
        ));
    }
    for (name, text) in &libraries.common_licenses {
        files.push(ImageFile::file(libraries::common_license(name), text.clone()));
    }
    for it in &libraries.files {
        let mut library = ImageFile::file(it.path.clone(), it.content.clone());
        // The kernel starts programs by the dynamic linker.
        library.mode = if it.is_executable { 0o755 } else { 0o644 };
        files.push(library);
    }
    Ok(with_folders(files))
}

/// Adds the folders that files are in, and sorts, so that a folder stands before what is in it.
fn with_folders(mut files: Vec<ImageFile>) -> Vec<ImageFile> {
    let parents: BTreeSet<String> = files
        .iter()
        .flat_map(|it| parents(&it.path))
        .map(str::to_owned)
        .collect();
    let missing = parents.iter().filter(|path| files.iter().all(|it| it.path != **path));
    let missing: Vec<_> = missing.map(|path| ImageFile::folder(path, 0o755, 0)).collect();
    files.extend(missing);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Returns the folders that a path is in: `a` and `a/b` of `a/b/c`.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

/// Returns the files of one program, sorted: itself, its licenses, and its SBOM.
pub(crate) fn own(name: &str, program: Vec<u8>, sbom: Vec<u8>, notices: Vec<u8>) -> Vec<ImageFile> {
    let mut program = ImageFile::file(format!("usr/bin/{name}"), program);
    program.mode = 0o755;
    with_folders(vec![
        program,
        ImageFile::file(format!("usr/share/licenses/{name}/LICENSE"), LICENSE.to_vec()),
        ImageFile::file(format!("usr/share/licenses/{name}/{NOTICES}"), notices),
        ImageFile::file(format!("usr/share/sbom/{name}.cdx.json"), sbom),
    ])
}

/// The CAs that Mozilla trusts, as the crate of the lock file has them: it is the same on every machine and at every time.
fn public_authorities() -> Result<Vec<u8>> {
    let certificates: Vec<Pem> = TLS_SERVER_ROOT_CERTS
        .iter()
        .map(|it| Pem::new("CERTIFICATE", it.as_ref()))
        .collect();
    ensure!(!certificates.is_empty(), "the crate of public CAs is empty");
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    Ok(pem::encode_many_config(&certificates, config).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Platform;

    fn all() -> Vec<ImageFile> {
        let shared = shared(&libraries::read_installed(Platform::host().unwrap()).unwrap()).unwrap();
        [shared, own("synk", vec![1], vec![2], vec![3])].concat()
    }

    #[test]
    fn folders_stand_before_what_is_in_them() {
        let files = all();
        for (index, file) in files.iter().enumerate() {
            for parent in parents(&file.path) {
                let before = files[..index].iter().find(|it| it.path == parent);
                assert!(before.is_some_and(|it| it.content.is_none()), "{}", file.path);
            }
        }
    }

    #[test]
    fn nothing_but_the_program_and_its_linker_may_be_executed_and_nothing_written() {
        let files = all();
        for file in files.iter().filter(|it| it.content.is_some()) {
            let is_executed = ["usr/bin/synk", Platform::host().unwrap().linker].contains(&file.path.as_str());
            let expect = if is_executed { 0o755 } else { 0o644 };
            assert_eq!((file.mode, file.owner), (expect, 0), "{}", file.path);
        }
        let writable = files.iter().filter(|it| it.content.is_none() && it.mode != 0o755);
        let writable: Vec<_> = writable.map(|it| it.path.as_str()).collect();
        assert_eq!(writable, ["home/nonroot", "tmp"]);
    }

    #[test]
    fn the_bundle_holds_the_public_authorities() {
        let bundle = public_authorities().unwrap();
        let certificates = pem::parse_many(&bundle).unwrap();
        assert!(certificates.len() > 100, "only {}", certificates.len());
    }
}
