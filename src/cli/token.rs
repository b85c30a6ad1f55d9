//! `jetwheel token`.

use std::time::Duration;

use clap::Subcommand;
use jiff::Timestamp;
use serde_json::json;

use super::input::parse_delay;
use super::remote::{Problem, segment, wrong};
use super::{Answer, Context, Format, Usage};
use crate::access::Scope;
use crate::server::api::Wrong;
use crate::server::api::tokens::{self, Asked, Revoked, Told};

/// Arguments of `jetwheel token`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Whatever changes the mirror over HTTP needs a token; reading needs one where the configuration's [access] says so. A running \
server takes up a new token, and lets a revoked one go, at once.

Examples:
  jetwheel token create ci --scope upload --expires 90d
  jetwheel token list
  jetwheel token revoke ci")]
pub struct Arguments {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token, and show it once
    Create(Create),
    /// List the tokens: scopes, devices, end, last use
    List,
    /// Take a token away; no request gets by with it from then on
    Revoke(Revoke),
}

/// Arguments of `jetwheel token create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The token itself is printed to standard output, once; only a digest of it is kept. Clients present it as the password of the \
user __token__ (pip, uv, twine: in a netrc file, in the URL, or asked for), or as `Authorization: Bearer`.

Scopes: read (where the configuration's [access] asks for it), report (the same), upload, and admin, which is all of them. \
--device bounds reading and reporting; what is uploaded reaches every device that it runs on.

Examples:
  jetwheel token create ci --scope upload --expires 90d
  jetwheel token create robots --scope read --scope report --device 'orin-*' --device thor-jp7.0
  jetwheel token create backup --scope admin --format json")]
struct Create {
    /// What to call it: letters, digits, dots, dashes, underscores
    #[arg(value_name = "NAME")]
    name: String,
    /// What it allows: read, upload, report, admin
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<Scope>,
    /// Device that it reads and reports for, or a pattern [default: all]
    #[arg(long = "device", value_name = "ID-or-PATTERN", value_delimiter = ',')]
    devices: Vec<String>,
    /// How long it is good for: 12h, 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_delay)]
    expires: Option<Duration>,
}

/// Arguments of `jetwheel token revoke`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel token revoke ci")]
struct Revoke {
    /// Name of the token
    #[arg(value_name = "NAME")]
    name: String,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    match &arguments.command {
        TokenCommand::Create(arguments) => create(arguments, context),
        TokenCommand::List => list(context),
        TokenCommand::Revoke(arguments) => revoke(arguments, context),
    }
}

fn create(arguments: &Create, context: &mut Context) -> anyhow::Result<Answer> {
    let Create { name, scopes, devices, expires } = arguments;
    let expires = match expires {
        Some(expires) => Some(
            Timestamp::now()
                .checked_add(*expires)
                .map_err(|_| Usage("--expires is further away than any calendar goes".to_owned()))?,
        ),
        None => None,
    };
    let asked = Asked {
        name: name.clone(),
        scopes: scopes.iter().copied().collect(),
        devices: devices.clone(),
        expires,
    };
    let told: Told = if let Some(remote) = context.remote() {
        remote.post("tokens", &asked)?
    } else {
        let policy = context.policy()?;
        for device in devices.iter().filter(|device| !device.contains('*')) {
            if policy.device(device).is_none() {
                context.console.say(format_args!(
                    "note: no device {device:?} is known now; the token is good for one of that name all the same"
                ))?;
            }
        }
        let told = tokens::create(&*context.store()?, asked).map_err(wrong)?;
        context.audit("token create", told.noted())?;
        told
    };
    let secret = told.token.as_deref().unwrap_or_default();
    if context.format == Format::Json {
        context.console.print_json(&told)?;
    } else {
        context.console.say("this is shown once; keep it where secrets are kept:")?;
        context.console.print(format_args!("{secret}\n"))?;
    }
    Ok(Answer::Yes)
}

fn list(context: &mut Context) -> anyhow::Result<Answer> {
    let list: tokens::List = match context.remote() {
        Some(remote) => remote.get("tokens", &[])?,
        None => tokens::list(&*context.store()?).map_err(wrong)?,
    };
    if context.format == Format::Json {
        context.console.print_json(&list)?;
        return Ok(Answer::Yes);
    }
    let told = list.tokens;
    if told.is_empty() {
        context.console.say("there are no tokens; jetwheel token create NAME --scope SCOPE makes one")?;
        return Ok(Answer::Yes);
    }
    let wide = told.iter().map(|token| token.name.len()).max().unwrap_or(0).max(4);
    let scopes = |token: &Told| {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        scopes.join(", ")
    };
    let widest = told.iter().map(|token| scopes(token).len()).max().unwrap_or(0).max(6);
    context.console.print(format_args!(
        "{:<wide$}  {:<widest$}  {:<17}  {:<17}  DEVICES\n",
        "NAME", "SCOPES", "EXPIRES", "LAST USED"
    ))?;
    for token in told {
        let expires = match token.expires {
            Some(_) if token.expired => "expired".to_owned(),
            expires => moment(expires),
        };
        let devices = if token.devices.is_empty() { "all".to_owned() } else { token.devices.join(", ") };
        context.console.print(format_args!(
            "{:<wide$}  {:<widest$}  {expires:<17}  {:<17}  {devices}\n",
            token.name,
            scopes(&token),
            moment(token.last_used),
        ))?;
    }
    Ok(Answer::Yes)
}

fn revoke(arguments: &Revoke, context: &mut Context) -> anyhow::Result<Answer> {
    let name = &arguments.name;
    let revoked = match context.remote() {
        Some(remote) => match remote.delete::<Revoked>(&format!("tokens/{}", segment(name))) {
            Err(Problem { status: 404, detail, .. }) => Err(Wrong::Unknown(detail)),
            revoked => Ok(revoked?),
        },
        None => tokens::revoke(&*context.store()?, name),
    };
    let revoked = match revoked {
        Ok(revoked) => revoked,
        Err(Wrong::Unknown(unknown)) => {
            context.console.say(unknown)?;
            return Ok(Answer::No);
        }
        Err(other) => return Err(wrong(other)),
    };
    if !context.is_remote() {
        context.audit("token revoke", json!({"name": revoked.revoked}))?;
    }
    if context.format == Format::Json {
        context.console.print_json(&revoked)?;
    } else {
        context.console.print(format_args!("revoked {}\n", revoked.revoked))?;
    }
    Ok(Answer::Yes)
}

/// A moment to the minute, or a dash.
fn moment(moment: Option<Timestamp>) -> String {
    moment.map_or_else(|| "-".to_owned(), |moment| moment.strftime("%Y-%m-%dT%H:%MZ").to_string())
}
