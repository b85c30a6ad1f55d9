//! What a path below `/api/v1` stands for, and by which methods.

use http::Method;

use crate::access::Scope;
use crate::wheel::ProjectName;

/// A resource of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Path {
    /// `openapi.json`
    Document,
    /// `status`
    Status,
    /// `devices`
    Devices,
    /// `projects`
    Projects,
    /// `projects/{project}`
    Project(ProjectName),
    /// `snapshots`
    Snapshots,
    /// `snapshots/{id}`: an id, a name or a channel
    Snapshot(String),
    /// `snapshots/{a}/diff/{b}`
    Diff(String, String),
    /// `channels/{channel}`
    Channel(String),
    /// `channels/{channel}/rollback`
    Rollback(String),
    /// `advisories`
    Advisories,
    /// `advisories/{id}`
    Advisory(String),
    /// `tokens`
    Tokens,
    /// `tokens/{name}`
    Token(String),
    /// `sync`
    Sync,
    /// `jobs/{id}`
    Job(String),
    /// `audit`
    Audit,
}

impl Path {
    /// Reads the decoded segments behind `/api/v1/`. A name of a project may be spelled in any way.
    pub(in crate::server) fn parse(segments: &[&str]) -> Option<Self> {
        let owned = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Some(match *segments {
            ["openapi.json"] => Self::Document,
            ["status"] => Self::Status,
            ["devices"] => Self::Devices,
            ["projects"] => Self::Projects,
            ["projects", name] => Self::Project(name.parse().ok()?),
            ["snapshots"] => Self::Snapshots,
            ["snapshots", id] => Self::Snapshot(owned(id)?),
            ["snapshots", from, "diff", to] => Self::Diff(owned(from)?, owned(to)?),
            ["channels", channel] => Self::Channel(owned(channel)?),
            ["channels", channel, "rollback"] => Self::Rollback(owned(channel)?),
            ["advisories"] => Self::Advisories,
            ["advisories", id] => Self::Advisory(owned(id)?),
            ["tokens"] => Self::Tokens,
            ["tokens", name] => Self::Token(owned(name)?),
            ["sync"] => Self::Sync,
            ["jobs", id] => Self::Job(owned(id)?),
            ["audit"] => Self::Audit,
            _ => return None,
        })
    }

    /// The methods, as `Allow` lists them.
    pub(in crate::server) const fn allow(&self) -> &'static str {
        match self {
            Self::Document
            | Self::Status
            | Self::Devices
            | Self::Projects
            | Self::Project(_)
            | Self::Diff(..)
            | Self::Advisories
            | Self::Job(_)
            | Self::Audit => "GET, HEAD",
            Self::Snapshots | Self::Tokens => "GET, HEAD, POST",
            Self::Snapshot(_) => "GET, HEAD, DELETE",
            Self::Channel(_) | Self::Rollback(_) | Self::Sync => "POST",
            Self::Advisory(_) => "POST, DELETE",
            Self::Token(_) => "DELETE",
        }
    }

    /// Whether it takes that method.
    pub(in crate::server) fn allows(&self, method: &Method) -> bool {
        self.allow().split(", ").any(|allowed| allowed == method.as_str())
    }

    /// What a token must allow for it.
    pub(super) fn needs(&self, method: &Method) -> Scope {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if reads && !matches!(self, Self::Tokens | Self::Audit) { Scope::Read } else { Scope::Admin }
    }
}

#[cfg(test)]
mod tests {
    use super::super::DOCUMENT;
    use super::*;

    /// All that is documented is served, by those methods and no others; and so many resources are documented as there are.
    #[test]
    fn the_document_tells_of_each_resource_and_method() {
        let document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut resources = 0;
        for (template, item) in document["paths"].as_object().unwrap() {
            let path = template.strip_prefix("/api/v1/").unwrap();
            let segments: Vec<&str> =
                path.split('/').map(|segment| if segment.starts_with('{') { "x" } else { segment }).collect();
            let known = Path::parse(&segments).unwrap_or_else(|| panic!("{template} is not served"));
            let methods: Vec<String> = item
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| *key != "parameters")
                .map(|key| key.to_uppercase())
                .collect();
            let served: Vec<&str> = known.allow().split(", ").filter(|method| *method != "HEAD").collect();
            let (mut methods, mut served) = (methods, served);
            methods.sort();
            served.sort_unstable();
            assert_eq!(methods, served, "{template}");
            for (method, operation) in
                item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters")
            {
                assert!(operation["operationId"].is_string(), "{template}");
                let admin = known.needs(&method.to_uppercase().parse().unwrap()) == Scope::Admin;
                let says = operation["security"] == serde_json::json!([{"token": []}]);
                assert_eq!(admin, says, "{method} {template}: who may");
            }
            resources += 1;
        }
        assert_eq!(resources, RESOURCES);
    }

    /// How many variants there are; the match below does not compile where one is missing.
    const RESOURCES: usize = 17;

    #[test]
    fn an_unknown_path_is_none() {
        for path in ["", "status/", "projects/", "projects/-", "snapshots/a/diff", "x"] {
            let segments: Vec<&str> = path.split('/').collect();
            assert_eq!(Path::parse(&segments), None, "{path}");
        }
    }
}
