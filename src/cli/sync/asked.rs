//! What a command line of `sync` asks for, read and checked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use super::{Arguments, runtime};
use crate::cli::input::read_text;
use crate::cli::upstreams::{named_upstream, network_options, own_urls, read_index};
use crate::cli::{Context, Usage, devices};
use crate::policy::{DeviceProfile, Policy};
use crate::sync::{self, Requirement};
use crate::upstream::{Client, Credentials, Index, Source, Upstream};
use crate::wording::with_causes;

/// What a command line asks for, read and checked.
pub(super) struct Asked {
    pub(super) policy: Arc<Policy>,
    pub(super) devices: Vec<DeviceProfile>,
    pub(super) requirements: Vec<Requirement>,
    pub(super) sources: Vec<(Source, Vec<String>)>,
    pub(super) client: Client,
}

impl Asked {
    /// Reads what the command line names; asks the upstreams only for `--all`.
    pub(super) fn of(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Self> {
        let policy = Arc::new(context.policy()?);
        let devices = choose_devices(&arguments.devices, &policy)?;
        let mut requirements = read_requirements(arguments, context)?;
        if requirements.is_empty() && !arguments.all {
            return Err(Usage(
                "nothing is asked for: name requirements, a file with -r, or --all".to_owned(),
            )
            .into());
        }
        let index = read_index(arguments.index.as_deref().map(|dir| context.path(dir)), context)?;
        let mut options = network_options(context)?;
        let upstreams = choose_upstreams(arguments, &index, &devices, &mut options.credentials)?;
        options.own = Some(own_urls(upstreams.iter().map(|(upstream, _)| &upstream.url)));
        let client = Client::new(options).map_err(|error| Usage(with_causes(&error)))?;
        let cache = context.data.join("cache").join("pages");
        let sources: Vec<(Source, Vec<String>)> = upstreams
            .into_iter()
            .map(|(upstream, devices)| (Source::new(upstream, client.clone(), Some(cache.clone())), devices))
            .collect();
        // Before anything is asked of an upstream: it may be in use.
        context.store()?;
        if arguments.all {
            requirements.extend(all_projects(&sources)?);
        }
        Ok(Self { policy, devices, requirements, sources, client })
    }
}

fn choose_devices(ids: &[String], policy: &Policy) -> anyhow::Result<Vec<DeviceProfile>> {
    if ids.is_empty() {
        let hint = "name a device with --device, such as orin-jp6.2; `jetwheel devices` lists them";
        return Err(Usage(hint.to_owned()).into());
    }
    let mut chosen: Vec<DeviceProfile> = Vec::new();
    for id in ids {
        let device = devices::find(policy, id)?;
        if !chosen.iter().any(|known| known.id == device.id) {
            chosen.push(device.clone());
        }
    }
    Ok(chosen)
}

/// The requirements of the command line and of the files that it names.
pub(super) fn read_requirements(
    arguments: &Arguments,
    context: &mut Context,
) -> anyhow::Result<Vec<Requirement>> {
    let wrong = |error: sync::RequirementError| Usage(with_causes(&error));
    let mut requirements = Vec::new();
    for text in &arguments.requirements {
        requirements.push(Requirement::parse(text).map_err(wrong)?);
    }
    for file in &arguments.files {
        let read = sync::read_requirements(&context.path(file), &read_text).map_err(wrong)?;
        for note in &read.notes {
            context.console.say(format_args!("note: {note}"))?;
        }
        requirements.extend(read.requirements);
    }
    Ok(requirements)
}

/// The upstreams of the command line, or all that serve one of the devices; each with the devices that it serves.
///
/// An upstream that is named serves all devices, whatever its entry says.
fn choose_upstreams(
    arguments: &Arguments,
    index: &Index,
    devices: &[DeviceProfile],
    credentials: &mut Credentials,
) -> anyhow::Result<Vec<(Upstream, Vec<String>)>> {
    let mut chosen: Vec<(Upstream, Vec<String>)> = Vec::new();
    let all = || devices.iter().map(|device| device.id.clone()).collect::<Vec<_>>();
    let named = arguments.upstreams.iter().map(|name| (name, false));
    let named: Vec<(&String, bool)> =
        named.chain(arguments.general.iter().map(|name| (name, true))).collect();
    for (name, general) in &named {
        let mut upstream = named_upstream(name, index)?;
        upstream.general |= general;
        chosen.push((upstream, all()));
    }
    if named.is_empty() {
        for upstream in index.upstreams() {
            let serves = devices.iter().filter(|device| upstream.serves(&device.id));
            let serves: Vec<String> = serves.map(|device| device.id.clone()).collect();
            if !serves.is_empty() {
                chosen.push((upstream.clone(), serves));
            }
        }
    }
    for (upstream, _) in &mut chosen {
        upstream.url = credentials.take_from(&upstream.url);
    }
    Ok(chosen)
}

/// A requirement for every project that the upstreams list.
fn all_projects(sources: &[(Source, Vec<String>)]) -> anyhow::Result<Vec<Requirement>> {
    let runtime = runtime()?;
    let mut names = BTreeSet::new();
    let listing = async {
        for (source, _) in sources {
            names.extend(source.projects().await?);
        }
        Ok::<_, crate::upstream::Error>(())
    };
    thread::scope(|scope| scope.spawn(|| runtime.block_on(listing)).join())
        .map_err(|_| anyhow::anyhow!("the list of projects ended by a panic"))??;
    names.iter().map(|name| Ok(Requirement::parse(name.as_str())?)).collect()
}
