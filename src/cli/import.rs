//! `jetwheel import`.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::policies::{BUNDLE_POLICIES, PoliciesFrom};
use super::{Answer, Context, Format};
use crate::bundle::{self, Imported, Manifest, Means, PublicKey, Text, Trust};
use crate::policy::{Advisory, Policy};
use crate::wheel::Size;
use crate::wording::counted;

/// Policy file with those advisories of a bundle that its own policy files do not hold.
const SENT_ADVISORIES: &str = "advisories/of-the-sender.toml";

/// Arguments of `jetwheel import`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Verifies the signature, then every hash, then reads every wheel anew; what the sender says of a wheel is compared and not \
believed. Only when all is right does anything change: the wheels are taken in, the channel `candidate` is moved to the \
snapshot that they make up, and the sender's policy and advisories replace those of earlier bundles. An import that was broken \
off goes on where it was. With a key, a bundle that is not signed by it is refused; the configuration's public_key is used \
where none is given here.

Examples:
  jetwheel import full.jwb --public-key site.key.pub
  jetwheel import /media/usb/delta.jwb        # or its parts, delta.jwb.001 and so on
Exit code: 0 taken; 1 refused (not signed, signed by another key, changed, older); 3 damaged, cut short, or no space.")]
pub struct Arguments {
    /// The bundle; of one in parts, its name without .001
    #[arg(value_name = "FILE")]
    bundle: PathBuf,
    /// Public key that must have signed it
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// Take a bundle that is older than one that was taken before
    #[arg(long)]
    allow_older: bool,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let key = arguments.public_key.as_deref().or(context.config.public_key.as_deref());
    let key = key.map(|path| PublicKey::read(&context.path(path))).transpose()?;
    if key.is_none() {
        context.console.say("note: no --public-key: the signature is not checked, hashes alone are")?;
    }
    let trust = Trust { key, allow_older: arguments.allow_older };
    let bundle = whole_name(&context.path(&arguments.bundle));
    let store = context.store()?;
    let ours =
        context.policies_from == PoliciesFrom::Nowhere || context.policies_from == PoliciesFrom::Bundles;
    let data = context.data.clone();
    let console = &mut context.console;
    let mut progress = |file: &str| {
        // Nobody may be there to read it.
        let _unheard = console.say(format_args!("reading {file}"));
    };
    let mut policy = |manifest: &Manifest| {
        let policy = if ours { Some(policy_of(manifest)?) } else { None };
        put_locks(&data, &manifest.locks)?;
        policy.map_or(Ok(()), |texts| put_policy(&data, &texts))
    };
    let mut means = Means { store: &store, policy: &mut policy, progress: &mut progress };
    let imported = match bundle::import(&bundle, &trust, &mut means) {
        Ok(imported) => imported,
        Err(error) if error.is_refusal() => {
            context.console.say(format_args!("error: {}: {error}", bundle.display()))?;
            return Ok(Answer::No);
        }
        Err(error) => return Err(anyhow::Error::new(error).context(bundle.display().to_string())),
    };
    if !ours && !imported.policy.is_empty() {
        context
            .console
            .say("note: this site has a policy folder of its own, so that of the bundle is not used")?;
    }
    let what = serde_json::json!({
        "site": imported.site, "snapshot": imported.snapshot, "origin": imported.origin, "taken": imported.taken,
    });
    context.audit("import", what)?;
    if context.format == Format::Json {
        context.console.print_json(&imported)?;
    } else {
        print(&imported, context)?;
    }
    Ok(Answer::Yes)
}

/// The bundle's name, where that of its first part was given.
fn whole_name(path: &Path) -> PathBuf {
    let first = path.extension().is_some_and(|extension| extension == "001");
    if first { path.with_extension("") } else { path.to_owned() }
}

fn print(imported: &Imported, context: &mut Context) -> anyhow::Result<()> {
    let console = &mut context.console;
    for file in &imported.facts_differ {
        console.say(format_args!(
            "note: {file}: the sender read something else in it; what is read here counts"
        ))?;
    }
    console.print(format_args!(
        "{} taken in ({}), {} known, for {}\n",
        counted(imported.taken, "wheel"),
        Size(imported.bytes),
        imported.known,
        imported.devices.join(", ")
    ))?;
    console.print(format_args!("signature {}\n", imported.signature))?;
    if let Some(id) = &imported.snapshot {
        console.print(format_args!(
            "candidate is {id}, a copy of {} of site {}\n",
            imported.origin, imported.site
        ))?;
    }
    Ok(())
}

/// The policy files of a bundle, which must be such as this program can read, and one more with those advisories of the sender
/// that this program has not got: the sender's may be newer.
fn policy_of(manifest: &Manifest) -> io::Result<Vec<Text>> {
    let read = |texts: &[Text]| {
        let files: Vec<_> = texts.iter().map(|text| (text.name.clone(), text.text.clone())).collect();
        Policy::with_site(&files)
            .map_err(|error| io::Error::other(format!("the bundle's policy cannot be used here: {error}")))
    };
    let mut texts = manifest.policy.clone();
    let known = read(&texts)?;
    // One that a newer program wrote in another form is left out: it must not stop what else is in the bundle.
    let sent = manifest.advisories.iter().filter_map(|value| serde_json::from_value(value.clone()).ok());
    let is_known = |id: &str| known.advisories().iter().any(|advisory| advisory.id == id);
    let advisory: Vec<Advisory> = sent.filter(|sent: &Advisory| !is_known(&sent.id)).collect();
    if !advisory.is_empty() && texts.iter().all(|text| text.name != SENT_ADVISORIES) {
        let text = advisory.iter().map(as_toml).collect::<Result<String, _>>()?;
        texts.push(Text { name: SENT_ADVISORIES.to_owned(), text });
        read(&texts)?;
    }
    Ok(texts)
}

/// An advisory as a policy file has it. Its values are texts and lists of texts, which look in TOML as they do in JSON.
fn as_toml(advisory: &Advisory) -> io::Result<String> {
    let mut text = "[[advisory]]\n".to_owned();
    for (key, value) in serde_json::to_value(advisory)?.as_object().into_iter().flatten() {
        text += &[key, " = ", &value.to_string(), "\n"].concat();
    }
    Ok(text)
}

/// Puts a bundle's policy in the place of that of the bundle before, in one step.
fn put_policy(data: &Path, texts: &[Text]) -> io::Result<()> {
    let (folder, new) = (data.join(BUNDLE_POLICIES), data.join("policies.new"));
    if texts.is_empty() && !folder.is_dir() {
        return Ok(());
    }
    if new.exists() {
        fs::remove_dir_all(&new)?;
    }
    fs::create_dir_all(new.join("advisories"))?;
    for Text { name, text } in texts {
        write_synced(&new.join(name), text)?;
    }
    if folder.exists() {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        renameat_with(CWD, &new, CWD, &folder, RenameFlags::EXCHANGE)?;
        fs::remove_dir_all(&new)?;
    } else {
        fs::rename(&new, &folder)?;
    }
    fs::File::open(data)?.sync_all()
}

fn put_locks(data: &Path, texts: &[Text]) -> io::Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    let folder = data.join("locks");
    fs::create_dir_all(&folder)?;
    for Text { name, text } in texts {
        let (temporary, path) = (folder.join(format!(".{name}")), folder.join(name));
        write_synced(&temporary, text)?;
        fs::rename(&temporary, &path)?;
    }
    fs::File::open(&folder)?.sync_all()
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()
}
