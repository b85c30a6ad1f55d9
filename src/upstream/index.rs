//! Which upstreams there are, and which devices each serves: the TOML files of `index/`.
//!
//! ```toml
//! [[upstream]]
//! name = "jp6-cu126"
//! url = "https://pypi.jetson-ai-lab.io/jp6/cu126/+simple/"
//! devices = ["orin-jp6.*"]
//! cuda = "12.6"
//! priority = 10
//! ```

use serde::Deserialize;
use url::Url;

use super::error::shown;

/// The files that are compiled in, by name.
const BUILTIN: [(&str, &str); 3] = [
    ("jetson-ai-lab.toml", include_str!("../../index/jetson-ai-lab.toml")),
    ("nvidia-redist.toml", include_str!("../../index/nvidia-redist.toml")),
    ("pytorch.toml", include_str!("../../index/pytorch.toml")),
];

/// Priority of an upstream that states none.
const DEFAULT_PRIORITY: u32 = 50;

/// How an upstream is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A page per project (PEP 503 or 691).
    #[default]
    Simple,
    /// Folders that list files of any projects.
    Flat,
}

/// An index that we fetch from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Name, as on the command line and in provenance.
    pub name: String,
    /// URL, ending in a slash. It may hold credentials until [`super::Credentials::take_from`] has seen it.
    pub url: Url,
    /// How it is laid out.
    pub kind: Kind,
    /// Folders of a flat upstream, relative to its URL.
    pub folders: Vec<String>,
    /// Patterns of the device profiles that it serves, with `*` for any letters.
    pub devices: Vec<String>,
    /// The CUDA release that its wheels are built with.
    pub cuda: Option<String>,
    /// A project belongs to the upstream with the lowest number that has it.
    pub priority: u32,
    /// Whether anybody may put projects into it: it comes after all others, whatever its priority.
    pub general: bool,
    /// Whether a server that is asked for something fetches it from here; none where that is left to its settings.
    pub pull: Option<bool>,
}

/// Why a file of upstreams cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {text}")]
pub struct IndexError {
    /// The file's name.
    pub file: String,
    /// What is wrong with it.
    pub text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    upstream: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    url: Option<String>,
    #[serde(default)]
    kind: Kind,
    folders: Option<Vec<String>>,
    #[serde(default)]
    devices: Vec<String>,
    cuda: Option<String>,
    priority: Option<u32>,
    #[serde(default)]
    general: bool,
    pull: Option<bool>,
    #[serde(default)]
    disabled: bool,
    /// Where the entry's facts are from; for readers.
    #[serde(default, rename = "sources")]
    _sources: Vec<String>,
}

/// All known upstreams.
#[derive(Debug, Clone, Default)]
pub struct Index {
    upstreams: Vec<Upstream>,
}

impl Index {
    /// The built-in upstreams.
    pub fn builtin() -> Result<Self, IndexError> {
        let mut index = Self::default();
        for (file, text) in BUILTIN {
            index.read(file, text)?;
        }
        Ok(index)
    }

    /// Reads a file over what is there: an entry replaces one of the same name, `disabled = true` removes it.
    pub fn read(&mut self, file: &str, text: &str) -> Result<(), IndexError> {
        let wrong = |text: String| IndexError { file: file.to_owned(), text };
        // Without the text of the line, which may hold a login.
        let parsed: File = toml::from_str(text).map_err(|error| {
            let at = error
                .span()
                .and_then(|span| text.get(..span.start))
                .map(|before| before.matches('\n').count());
            let at = at.map(|line| format!("line {}: ", line.saturating_add(1)));
            wrong(format!("{}{}", at.unwrap_or_default(), error.message()))
        })?;
        for entry in parsed.upstream {
            self.upstreams.retain(|upstream| upstream.name != entry.name);
            if entry.disabled {
                continue;
            }
            let name = entry.name;
            let url = entry.url.ok_or_else(|| wrong(format!("upstream {name:?} has no url")))?;
            let mut upstream =
                Upstream::at(&url).map_err(|why| wrong(format!("upstream {name:?}: {why}")))?;
            upstream.name = name;
            upstream.kind = entry.kind;
            upstream.folders = entry.folders.map_or(upstream.folders, |folders| {
                folders.iter().map(|folder| with_slash(folder)).collect()
            });
            upstream.devices = entry.devices;
            upstream.cuda = entry.cuda;
            upstream.priority = entry.priority.unwrap_or(DEFAULT_PRIORITY);
            upstream.general = entry.general;
            upstream.pull = entry.pull;
            self.upstreams.push(upstream);
        }
        self.upstreams.sort_by(|one, other| {
            (one.general, one.priority, &one.name).cmp(&(other.general, other.priority, &other.name))
        });
        Ok(())
    }

    /// All upstreams, best priority first.
    pub fn upstreams(&self) -> &[Upstream] {
        &self.upstreams
    }

    /// The upstream of that name.
    pub fn named(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }
}

impl Upstream {
    /// An upstream that is only known by its URL; it serves every device.
    ///
    /// Its name is the URL without scheme and credentials.
    pub fn at(url: &str) -> Result<Self, String> {
        let mut url: Url = url.parse().map_err(|error| format!("not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(format!("{}: expected an http or https URL", shown(&url)));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(format!("{}: the URL of an index has no query and no fragment", shown(&url)));
        }
        url.set_path(&with_slash(url.path()));
        let plain = shown(&url);
        let name = plain.split_once("://").map_or(plain.as_str(), |(_, rest)| rest).trim_end_matches('/');
        Ok(Self {
            name: name.to_owned(),
            url,
            kind: Kind::Simple,
            folders: vec![String::new()],
            devices: vec!["*".to_owned()],
            cuda: None,
            priority: DEFAULT_PRIORITY,
            general: false,
            pull: None,
        })
    }

    /// Whether the upstream serves a device.
    pub fn serves(&self, device: &str) -> bool {
        self.devices.iter().any(|pattern| matches(pattern, device))
    }
}

fn with_slash(path: &str) -> String {
    if path.is_empty() || path.ends_with('/') { path.to_owned() } else { format!("{path}/") }
}

/// Whether a text fits a pattern in which `*` stands for any letters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    (0..=rest.len()).any(|skip| rest.get(skip..).is_some_and(|rest| matches(after, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_files_parse_and_serve_devices() {
        let index = Index::builtin().unwrap();
        let serving = |device: &str| {
            let serving = index.upstreams().iter().filter(|upstream| upstream.serves(device));
            serving.map(|upstream| upstream.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(serving("orin-jp6.2")[0], "jp6-cu126");
        assert_eq!(serving("thor-jp7.0")[0], "sbsa-cu130");
        assert_eq!(serving("xavier-jp5.1.2")[0], "jp5-cu114");
        assert!(serving("nano-jp4.6.1").contains(&"redist-v461"));
        assert!(serving("spark-cuda13.0").contains(&"pytorch-cu130"));
        for upstream in index.upstreams() {
            assert!(upstream.url.path().ends_with('/'), "{}", upstream.url);
            assert!(!upstream.devices.is_empty(), "{}", upstream.name);
        }
    }

    #[test]
    fn a_later_file_replaces_and_removes_by_name() {
        let mut index = Index::builtin().unwrap();
        let before = index.upstreams().len();
        index
            .read(
                "site.toml",
                "[[upstream]]\nname = \"jp6-cu126\"\nurl = \"http://mirror.test/jp6\"\ndevices = [\"orin-*\"]\n\
                 [[upstream]]\nname = \"jp5-cu114\"\ndisabled = true\n",
            )
            .unwrap();
        assert_eq!(index.upstreams().len(), before - 1);
        assert_eq!(index.named("jp6-cu126").unwrap().url.as_str(), "http://mirror.test/jp6/");
        let error = index.read("bad.toml", "[[upstream]]\nname = \"x\"\nurl = \"ftp://me:secret@x.test/\"\n");
        insta::assert_snapshot!(
            error.unwrap_err(),
            @r#"bad.toml: upstream "x": ftp://x.test/: expected an http or https URL"#
        );
    }

    #[test]
    fn names_hold_no_credentials() {
        let upstream = Upstream::at("https://me:secret@a.test:8443/root/pypi").unwrap();
        assert_eq!((upstream.name.as_str(), upstream.url.path()), ("a.test:8443/root/pypi", "/root/pypi/"));
    }

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("orin-jp6.*", "orin-jp6.2", true),
            ("orin-jp6.*", "orin-jp5.1", false),
            ("*", "", true),
            ("*-jp7.*", "thor-jp7.0", true),
            ("thor", "thor-jp7.0", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
