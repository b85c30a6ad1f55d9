//! A site's advisories: each that the API writes is a file of its own in the policy folder.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::wrong::Wrong;
use crate::policy::{Action, Advisory, Pattern};
use crate::server::in_force::PolicySource;

/// The folder in the policy folder.
const FOLDER: &str = "advisories";

/// The longest id, in bytes: it is a name of a file.
const LONGEST_ID: usize = 64;

/// The most files that are looked through.
const MOST_FILES: usize = 4096;

/// The longest file that is looked through, in bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// Advisories in force.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct List<A = Advisory> {
    pub(crate) advisories: Vec<A>,
}

/// An advisory that was written.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) advisory: Advisory,
    /// The file, relative to the policy folder.
    pub(crate) file: String,
}

/// An advisory that was taken away.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Removed {
    pub(crate) removed: String,
}

/// Whether that can be an id: letters, digits, `.`, `_`, `-`, `+` and `!` (versions have them), a letter or digit first.
fn is_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+!".contains(&byte))
        && id.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
}

/// Reads the body of a request: an advisory without its id.
pub(super) fn read(id: &str, body: &[u8]) -> Result<Advisory, Wrong> {
    if !is_id(id) {
        return Err(Wrong::Asked(format!(
            "an advisory's id is at most {LONGEST_ID} letters, digits, '.', '_', '-', '+' and '!', a letter or digit first"
        )));
    }
    let wrong = |error: serde_json::Error| Wrong::Asked(format!("the body is no advisory: {error}"));
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(body).map_err(wrong)?;
    if fields.insert("id".to_owned(), id.into()).is_some_and(|stated| stated != id) {
        return Err(Wrong::Asked("the body states another id than the URL".to_owned()));
    }
    serde_json::from_value(fields.into()).map_err(wrong)
}

/// Writes an advisory, durably, and has it in force; an older one of the same file is replaced. Blocks.
pub(super) fn write(source: &PolicySource, advisory: Advisory) -> Result<Written, Wrong> {
    let dir = usable(source)?;
    let name = place(&dir, &advisory.id)?.unwrap_or_else(|| format!("{}.toml", advisory.id));
    let path = dir.join(FOLDER).join(&name);
    let before = fs_err::read(&path).ok();
    let failed = |error: io::Error| unwritable(&dir, &error);
    fs_err::create_dir_all(dir.join(FOLDER)).map_err(failed)?;
    put(&path, toml(&advisory).as_bytes()).map_err(failed)?;
    if let Some(broken) = source.in_force().broken.clone() {
        match before {
            Some(text) => put(&path, &text).map_err(failed)?,
            None => fs_err::remove_file(&path).map_err(failed)?,
        }
        return Err(Wrong::Asked(format!("the policy would not be usable with it: {broken}")));
    }
    Ok(Written { advisory, file: format!("{FOLDER}/{name}") })
}

/// Takes an advisory of the site away. Blocks.
pub(super) fn remove(source: &PolicySource, id: &str) -> Result<Removed, Wrong> {
    let dir = usable(source)?;
    let Some(name) = place(&dir, id)? else {
        let known = source.in_force().policy.advisories().iter().any(|advisory| advisory.id == id);
        let id: String = id.chars().take(LONGEST_ID).collect();
        return Err(if known {
            Wrong::Stands(format!(
                "the advisory {id} is built in: it cannot be removed, but one of the same id takes its place"
            ))
        } else {
            Wrong::Unknown(format!(
                "there is no advisory {id:?}; GET /api/v1/advisories lists those that there are"
            ))
        });
    };
    let folder = dir.join(FOLDER);
    let gone = fs_err::remove_file(folder.join(name)).and_then(|()| fs_err::File::open(&folder)?.sync_all());
    gone.map_err(|error| unwritable(&dir, &error))?;
    Ok(Removed { removed: id.to_owned() })
}

/// The site's policy folder, if it can be used as it is.
fn usable(source: &PolicySource) -> Result<PathBuf, Wrong> {
    let Some(dir) = source.site_folder() else {
        return Err(Wrong::Stands(
            "this mirror has no policy folder of its own: name one by `policies` in the configuration"
                .to_owned(),
        ));
    };
    match &source.in_force().broken {
        Some(broken) => Err(Wrong::Stands(format!("the policy folder cannot be used as it is: {broken}"))),
        None => Ok(dir.to_owned()),
    }
}

fn unwritable(dir: &Path, error: &io::Error) -> Wrong {
    tracing::warn!(%error, folder = %dir.display(), "an advisory could not be written");
    Wrong::Stands(format!("the policy folder of this mirror cannot be written: {}", error.kind()))
}

/// The file that holds an advisory of that id and no other; none if there is none.
fn place(dir: &Path, id: &str) -> Result<Option<String>, Wrong> {
    #[derive(Deserialize)]
    struct Ids {
        #[serde(default)]
        advisory: Vec<Id>,
    }
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    let Ok(entries) = fs_err::read_dir(dir.join(FOLDER)) else { return Ok(None) };
    for entry in entries.take(MOST_FILES).flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let small = entry.metadata().is_ok_and(|metadata| metadata.len() <= LONGEST_FILE);
        if !small || Path::new(&name).extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let Ok(text) = fs_err::read_to_string(entry.path()) else { continue };
        let Ok(ids) = toml::from_str::<Ids>(&text) else { continue };
        if ids.advisory.iter().all(|advisory| advisory.id != id) {
            continue;
        }
        if ids.advisory.len() > 1 {
            return Err(Wrong::Stands(format!(
                "the advisory {id} stands beside others in {FOLDER}/{name}: edit that file"
            )));
        }
        return Ok(Some(name));
    }
    Ok(None)
}

/// Writes a file whole and durably, readable by whoever may read the folder.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    fs_err::File::open(folder)?.sync_all()
}

/// An advisory as a policy file has it.
fn toml(advisory: &Advisory) -> String {
    let Advisory { id, project, versions, compute_capability, devices, action, text, sources } = advisory;
    let mut out = String::from("[[advisory]]\n");
    let mut field = |name: &str, value: &str| {
        let _infallible = writeln!(out, "{name} = {value}");
    };
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let list = |items: Vec<&str>| toml::Value::from(items).to_string();
    let patterns = |patterns: &[Pattern]| list(patterns.iter().map(Pattern::as_str).collect());
    field("id", &quoted(id));
    field("project", &quoted(project.as_str()));
    field("versions", &quoted(&versions.to_string()));
    field("compute_capability", &patterns(compute_capability));
    field("devices", &patterns(devices));
    field("action", if *action == Action::Refuse { "\"refuse\"" } else { "\"warn\"" });
    field("text", &quoted(text));
    field("sources", &list(sources.iter().map(String::as_str).collect()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_is_a_name_of_a_file_in_the_folder() {
        for bad in ["", ".", "..", "../x", "a/b", "-x", ".x", "a b", &"a".repeat(65)] {
            assert!(!is_id(bad), "{bad}");
        }
        assert!(is_id("torch-2.5.0+cu126-on-orin"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(text in any::<String>(), source in any::<String>()) {
            let body = serde_json::json!({"project": "torch", "versions": ">=2,<3", "devices": ["orin-*"],
                "action": "refuse", "text": text, "sources": [source]});
            let advisory = read("x-1", body.to_string().as_bytes()).unwrap();
            let files = [("advisories/x-1.toml".to_owned(), toml(&advisory))];
            let policy = crate::policy::Policy::with_site(&files).unwrap();
            let read = policy.advisories().iter().find(|known| known.id == "x-1").unwrap();
            prop_assert_eq!(serde_json::to_value(read).unwrap(), serde_json::to_value(&advisory).unwrap());
        }
    }
}
