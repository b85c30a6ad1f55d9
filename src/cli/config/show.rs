//! `jetwheel config show`: what is in force, and where each value came from.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use url::Url;

use super::super::console::one_line;
use super::super::policies::PoliciesFrom;
use super::super::{Answer, Context, Format, Usage};
use super::keys::{Key, keys};

/// What stands for a secret.
const HIDDEN: &str = "(hidden)";

/// Arguments of `jetwheel config`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel config show
  jetwheel --config /etc/jetwheel/jetwheel.toml config show --format json")]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print every key with its value in force, and where that came from; passwords are hidden
    #[command(after_help = "\
A value comes from a flag, or else from the environment, the configuration file (with its line), a bundle, or it is built in. \
docs/CONFIGURATION.md says what each key means. Flags of serve, such as --listen, win over what is shown here.

Examples:
  jetwheel config show
  jetwheel --config /etc/jetwheel/jetwheel.toml config show
  jetwheel config show --format json")]
    Show,
}

/// What was named outside of the configuration file, and where.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Named {
    /// The configuration file that was read.
    pub(in super::super) file: Option<PathBuf>,
    /// What names it; nothing where it was found.
    pub(in super::super) file_by: Option<&'static str>,
    /// What names the data folder, if not the configuration.
    pub(in super::super) data_by: Option<&'static str>,
    /// What names the policy folder, if not the configuration.
    pub(in super::super) policies_by: Option<&'static str>,
}

impl Named {
    /// What a value that the command line has came by: the environment where it is the same as that of a variable.
    pub(in super::super) fn by(
        value: Option<&PathBuf>,
        flag: &'static str,
        variable: &'static str,
    ) -> Option<&'static str> {
        let value = value?;
        let of_environment = std::env::var_os(variable).is_some_and(|other| other == value.as_os_str());
        Some(if of_environment { variable } else { flag })
    }
}

/// A key with its value in force.
#[derive(Debug)]
struct Row {
    key: String,
    value: Value,
    /// `built in`, `file`, `flag`, `environment` or `bundle`.
    from: &'static str,
    /// Which one.
    place: Option<String>,
}

pub(in super::super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let Verb::Show = arguments.verb;
    // What only `serve` would find out.
    context.config.limits.per_client()?;
    context.config.limits.connections()?;
    context.config.limits.largest_upload()?;
    let rows = rows(context)?;
    let Named { file, file_by, .. } = &context.named;
    if context.format == Format::Json {
        let values: Vec<Value> = rows
            .iter()
            .map(|row| json!({"key": row.key, "value": row.value, "from": row.from, "where": row.place}))
            .collect();
        context.console.print_json(&json!({"file": file, "named_by": file_by, "values": values}))?;
        return Ok(Answer::Yes);
    }
    let header = match file {
        Some(file) => format!("configuration file: {} ({})", file.display(), file_by.unwrap_or("found")),
        None => "configuration file: none".to_owned(),
    };
    context.console.print(format_args!("{}\n\n", one_line(&header)))?;
    let shown = |row: &Row| if row.value.is_null() { "-".to_owned() } else { row.value.to_string() };
    let wide = |length: &dyn Fn(&Row) -> usize, most| rows.iter().map(length).max().unwrap_or(0).min(most);
    let (keys, values) = (wide(&|row| row.key.len(), 40), wide(&|row| shown(row).chars().count(), 48));
    for row in &rows {
        let from = row.place.as_deref().unwrap_or(row.from);
        let line = format!("{:keys$}  {:values$}  {from}", row.key, shown(row));
        context.console.print(format_args!("{}\n", one_line(&line)))?;
    }
    Ok(Answer::Yes)
}

/// Every key, those of the site's own names as often as there are such names.
fn rows(context: &Context) -> anyhow::Result<Vec<Row>> {
    let Named { file, data_by, policies_by, .. } = &context.named;
    let mut stated = match file {
        Some(file) => stated(file)?,
        None => BTreeMap::new(),
    };
    // `pull = true` and the mere table both switch it on.
    if let Some((_, line)) = stated.remove("pull") {
        let switch = json!(context.config.pull.enabled());
        stated.entry("pull.enabled".to_owned()).or_insert((switch, line));
    }
    let folder = file.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
    let from_file = |name: &str, key: &Key, value: &Value, line: usize| {
        let value = match value.as_str() {
            Some(path) if key.is_path => json!(context.cwd.join(folder.join(path))),
            _ => masked(name, value),
        };
        let place = file.as_ref().map(|file| format!("{}:{line}", file.display()));
        Row { key: name.to_owned(), value, from: "file", place }
    };
    let mut rows = Vec::new();
    for key in keys() {
        let outside = match key.name {
            "data" => data_by.map(|by| (by, &*context.data)),
            "policies" => policies_by.and_then(|by| Some((by, context.policies()?))),
            _ => None,
        };
        let by_bundle = key.name == "policies" && context.policies_from == PoliciesFrom::Bundles;
        if let Some((by, path)) = outside {
            let from = if by.starts_with("--") { "flag" } else { "environment" };
            rows.push(Row { key: key.name.to_owned(), value: json!(path), from, place: Some(by.to_owned()) });
        } else if let Some((before, after)) = key.name.split_once('*') {
            let own = stated.iter().filter(|(name, _)| name.starts_with(before) && name.ends_with(after));
            rows.extend(own.map(|(name, (value, line))| from_file(name, &key, value, *line)));
        } else if let Some((value, line)) = stated.get(key.name) {
            rows.push(from_file(key.name, &key, value, *line));
        } else if by_bundle {
            let value = json!(context.policies());
            rows.push(Row { key: key.name.to_owned(), value, from: "bundle", place: None });
        } else {
            let value = match key.built_in {
                Value::Null if key.name == "limits.burst" => {
                    json!(context.config.limits.per_client()?.requests.map(|rate| rate.burst))
                }
                Value::String(path) if key.is_path => json!(context.cwd.join(path)),
                value => value,
            };
            rows.push(Row { key: key.name.to_owned(), value, from: "built in", place: None });
        }
    }
    Ok(rows)
}

/// What a file states: values by the names of their keys, with their lines.
fn stated(file: &Path) -> anyhow::Result<BTreeMap<String, (Value, usize)>> {
    let text = fs_err::read_to_string(file).map_err(|error| Usage(error.to_string()))?;
    // It was read before, so a change since then alone can make this fail.
    let changed = |error: toml::de::Error| Usage(format!("{}: {}", file.display(), error.message()));
    let values: toml::Table = toml::from_str(&text).map_err(changed)?;
    let places = DeTable::parse(&text).map_err(changed)?;
    let mut found = BTreeMap::new();
    gather("", &values, places.get_ref(), &text, &mut found);
    Ok(found)
}

fn gather(
    before: &str,
    values: &toml::Table,
    places: &DeTable<'_>,
    text: &str,
    found: &mut BTreeMap<String, (Value, usize)>,
) {
    for (key, place) in places {
        let Some(value) = values.get(key.get_ref().as_ref()) else { continue };
        let name = format!("{before}{}", quoted(key.get_ref()));
        let line = line_of(key, text);
        match (value, place.get_ref()) {
            (toml::Value::Table(values), DeValue::Table(places)) => {
                if name == "pull" {
                    found.insert(name.clone(), (Value::Bool(true), line));
                }
                gather(&format!("{name}."), values, places, text, found);
            }
            _ => {
                found.insert(name, (serde_json::to_value(value).unwrap_or_default(), line));
            }
        }
    }
}

/// A key as it stands in TOML.
fn quoted(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !key.is_empty() && key.bytes().all(is_bare) { key.to_owned() } else { json!(key).to_string() }
}

fn line_of<T>(place: &Spanned<T>, text: &str) -> usize {
    let before = text.get(..place.span().start).unwrap_or_default();
    before.matches('\n').count().saturating_add(1)
}

/// A value without what nobody should see.
fn masked(name: &str, value: &Value) -> Value {
    let last = name.rsplit('.').next().unwrap_or(name);
    if is_secret(last) {
        return json!(HIDDEN);
    }
    match value {
        Value::String(text) => json!(masked_url(text)),
        Value::Array(values) => values.iter().map(|value| masked(name, value)).collect(),
        value => value.clone(),
    }
}

/// Whether a name says that its value is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "secret", "token", "signature", "credential"]
        .iter()
        .any(|word| name.contains(word))
}

/// A URL without its login, and without its query where that holds a secret; any other text as it is.
fn masked_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let Ok(mut url) = Url::parse(text) else {
        // Whatever stands before an @ may be a password.
        let rest = rest.rsplit_once('@').map_or(rest.to_owned(), |(_, rest)| format!("{HIDDEN}@{rest}"));
        return format!("{scheme}://{rest}");
    };
    let has_login = !url.username().is_empty() || url.password().is_some();
    if has_login {
        let _only_without_host = url.set_password(None);
        let _only_without_host = url.set_username("hidden");
    }
    let harmless = |(name, value): (Cow<'_, str>, Cow<'_, str>)| !is_secret(&name) && !value.is_empty();
    let has_secret = !url.query_pairs().all(harmless);
    if has_secret {
        url.set_query(Some("hidden"));
    }
    if has_login || has_secret { url.into() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_shown() {
        for (text, shown) in [
            ("https://a:b@host/x", "https://hidden@host/x"),
            ("https://jetwheel_x@host/", "https://hidden@host/"),
            ("postgres://me:pw@db/x?password=pw", "postgres://hidden@db/x?hidden"),
            ("postgres://db/x?sslmode=require", "postgres://db/x?sslmode=require"),
            ("https://host/?jetwheel_x", "https://host/?hidden"),
            ("https://a:b@ho st/x", "https://(hidden)@ho st/x"),
            ("https://host/simple/", "https://host/simple/"),
            ("jp6-cu126", "jp6-cu126"),
        ] {
            assert_eq!(masked_url(text), shown);
        }
        assert_eq!(masked("credentials.x.password", &json!("pw")), json!(HIDDEN));
        assert_eq!(masked("pull.upstreams", &json!(["https://a:b@h/"])), json!(["https://hidden@h/"]));
    }
}
