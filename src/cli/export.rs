//! `jetwheel export`.

use std::path::PathBuf;

use serde::Serialize;

use super::closure::{Closure, Sources};
use super::input::read_text;
use super::resolve::Wish;
use super::{Answer, Context, Format, Usage, devices, snapshot};
use crate::bundle::{self, Exported, Manifest, Packed, Receipt, SecretKey, Text};
use crate::policy::{DeviceProfile, Policy, judge};
use crate::server::view::Scope;
use crate::store::{PolicyFile, SnapshotFile, SnapshotId, Store};
use crate::wheel::Size;
use crate::wording::counted;

/// Where the password of a key is taken from, if it has one.
const PASSWORD: &str = "JETWHEEL_KEY_PASSWORD";

/// Arguments of `jetwheel export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes one tar file with all wheels that the devices' indexes list, for `jetwheel import` at a site without network. Where \
requirements are given it holds what they need, dependencies included, and nothing else, with a lock file for each device, \
pylock.DEVICE.toml. With a key, FILE.minisig is a signature in minisign's format over FILE: `minisign -Vm FILE -p KEY.pub` checks it too. Keys are those \
of `minisign -G -W`, or of --make-key; the password of one that has a password is read from JETWHEEL_KEY_PASSWORD.

Examples:
  jetwheel export --make-key site.key                          # once; site.key.pub goes to the other sites
  jetwheel export --device orin-jp6.2 --output full.jwb --key site.key
  jetwheel export --device orin-jp6.2 -r requirements.txt --output robots.jwb --key site.key
  jetwheel export --device orin-jp6.2 --output delta.jwb --since receipt.json --key site.key
  jetwheel export --device orin-jp6.2 --snapshot stable --output full.jwb --split 4GB")]
pub struct Arguments {
    /// What is installed at the other site, such as 'torch>=2.4'; without any, all that the devices' indexes list is exported
    #[arg(value_name = "REQUIREMENT", conflicts_with = "make_key")]
    wanted: Vec<String>,
    /// Requirements file, as for `resolve`; may be repeated
    #[arg(short, long = "requirement", value_name = "FILE", conflicts_with = "make_key")]
    requirements: Vec<PathBuf>,
    /// Constraints file: limits versions without asking for a project
    #[arg(short, long = "constraint", value_name = "FILE")]
    constraints: Vec<PathBuf>,
    /// Take pre-releases as readily as final releases
    #[arg(long)]
    pre: bool,
    /// Where the devices of the other site reach its mirror, for the URLs of the lock files
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    base_url: String,
    /// Device profile whose index is exported; may be repeated
    #[arg(long = "device", short = 'd', value_name = "ID", required_unless_present = "make_key")]
    devices: Vec<String>,
    /// The bundle; a signature beside it ends in .minisig, parts of it end in .001 and so on
    #[arg(long, short = 'o', value_name = "FILE", required_unless_present = "make_key")]
    output: Option<PathBuf>,
    /// Leave out what the other site has: what `jetwheel inventory` printed there
    #[arg(long, value_name = "RECEIPT")]
    since: Option<PathBuf>,
    /// Secret key to sign with
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Most bytes of one file: 4GB, 700MiB
    #[arg(long, value_name = "SIZE")]
    split: Option<Size>,
    /// Snapshot to export, by id, name or channel, in place of what is held now
    #[arg(long, value_name = "ID")]
    snapshot: Option<String>,
    /// Lock file that goes with the wheels; may be repeated
    #[arg(long = "lock", value_name = "FILE")]
    locks: Vec<PathBuf>,
    /// Make a key without a password in that file, and its public key in FILE.pub, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["devices", "output"])]
    make_key: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    exported: Exported,
    site: String,
    snapshot: SnapshotId,
    devices: Vec<String>,
    /// Wheels that the snapshot lists for the devices.
    listed: usize,
    /// Wheels in the bundle.
    packed: usize,
    /// Their bytes.
    bytes: u64,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    if let Some(path) = &arguments.make_key {
        let path = context.path(path);
        let public = bundle::make_key(&path)?;
        let json = serde_json::json!({ "key": path, "public_key": public });
        if context.format == Format::Json {
            context.console.print_json(&json)?;
        } else {
            context.console.print(format_args!(
                "{}: keep it\n{}: give it away\n",
                path.display(),
                public.display()
            ))?;
        }
        return Ok(Answer::Yes);
    }
    let policy = context.policy()?;
    let profiles = arguments.devices.iter().map(|id| devices::find(&policy, id));
    let profiles = profiles.collect::<Result<Vec<&DeviceProfile>, Usage>>()?;
    let key = match &arguments.key {
        Some(path) => Some(SecretKey::read(&context.path(path), std::env::var(PASSWORD).ok())?),
        None => None,
    };
    let receipt = match &arguments.since {
        Some(path) => Some(read_receipt(&context.path(path))?),
        None => None,
    };
    let store = context.store()?;
    let (id, files) = what(arguments, &store, context)?;
    let wish = Wish {
        wanted: &arguments.wanted,
        requirements: &arguments.requirements,
        constraints: &arguments.constraints,
        prereleases: arguments.pre,
    };
    let scope = Scope::snapshot(&store, &id)?;
    let sources = Sources { store: &store, policy: &policy, scope: &scope, base_url: &arguments.base_url };
    let closure = match sources.closure(&wish, &profiles, context)? {
        Ok(closure) => closure,
        Err(unsatisfiable) => return unsatisfiable.tell(context),
    };
    let locks = read_locks(arguments, closure.as_ref(), context)?;
    let mut listed = Vec::new();
    let mut wheels = Vec::new();
    for file in files {
        if closure.as_ref().is_some_and(|closure| !closure.holds(&file)) {
            continue;
        }
        let Some(packed) = pack(&file, &store, &policy, &profiles)? else { continue };
        if receipt.as_ref().is_none_or(|receipt| !receipt.files.contains(&file.sha256)) {
            wheels.push(packed);
        }
        listed.push(file);
    }
    if let Some(missing) = closure.as_ref().and_then(|closure| closure.beyond(&listed)) {
        let text =
            format!("{missing} is needed, and the store has not got it whole: run jetwheel verify --repair");
        return Err(anyhow::Error::msg(text));
    }
    let advisories = policy.advisories().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    let texts = snapshot::policy_files(context)?;
    let manifest = Manifest {
        format: 1,
        site: store.site()?,
        snapshot: id,
        created: jiff::Timestamp::now().to_string(),
        devices: profiles.iter().map(|device| device.id.clone()).collect(),
        base: receipt.map(|receipt| bundle::Base { site: receipt.site, snapshot: receipt.snapshot }),
        wheels,
        files: listed,
        policy: texts.into_iter().map(|PolicyFile { name, text }| Text { name, text }).collect(),
        advisories,
        locks,
    };
    let output = context.path(arguments.output.as_deref().unwrap_or("bundle.jwb".as_ref()));
    let (count, mut number) = (manifest.wheels.len(), 0_usize);
    let console = &mut context.console;
    let mut progress = |file: &str| {
        number = number.saturating_add(1);
        // Nobody may be there to read it.
        let _unheard = console.say(format_args!("[{number}/{count}] {file}"));
    };
    let split = arguments.split.map(|size| size.0);
    let exported = bundle::export(&store, &manifest, &output, key.as_ref(), split, &mut progress)?;
    let report = Report {
        exported,
        site: manifest.site,
        snapshot: manifest.snapshot,
        devices: manifest.devices,
        listed: manifest.files.len(),
        packed: count,
        bytes: manifest.wheels.iter().map(|wheel| wheel.size).sum(),
    };
    print(&report, context)?;
    Ok(Answer::Yes)
}

fn print(report: &Report, context: &mut Context) -> anyhow::Result<()> {
    if context.format == Format::Json {
        context.console.print_json(report)?;
    } else {
        context.console.print(format_args!(
            "snapshot {}: {} for {}, {} of them in the bundle ({})\n",
            report.snapshot,
            counted(report.listed, "wheel"),
            report.devices.join(", "),
            report.packed,
            Size(report.bytes)
        ))?;
        for file in report.exported.files.iter().chain(&report.exported.signature) {
            context.console.print(format_args!("{}\n", file.display()))?;
        }
    }
    Ok(())
}

/// The lock files that go with the wheels: those given, and those made from the requirements.
fn read_locks(
    arguments: &Arguments,
    closure: Option<&Closure>,
    context: &Context,
) -> anyhow::Result<Vec<Text>> {
    let mut locks: Vec<Text> = closure.map(|closure| closure.locks.clone()).unwrap_or_default();
    for path in &arguments.locks {
        let path = context.path(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if locks.iter().any(|lock| lock.name == name) {
            return Err(Usage(format!("--lock: {}: a second lock file of this name", path.display())).into());
        }
        locks.push(Text { name, text: read_text(&path).map_err(|error| Usage(error.to_string()))? });
    }
    Ok(locks)
}

/// The snapshot that is exported, and its files.
fn what(
    arguments: &Arguments,
    store: &Store,
    context: &mut Context,
) -> anyhow::Result<(SnapshotId, Vec<SnapshotFile>)> {
    let id = if let Some(selector) = &arguments.snapshot {
        snapshot::find(store, selector)?
    } else {
        // Where the newest one says the same already it is taken; an import's lists less than what is held.
        let new = snapshot::new("export", context)?;
        let newest = store.take_snapshot(&new)?.or_else(|| store.snapshots().pop().map(|head| head.id));
        newest.ok_or_else(|| Usage("the store holds nothing to export".to_owned()))?
    };
    let files = store.snapshot(&id)?.files;
    Ok((id, files))
}

/// A file as it is packed; none where no device's index lists it.
fn pack(
    file: &SnapshotFile,
    store: &Store,
    policy: &Policy,
    devices: &[&DeviceProfile],
) -> anyhow::Result<Option<Packed>> {
    let row = store.row_named(&file.sha256, &file.file)?;
    let Some(row) = row.filter(|row| row.held && row.facts.metadata_sha256.is_some()) else {
        return Ok(None);
    };
    let listed =
        |device: &&DeviceProfile| policy.lists(&file.project, judge(&row.facts, device, policy).verdict);
    Ok(devices.iter().any(listed).then(|| Packed {
        project: file.project.clone(),
        file: file.file.clone(),
        sha256: file.sha256,
        size: file.size,
        facts: row.facts,
        provenance: row.provenance,
    }))
}

fn read_receipt(path: &std::path::Path) -> anyhow::Result<Receipt> {
    let wrong = |error: &dyn std::fmt::Display| Usage(format!("{}: {error}", path.display()));
    let file = fs_err::File::open(path).map_err(|error| Usage(error.to_string()))?;
    let receipt: Receipt =
        serde_json::from_reader(std::io::BufReader::new(file)).map_err(|error| wrong(&error))?;
    if receipt.format != 1 {
        return Err(wrong(&format_args!("is a receipt of format {}, expected 1", receipt.format)).into());
    }
    Ok(receipt)
}
