//! The files of an image.

use anyhow::{Result, ensure};
use pem::Pem;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

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

/// Returns the files that all images share, sorted: users, name lookup, public CAs, and folders to mount on.
pub(crate) fn shared() -> Result<Vec<ImageFile>> {
    let mut files: Vec<ImageFile> = ["etc", "etc/ssl", "etc/ssl/certs", "home", "usr", "usr/bin", "usr/share"]
        .map(|path| ImageFile::folder(path, 0o755, 0))
        .into();
    files.push(ImageFile::folder("home/nonroot", 0o700, USER));
    files.push(ImageFile::folder("tmp", 0o1777, 0));
    files.push(ImageFile::file("etc/passwd".to_owned(), PASSWD.into()));
    files.push(ImageFile::file("etc/group".to_owned(), GROUP.into()));
    files.push(ImageFile::file("etc/nsswitch.conf".to_owned(), NSSWITCH.into()));
    files.push(ImageFile::file(CA_BUNDLE.to_owned(), public_authorities()?));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Returns the files of one program, sorted: itself, its license, and its SBOM.
pub(crate) fn own(name: &str, program: Vec<u8>, sbom: Vec<u8>) -> Vec<ImageFile> {
    let licenses = format!("usr/share/licenses/{name}");
    let mut files: Vec<ImageFile> = ["usr/share/licenses", &licenses, "usr/share/sbom"]
        .map(|path| ImageFile::folder(path, 0o755, 0))
        .into();
    files.push(ImageFile::file(format!("{licenses}/LICENSE"), LICENSE.to_vec()));
    files.push(ImageFile::file(format!("usr/share/sbom/{name}.cdx.json"), sbom));
    let mut program = ImageFile::file(format!("usr/bin/{name}"), program);
    program.mode = 0o755;
    files.push(program);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
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

    #[test]
    fn folders_stand_before_what_is_in_them() {
        for files in [shared().unwrap(), own("synk", vec![1], vec![2])] {
            let mut seen = vec!["etc", "home", "usr", "usr/share", "usr/bin"];
            for file in &files {
                let parent = file.path.rsplit_once('/').map(|(parent, _)| parent);
                assert!(parent.is_none_or(|parent| seen.contains(&parent)), "{}", file.path);
                seen.push(&file.path);
            }
        }
    }

    #[test]
    fn nothing_but_the_program_may_be_executed_or_written() {
        let files = [shared().unwrap(), own("synk", vec![1], vec![2])].concat();
        let files = files.iter().filter(|it| it.content.is_some());
        for file in files {
            let expect = if file.path == "usr/bin/synk" { 0o755 } else { 0o644 };
            assert_eq!((file.mode, file.owner), (expect, 0), "{}", file.path);
        }
    }

    #[test]
    fn the_bundle_holds_the_public_authorities() {
        let bundle = public_authorities().unwrap();
        let certificates = pem::parse_many(&bundle).unwrap();
        assert!(certificates.len() > 100, "only {}", certificates.len());
    }
}
