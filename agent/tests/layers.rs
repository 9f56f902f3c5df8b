//! The modules at the top of the crate import each other in one direction only.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// By module, the modules at the top of the crate that its code names as `crate::MODULE`, tests left out.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn imports() -> Imports {
    let mut imports = Imports::new();
    read_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, &mut imports);
    // They join all others into a program.
    for top in ["lib", "main", "run"] {
        imports.remove(top);
    }
    imports
}

fn read_folder(folder: &Path, module: Option<&str>, imports: &mut Imports) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "tests" {
            continue;
        }
        let module = module.unwrap_or(&name);
        if path.is_dir() {
            read_folder(&path, Some(module), imports);
        } else {
            let named = named(&fs::read_to_string(&path).unwrap());
            let others = named.into_iter().filter(|other| other != module);
            imports.entry(module.to_owned()).or_default().extend(others);
        }
    }
}

/// The first names of all paths that begin with `crate::`, also in `use crate::{a, b::{c, d}}`.
fn named(source: &str) -> BTreeSet<String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut named = BTreeSet::new();
    for rest in source.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => named.extend(first_name(rest)),
            Some(list) => {
                let mut depth = 0;
                let end = list.find(|char| {
                    depth += i32::from(char == '{') - i32::from(char == '}');
                    depth < 0
                });
                let end = end.unwrap_or(list.len());
                let mut depth = 0;
                let items = list[..end].split(|char| {
                    depth += i32::from(char == '{') - i32::from(char == '}');
                    char == ',' && depth == 0
                });
                named.extend(items.filter_map(first_name));
            }
        }
    }
    named
}

fn first_name(path: &str) -> Option<String> {
    let path = path.trim();
    let end = path.find(|char: char| !char.is_ascii_lowercase() && char != '_');
    let name = &path[..end.unwrap_or(path.len())];
    (!name.is_empty()).then(|| name.to_owned())
}

/// True if a module is imported by what it imports itself; `way` is then the way from one to the other.
fn is_in_circle<'a>(
    imports: &'a Imports,
    way: &mut Vec<&'a str>,
    module: &'a str,
    done: &mut BTreeSet<&'a str>,
) -> bool {
    if way.contains(&module) {
        way.push(module);
        return true;
    }
    if done.contains(module) {
        return false;
    }
    way.push(module);
    let mut others = imports.get(module).into_iter().flatten();
    if others.any(|other| is_in_circle(imports, way, other, done)) {
        return true;
    }
    way.pop();
    done.insert(module);
    false
}

#[test]
fn imports_are_read_from_every_form_of_a_path() {
    let source = "use crate::{\n    a::{b, c},\n    d,\n    e::F,\n};\nuse crate::g;\npub(in crate::h) fn i() { crate::j::k() }\n\
                  #[cfg(test)]\nmod tests {\n    use crate::z;\n}";
    let expect = ["a", "d", "e", "g", "h", "j"].map(str::to_owned);
    assert_eq!(named(source), BTreeSet::from(expect));
}

#[test]
fn no_module_imports_itself_over_others() {
    let imports = imports();
    assert!(
        imports.contains_key("engine") && imports["engine"].contains("index"),
        "{imports:?}"
    );
    for module in imports.keys() {
        let mut way = Vec::new();
        assert!(
            !is_in_circle(&imports, &mut way, module, &mut BTreeSet::new()),
            "{}",
            way.join(" -> ")
        );
    }
}
