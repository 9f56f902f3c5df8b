//! Reads files, folders and standard input.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{InputError, InputErrors, Manifest, Origin, parse};

/// Greatest size of a file, in bytes. A ResourceSet could not store the list of a larger set.
const MAX_BYTES: u64 = 64 << 20;

/// Reads manifests from files, from the `.yaml`, `.yml` and `.json` files of folders, and from standard input, which is
/// named `-`.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Manifest>, InputErrors> {
    let mut manifests = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        match files(path) {
            Ok(files) => {
                for file in files {
                    match read_file(&file) {
                        Ok(more) => manifests.extend(more),
                        Err(InputErrors(more)) => errors.extend(more),
                    }
                }
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(manifests)
    } else {
        Err(InputErrors(errors))
    }
}

/// Returns the files of a path, sorted by name. Subfolders are not read.
fn files(path: &Path) -> Result<Vec<PathBuf>, InputError> {
    if is_stdin(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = path.read_dir().and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| wrong(path, format!("cannot be read: {error}")))?;
    let mut files: Vec<_> = entries
        .iter()
        .map(std::fs::DirEntry::path)
        .filter(|path| is_manifest(path))
        .collect();
    if files.is_empty() {
        return Err(wrong(
            path,
            "no .yaml, .yml or .json file is in this folder; folders in it are not looked into",
        ));
    }
    files.sort();
    Ok(files)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json")) && !path.is_dir()
}

fn read_file(path: &Path) -> Result<Vec<Manifest>, InputErrors> {
    let bytes = if is_stdin(path) {
        bytes(io::stdin().lock())
    } else {
        File::open(path).and_then(bytes)
    };
    let bytes = bytes.map_err(|error| {
        let words = match error.kind() {
            io::ErrorKind::NotFound => "no such file".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        InputErrors(vec![wrong(path, words)])
    })?;
    if bytes.len() as u64 > MAX_BYTES {
        let words = format!("larger than {} MiB: split it", MAX_BYTES >> 20);
        return Err(InputErrors(vec![wrong(path, words)]));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        let words = format!("not UTF-8, on line {line}: save it as UTF-8");
        InputErrors(vec![wrong(path, words)])
    })?;
    parse(&path.to_string_lossy(), text)
}

fn bytes(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes an error about a file as a whole.
fn wrong(path: &Path, problem: impl Into<String>) -> InputError {
    InputError {
        origin: Origin {
            file: path.to_string_lossy().into_owned(),
            document: 0,
            line: 0,
        },
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn config_map(name: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
    }

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    #[track_caller]
    fn check_error(folder: &Path, name: &str, expect: &str) {
        let path = folder.join(name);
        let errors = read(&[path]).unwrap_err().to_string();
        let shown = errors.replace(&format!("{}", folder.display()), "DIR");
        assert_eq!(shown, expect);
    }

    #[test]
    fn a_folder_is_read_by_name_and_not_further_down() {
        let (a, b, c) = (config_map("a"), config_map("b"), config_map("c"));
        let files: &[(&str, &[u8])] = &[
            ("2.yml", b.as_bytes()),
            ("1.yaml", c.as_bytes()),
            (
                "10.json",
                br#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j"}}"#,
            ),
            ("values.txt", b"{{"),
            ("down.yaml/x.yaml", b"{{"),
        ];
        let folder = folder(files);
        let other = tempfile::NamedTempFile::new().unwrap();
        fs::write(other.path(), a).unwrap();
        let manifests = read(&[folder.path().to_owned(), other.path().to_owned()]).unwrap();
        let names: Vec<_> = manifests.iter().map(|manifest| manifest.object.name.as_str()).collect();
        assert_eq!(names, ["c", "j", "b", "a"]);
        assert_eq!(manifests[0].origin.file, folder.path().join("1.yaml").to_string_lossy());
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let folder = folder(&[
            ("empty/README", b""),
            ("latin1.yaml", b"a: b\nc: \xe9"),
            ("bad.yaml", b"a: ["),
        ]);
        check_error(folder.path(), "none.yaml", "DIR/none.yaml: no such file");
        check_error(
            folder.path(),
            "empty",
            "DIR/empty: no .yaml, .yml or .json file is in this folder; folders in it are not looked into",
        );
        check_error(
            folder.path(),
            "latin1.yaml",
            "DIR/latin1.yaml: not UTF-8, on line 2: save it as UTF-8",
        );
        check_error(
            folder.path(),
            "latin1.yaml/x",
            "DIR/latin1.yaml/x: cannot be read: Not a directory (os error 20)",
        );
    }

    #[test]
    fn all_files_are_read_before_the_errors_are_told() {
        let folder = folder(&[("a.yaml", b"a: ["), ("b.yaml", b"- c")]);
        let InputErrors(errors) = read(&[folder.path().to_owned(), folder.path().join("none")]).unwrap_err();
        let lines: Vec<_> = errors
            .iter()
            .map(|error| (error.origin.document, error.origin.line))
            .collect();
        assert_eq!(lines, [(1, 1), (1, 1), (0, 0)]);
    }

    #[test]
    fn a_device_without_end_is_no_input() {
        check_error(Path::new("/dev"), "zero", "DIR/zero: larger than 64 MiB: split it");
    }
}
