//! Packs files as a layer of an image.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use crate::{Profile, files::ImageFile};

/// The operating system that a gzip header names if it names none.
const GZIP_UNKNOWN: u8 = 255;

/// Files, packed.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// The gzip stream that registries store.
    pub(crate) compressed: Vec<u8>,
    /// The digest of the archive before it was compressed.
    pub(crate) diff_id: String,
    /// The size of the archive before it was compressed, in bytes.
    pub(crate) size: usize,
}

/// Packs files in their order. All of them get the time `seconds` since 1970.
pub(crate) fn pack(files: &[ImageFile], seconds: u64, profile: Profile) -> Result<Layer> {
    let mut archive = Builder::new(Vec::new());
    for file in files {
        add(&mut archive, file, seconds).with_context(|| format!("cannot pack {}", file.path))?;
    }
    let archive = archive.into_inner()?;
    let level = match profile {
        Profile::Release => Compression::best(),
        Profile::Dev => Compression::fast(),
    };
    let mut encoder = GzBuilder::new()
        .mtime(0)
        .operating_system(GZIP_UNKNOWN)
        .write(Vec::new(), level);
    encoder.write_all(&archive)?;
    Ok(Layer {
        compressed: encoder.finish()?,
        diff_id: format!("sha256:{:x}", Sha256::digest(&archive)),
        size: archive.len(),
    })
}

fn add(archive: &mut Builder<Vec<u8>>, file: &ImageFile, seconds: u64) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_mode(file.mode);
    header.set_uid(file.owner);
    header.set_gid(file.owner);
    header.set_mtime(seconds);
    let (content, slash) = match &file.content {
        Some(content) => (content.as_slice(), ""),
        None => (&[][..], "/"),
    };
    let is_folder = file.content.is_none();
    header.set_entry_type(if is_folder {
        EntryType::Directory
    } else {
        EntryType::Regular
    });
    header.set_size(content.len().try_into()?);
    archive.append_data(&mut header, format!("{}{slash}", file.path), content)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use tar::Archive;

    use super::*;
    use crate::{Platform, files, libraries};

    #[test]
    fn an_archive_keeps_paths_permissions_owners_and_times() {
        let files = files::shared(&libraries::read_installed(Platform::host().unwrap()).unwrap()).unwrap();
        let layer = pack(&files, 1_700_000_000, Profile::Dev).unwrap();
        let mut tar = Vec::new();
        GzDecoder::new(&layer.compressed[..]).read_to_end(&mut tar).unwrap();
        assert_eq!(tar.len(), layer.size);
        let mut archive = Archive::new(&tar[..]);
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            assert_eq!(header.gid().unwrap(), header.uid().unwrap());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            found.push(ImageFile {
                path: entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned(),
                mode: header.mode().unwrap(),
                owner: header.uid().unwrap(),
                content: header.entry_type().is_file().then_some(content),
            });
        }
        assert_eq!(found, files);
    }

    #[test]
    fn the_same_files_give_the_same_bytes_and_no_time_of_the_machine() {
        let files = files::own("synk", vec![7; 100_000], b"{}".to_vec(), Vec::new());
        let one = pack(&files, 1_700_000_000, Profile::Release).unwrap();
        let two = pack(&files, 1_700_000_000, Profile::Release).unwrap();
        assert_eq!(one.compressed, two.compressed);
        // RFC 1952: bytes 4 to 7 are a time, byte 9 is an operating system.
        assert_eq!((&one.compressed[4..8], one.compressed[9]), (&[0; 4][..], GZIP_UNKNOWN));
        let later = pack(&files, 1_700_000_001, Profile::Release).unwrap();
        assert_ne!(one.diff_id, later.diff_id);
    }
}
