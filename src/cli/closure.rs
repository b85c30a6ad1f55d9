//! What requirements need, from the files of a store: the wheels of an export, and its lock files.

use std::collections::HashSet;
use std::sync::Arc;

use super::resolve::Wish;
use super::{Answer, Context, Format, Usage};
use crate::bundle::Text;
use crate::digest::Sha256;
use crate::policy::{DeviceProfile, Policy};
use crate::resolve::{Explanation, Failure, Target, pylock};
use crate::server::in_force::InForce;
use crate::server::verdicts::{Terms, Verdicts};
use crate::server::view::Scope;
use crate::store::{SnapshotFile, Store};

/// What the requirements need: the files, and a lock for each device.
pub(super) struct Closure {
    files: HashSet<(Sha256, String)>,
    /// A lock for each device.
    pub(super) locks: Vec<Text>,
}

impl Closure {
    /// Whether a file belongs to it.
    pub(super) fn holds(&self, file: &SnapshotFile) -> bool {
        self.files.contains(&(file.sha256, file.file.clone()))
    }

    /// A file of it that is not among those.
    pub(super) fn beyond(&self, listed: &[SnapshotFile]) -> Option<&str> {
        let listed: HashSet<(Sha256, &str)> =
            listed.iter().map(|file| (file.sha256, file.file.as_str())).collect();
        let mut files = self.files.iter();
        files
            .find(|(sha256, file)| !listed.contains(&(*sha256, file.as_str())))
            .map(|(_, file)| file.as_str())
    }
}

/// The requirements cannot be met on a device.
pub(super) struct Unsatisfiable {
    device: String,
    explanation: Box<Explanation>,
}

impl Unsatisfiable {
    /// Says so.
    pub(super) fn tell(&self, context: &mut Context) -> anyhow::Result<Answer> {
        let (device, explanation) = (&self.device, &self.explanation);
        if context.format == Format::Json {
            context.console.print_json(&serde_json::json!({"device": device, "error": **explanation}))?;
        } else {
            context.console.print(format_args!("{device}: {}\n", explanation.text))?;
        }
        Ok(Answer::No)
    }
}

/// What a closure is made from.
pub(super) struct Sources<'a> {
    pub(super) store: &'a Arc<Store>,
    pub(super) policy: &'a Policy,
    /// The files that may be in it.
    pub(super) scope: &'a Scope,
    /// Where the devices reach their mirror.
    pub(super) base_url: &'a str,
}

impl Sources<'_> {
    /// Resolves the requirements for each device; nothing where there are none.
    pub(super) fn closure(
        &self,
        wish: &Wish<'_>,
        devices: &[&DeviceProfile],
        context: &mut Context,
    ) -> anyhow::Result<Result<Option<Closure>, Unsatisfiable>> {
        if wish.wanted.is_empty() && wish.requirements.is_empty() {
            return Ok(Ok(None));
        }
        let verdicts = Verdicts::new(Arc::clone(self.store));
        let in_force = InForce::first(self.policy.clone());
        let base_url = self.base_url.trim_end_matches('/');
        let mut closure = Closure { files: HashSet::new(), locks: Vec::new() };
        for device in devices {
            let request = wish.read(device, context)?;
            let terms = Terms { device, in_force: &in_force, scope: self.scope };
            let device_url = format!("{base_url}/{}", device.id);
            let resolution = match verdicts.resolve(&request, terms, &device_url) {
                Ok(resolution) => resolution,
                Err(Failure::Unsatisfiable(explanation)) => {
                    return Ok(Err(Unsatisfiable { device: device.id.clone(), explanation }));
                }
                Err(Failure::Request(error)) => {
                    let error = anyhow::Error::new(error).context(device.id.clone());
                    return Err(Usage(format!("{error:#}")).into());
                }
                Err(error) => return Err(anyhow::Error::new(error).context(device.id.clone())),
            };
            for note in &resolution.notes {
                context.console.say(format_args!("note: {}: {note}", device.id))?;
            }
            let index_url = format!("{device_url}/simple/");
            // PEP 751 allows one word between the dots.
            let name = format!("pylock.{}.toml", device.id.replace('.', "_"));
            closure.locks.push(Text { name, text: pylock(&resolution, &Target::of(device), &index_url) });
            for pinned in resolution.packages {
                let candidate = pinned.candidate;
                closure.files.extend(candidate.sha256.map(|sha256| (sha256, candidate.file)));
            }
        }
        Ok(Ok(Some(closure)))
    }
}
