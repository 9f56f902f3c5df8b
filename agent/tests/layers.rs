//! Modules that stand side by side, at any depth of the crate, import each other in one direction only.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Names of the modules on the way to a module, such as `binding` and `status`.
type Module = Vec<String>;

/// By module, such as `binding/status`, its siblings that its code or that of its children imports, tests left out.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn imports() -> Imports {
    let mut sources = BTreeMap::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    read_folder(&folder, &Module::new(), &mut sources);
    let mut imports = Imports::new();
    for (module, source) in &sources {
        for path in paths(source) {
            let mut imported = resolve(module, &path);
            while !imported.is_empty() && !sources.contains_key(&imported) {
                imported.pop();
            }
            let both = module.iter().zip(&imported);
            let shared = both.take_while(|(own, other)| own == other).count();
            if shared < module.len().min(imported.len()) {
                let sibling = |module: &Module| module[..=shared].join("/");
                let siblings = imports.entry(sibling(module)).or_default();
                siblings.insert(sibling(&imported));
            }
        }
    }
    imports
}

/// Reads the modules in a folder, without comments and tests.
fn read_folder(folder: &Path, parent: &Module, sources: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "tests" {
            continue;
        }
        let module: Module = parent.iter().cloned().chain([name]).collect();
        if path.is_dir() {
            read_folder(&path, &module, sources);
        } else {
            let source = fs::read_to_string(&path).unwrap();
            let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            sources.insert(module, code.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// All paths that begin with `crate` or `super`, also those in `use crate::{a, b::{c, d}}`.
fn paths(source: &str) -> Vec<Vec<&str>> {
    let mut paths = Vec::new();
    for root in ["crate::", "super::"] {
        for (at, _) in source.match_indices(root) {
            // Of `super::super::a`, the second part is no path of its own.
            if !source[..at].ends_with(':') {
                collect_paths(&[], &source[at..], &mut paths);
            }
        }
    }
    paths
}

/// Collects the paths at the begin of a text that goes on after these names.
fn collect_paths<'a>(names: &[&'a str], text: &'a str, paths: &mut Vec<Vec<&'a str>>) {
    let text = text.trim_start();
    if let Some(list) = text.strip_prefix('{') {
        let nesting = |char| i32::from(char == '{') - i32::from(char == '}');
        let mut depth = 0;
        let end = list.find(|char| {
            depth += nesting(char);
            depth < 0
        });
        let mut depth = 0;
        let items = list[..end.unwrap_or(list.len())].split(|char| {
            depth += nesting(char);
            char == ',' && depth == 0
        });
        let items = items.filter(|item| !item.trim().is_empty());
        items.for_each(|item| collect_paths(names, item, paths));
        return;
    }
    let end = text.find(|char: char| !char.is_alphanumeric() && char != '_');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let names = [names, &[name]].concat();
    match rest.strip_prefix("::") {
        Some(rest) => collect_paths(&names, rest, paths),
        None => paths.push(names),
    }
}

/// Returns what a path in a module names.
fn resolve(module: &Module, path: &[&str]) -> Module {
    let mut target = module.clone();
    for name in path {
        match *name {
            "crate" => target.clear(),
            "super" => target.truncate(target.len().saturating_sub(1)),
            name => target.push(name.to_owned()),
        }
    }
    target
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
    let source = "use crate::{\n    a::{b, c},\n    d,\n};\nuse super::e;\nfn f() { super::super::g::h() }";
    let module = ["x", "y", "z"].map(str::to_owned).to_vec();
    let found: Vec<_> = paths(source)
        .iter()
        .map(|path| resolve(&module, path).join("/"))
        .collect();
    assert_eq!(found, ["a/b", "a/c", "d", "x/y/e", "x/g/h"]);
}

#[test]
fn no_module_imports_itself_over_siblings() {
    let imports = imports();
    for (module, sibling) in [("engine", "index"), ("session/renewal", "session/credential")] {
        assert!(imports[module].contains(sibling), "{imports:?}");
    }
    for module in imports.keys() {
        let mut way = Vec::new();
        assert!(
            !is_in_circle(&imports, &mut way, module, &mut BTreeSet::new()),
            "{}",
            way.join(" -> ")
        );
    }
}
