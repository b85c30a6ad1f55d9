//! Rules on the source that a compiler does not check: layers, where effects may be, and what no file may hold.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Each module with those that it may use, from the bottom up. `cli` composes, and may use all.
const LAYERS: [(&str, &[&str]); 15] = [
    ("wording", &[]),
    ("digest", &[]),
    ("fatbin", &[]),
    ("wheel", &["wording", "digest", "fatbin"]),
    ("simple", &["digest", "wheel"]),
    ("policy", &["fatbin", "wheel"]),
    ("resolve", &["digest", "policy", "wheel"]),
    ("access", &["digest", "policy"]),
    ("store", &["access", "wording", "digest", "wheel"]),
    ("upstream", &["digest", "simple", "wheel"]),
    ("bundle", &["digest", "store", "wheel"]),
    ("sync", &["wording", "digest", "policy", "resolve", "simple", "store", "upstream", "wheel"]),
    ("server", &["access", "wording", "digest", "fatbin", "policy", "resolve", "simple", "store", "wheel"]),
    ("pull", &["wording", "digest", "policy", "server", "store", "sync", "upstream", "wheel"]),
    (
        "cli",
        &[
            "access", "bundle", "wording", "digest", "fatbin", "policy", "pull", "resolve", "server",
            "simple", "store", "sync", "upstream", "wheel",
        ],
    ),
];

/// Modules without IO, clock, environment or async: bytes and values in, values out.
const PURE: [&str; 8] = ["access", "wording", "digest", "fatbin", "wheel", "simple", "policy", "resolve"];

/// The one file of those that opens any, by the name it is given; its functions can be called with bytes at hand as well.
const OPENER: &str = "src/wheel/file.rs";

/// What a pure module may not name.
const EFFECTS: [&str; 13] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::io::stdout",
    "std::io::stderr",
    "std::io::stdin",
    "std::time::SystemTime",
    "std::time::Instant",
    "std::thread::sleep",
    "fs_err",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
];

/// Crates that stay in some modules, so that each can be replaced there.
const HOMES: [(&str, &[&str]); 16] = [
    ("blake2", &["server"]),
    ("maud", &["server"]),
    ("md5", &["server"]),
    ("minisign", &["bundle"]),
    ("multer", &["server"]),
    ("tar", &["bundle"]),
    ("anyhow", &["cli", "main"]),
    ("clap", &["cli", "main"]),
    ("tokio", &["cli", "pull", "server", "store", "sync", "upstream"]),
    ("hyper", &["server"]),
    ("tokio_rustls", &["server"]),
    ("reqwest", &["upstream"]),
    ("sled", &["store"]),
    ("object_store", &["store"]),
    ("tokio_postgres", &["store"]),
    ("pubgrub", &["resolve"]),
];

/// Folders and files with texts of our own; data of the tests is what others wrote.
const TEXTS: [&str; 14] = [
    "src",
    "tests",
    "docs",
    "index",
    "policies",
    ".ci",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Cargo.toml",
    "clippy.toml",
    "deny.toml",
    "rustfmt.toml",
    "ci.sh",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a path, sorted; none where it does not exist.
fn files_below(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = fs_err::read_dir(path) else { return Vec::new() };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.iter().flat_map(|entry| files_below(entry)).collect()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

/// Name and text of every file of our own.
fn texts() -> Vec<(String, String)> {
    let skipped = ["index/facts/", "tests/data/", "tests/fuzz/corpus/", "tests/it/tidy.rs"];
    let built = ["/target/", "/__pycache__/"];
    let files = TEXTS.iter().flat_map(|name| files_below(&root().join(name)));
    files
        .map(|path| (shown(&path), path))
        .filter(|(name, _)| !skipped.iter().any(|skipped| name.starts_with(skipped)))
        .filter(|(name, _)| !built.iter().any(|built| name.contains(built)))
        .filter(|(_, path)| path.extension().is_none_or(|extension| extension != "lock"))
        .map(|(name, path)| (name, fs_err::read_to_string(path).unwrap()))
        .collect()
}

/// Name, top module and tokens (without tests) of every source file.
fn sources() -> Vec<(String, String, Vec<String>)> {
    let files = files_below(&root().join("src"));
    let files = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files
        .filter(|path| path.file_name().is_some_and(|name| name != "tests.rs"))
        .map(|path| {
            let name = shown(path);
            let module = name.split(['/', '.']).nth(1).unwrap().to_owned();
            let text = fs_err::read_to_string(path).unwrap();
            (name, module, without_tests(&tokens(&text)))
        })
        .collect()
}

/// Splits Rust source into words and single marks (`::` is one); comments and literals are left out.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut found: Vec<String> = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        match at(i) {
            '/' if at(i + 1) == '/' => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 || i >= chars.len() {
                        break;
                    }
                }
            }
            '"' => {
                i += 1;
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
            }
            // A character, not a lifetime.
            '\'' if at(i + 1) == '\\' => {
                i += 3;
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            '\'' if at(i + 2) == '\'' => i += 3,
            ':' if at(i + 1) == ':' => {
                found.push("::".to_owned());
                i += 2;
            }
            c if c.is_alphanumeric() || c == '_' => {
                let word: String =
                    chars[i..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
                i += word.chars().count();
                if matches!(word.as_str(), "r" | "br") && matches!(at(i), '"' | '#') {
                    let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
                    if at(i + hashes) == '"' {
                        let end: Vec<char> =
                            std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                        i += hashes + 1;
                        while i < chars.len() && !chars[i..].starts_with(&end) {
                            i += 1;
                        }
                        i += end.len();
                        continue;
                    }
                }
                found.push(word);
            }
            c => {
                if !c.is_whitespace() {
                    found.push(c.to_string());
                }
                i += 1;
            }
        }
    }
    found
}

/// Leaves out what follows each `#[cfg(test)]`, up to the end of its braces or its semicolon.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let marker = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        if !tokens[i..].iter().map(String::as_str).take(marker.len()).eq(marker) {
            kept.push(tokens[i].clone());
            i += 1;
            continue;
        }
        let mut depth = 0;
        while i < tokens.len() {
            match tokens[i].as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            let ends = (tokens[i] == "}" || tokens[i] == ";") && depth == 0;
            i += 1;
            if ends {
                break;
            }
        }
    }
    kept
}

/// Every path in the tokens that begins at a word not preceded by `::`, with grouped imports spelled out.
fn paths(tokens: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut i = 0;
    while i < tokens.len() {
        let begins = i == 0 || tokens[i - 1] != "::";
        i = if begins && is_word(&tokens[i]) { tree(tokens, i, "", &mut found) } else { i + 1 };
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads one path, or one group of them, from a place on; gives the place behind it.
fn tree(tokens: &[String], mut i: usize, prefix: &str, found: &mut BTreeSet<String>) -> usize {
    let mut path = prefix.to_owned();
    loop {
        match tokens.get(i).map(String::as_str) {
            Some("{") if !path.is_empty() => {
                i += 1;
                while i < tokens.len() && tokens[i] != "}" {
                    i = if tokens[i] == "," { i + 1 } else { tree(tokens, i, &path, found).max(i + 1) };
                }
                return i + 1;
            }
            Some(word) if is_word(word) => {
                if !path.is_empty() {
                    path.push_str("::");
                }
                path.push_str(word);
                if tokens.get(i + 1).is_some_and(|next| next == "::") {
                    i += 2;
                    continue;
                }
                found.insert(path);
                return i + 1;
            }
            _ => {
                found.insert(path);
                return i;
            }
        }
    }
}

/// Whether a path is that one, or goes on from it.
fn leads(path: &str, from: &str) -> bool {
    path.strip_prefix(from).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn reads_paths_also_in_groups_and_not_in_comments_literals_or_tests() {
    let text = r##"
        //! crate::comment
        use crate::{policy::{self, Verdict}, store::Store};
        fn f<'a>(x: &'a str) -> crate::wheel::Facts { "crate::text"; r#"crate::"raw" "#; '"'; std::fs::read(x) }
        #[cfg(test)]
        mod tests { use crate::server; }
        use std::{fs, io::{self, Read}};
    "##;
    let found = paths(&without_tests(&tokens(text)));
    let found: Vec<&str> = found.iter().map(String::as_str).filter(|path| path.contains("::")).collect();
    assert_eq!(
        found,
        [
            "crate::policy::Verdict",
            "crate::policy::self",
            "crate::store::Store",
            "crate::wheel::Facts",
            "std::fs",
            "std::fs::read",
            "std::io::Read",
            "std::io::self",
        ]
    );
}

#[test]
fn every_module_is_in_the_table_of_layers() {
    let known: BTreeSet<&str> = LAYERS.iter().map(|(module, _)| *module).chain(["lib", "main"]).collect();
    let found: BTreeSet<String> = sources().into_iter().map(|(_, module, _)| module).collect();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), known);
}

#[test]
fn modules_use_only_what_lies_below_them() {
    let mut wrong = Vec::new();
    for (name, module, tokens) in sources() {
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == module) else { continue };
        // `super` once per level above the file leads to the root as well as `crate` does.
        let levels = name.trim_end_matches("/mod.rs").matches('/').count();
        let up = vec!["super"; levels].join("::");
        for path in paths(&tokens) {
            let Some(rest) = ["crate", &up].iter().find_map(|root| path.strip_prefix(&format!("{root}::")))
            else {
                continue;
            };
            let used = rest.split("::").next().unwrap();
            let is_module = LAYERS.iter().any(|(layer, _)| *layer == used);
            if is_module && used != module && !allowed.contains(&used) {
                wrong.push(format!("{name}: {path}, but {module} may use only {allowed:?}"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn lower_modules_have_no_effects() {
    let mut wrong = Vec::new();
    for (name, module, tokens) in sources() {
        if PURE.contains(&module.as_str()) && name != OPENER {
            for path in paths(&tokens) {
                if EFFECTS.iter().any(|effect| leads(&path, effect)) {
                    wrong.push(format!("{name}: {path}, but {module} is to be pure"));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn crates_with_effects_stay_in_their_modules() {
    let mut wrong = Vec::new();
    for (name, module, tokens) in sources() {
        for path in paths(&tokens) {
            for (krate, homes) in HOMES {
                if leads(&path, krate) && path.contains("::") && !homes.contains(&module.as_str()) {
                    wrong.push(format!("{name}: {path}, but {krate} is for {homes:?} alone"));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let files = files_below(&root().join("src")).into_iter().chain(files_below(&root().join("tests/it")));
    let rust = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut wrong: Vec<String> = Vec::new();
    for path in rust.filter(|path| path.file_name().is_some_and(|name| name != "tests.rs")) {
        let text = fs_err::read_to_string(&path).unwrap();
        if !text.trim_start_matches("#![cfg(test)]").trim_start().starts_with("//! ") {
            wrong.push(format!("{}: begins without a module comment", shown(&path)));
        }
    }
    assert_none(&wrong);
}

#[test]
fn data_files_are_toml() {
    for folder in ["index", "policies"] {
        let files = files_below(&root().join(folder));
        let tables: Vec<_> =
            files.iter().filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
        assert!(!tables.is_empty(), "{folder}/ holds no table");
        for table in tables {
            let text = fs_err::read_to_string(table).unwrap();
            if let Err(error) = text.parse::<toml::Table>() {
                panic!("{}: {error}", shown(table));
            }
        }
    }
}

#[test]
fn no_text_names_a_registry_a_place_on_one_machine_or_work_left_undone() {
    // In parts, so that this file does not name them either.
    let registries =
        [["pypi", "org"], ["pythonhosted", "org"], ["crates", "io"], ["npmjs", "org"], ["npmjs", "com"]];
    let registries = registries.map(|parts| parts.join("."));
    let registries = registries.iter().map(String::as_str);
    let undone = ["TODO", "FIXME"];
    let words: Vec<&str> = registries.chain(undone).collect();
    let mut wrong = Vec::new();
    for (name, text) in texts() {
        let product = !name.starts_with("tests/") && !name.starts_with(".ci");
        for (number, line) in text.lines().enumerate() {
            let places = ["/work/", "/root/.", "/tmp/"];
            let found = words.iter().chain(places.iter().filter(|_| product));
            for word in found.filter(|word| line.contains(**word)) {
                wrong.push(format!("{name}:{}: {word}", number + 1));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn lines_end_cleanly() {
    let mut wrong = Vec::new();
    for (name, text) in texts() {
        if Path::new(&name).extension().is_some_and(|extension| extension == "snap") {
            continue;
        }
        for (number, line) in text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                wrong.push(format!("{name}:{}: blanks at the end of the line", number + 1));
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            wrong.push(format!("{name}: the last line has no end"));
        }
    }
    assert_none(&wrong);
}
