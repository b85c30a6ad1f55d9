//! A sync that a mirror elsewhere does: it is asked to start one, and then asked how far it is.

use std::thread;
use std::time::Duration;

use super::Arguments;
use super::asked::read_requirements;
use crate::cli::remote::{Remote, segment};
use crate::cli::{Answer, Context, Format, Usage};
use crate::server::SyncOrder;
use crate::server::api::jobs::Told;
use crate::wheel::Size;

/// The shortest and the longest pause between two questions.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How many questions in a row may fail: a mirror that is started anew is back in less, though the job is then unknown.
const MOST_FAILURES: u32 = 10;

/// How many wheels are fetched at the same time where nobody says so.
pub(super) const JOBS: u32 = 4;

/// Has the mirror do it, shows its progress, and answers as a sync here would.
pub(super) fn run(remote: &Remote, arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let order = order(arguments, context)?;
    let mut job: Told = remote.post("sync", &order)?;
    context
        .console
        .say(format_args!("the mirror syncs as job {}; interrupting this does not end it", job.id))?;
    let (mut pause, mut failures, mut from) = (SHORTEST_PAUSE, 0, 0);
    let end = loop {
        for line in &job.lines {
            context.console.say(line)?;
        }
        context.console.flush()?;
        pause = if job.next == from { pause.saturating_mul(2).min(LONGEST_PAUSE) } else { SHORTEST_PAUSE };
        from = job.next;
        if let Some(end) = job.result {
            break end;
        }
        job.lines.clear();
        thread::sleep(pause);
        job = match remote.get(&format!("jobs/{}", segment(&job.id)), &[("from", &from.to_string())]) {
            Ok(job) => job,
            Err(problem) if problem.status == 0 && failures < MOST_FAILURES => {
                failures = failures.saturating_add(1);
                continue;
            }
            Err(problem) => return Err(problem.into()),
        };
        failures = 0;
    };
    match (context.format, &end.report, &end.text) {
        (Format::Json, Some(report), _) => context.console.print_json(report)?,
        (Format::Text, _, Some(text)) => context.console.print(text)?,
        _ => {}
    }
    let error = end.error.unwrap_or_else(|| "the sync failed".to_owned());
    match end.code {
        0 => Ok(Answer::Yes),
        1 => Ok(Answer::No),
        2 => Err(Usage(error).into()),
        _ => Err(anyhow::anyhow!(error)),
    }
}

fn order(arguments: &Arguments, context: &mut Context) -> anyhow::Result<SyncOrder> {
    if arguments.index.is_some() || arguments.jobs != JOBS || arguments.queue {
        let text = "--index, --jobs and --queue are the mirror's own matter: they do not go over --server";
        return Err(Usage(text.to_owned()).into());
    }
    if arguments.devices.is_empty() {
        let hint = "name a device with --device, such as orin-jp6.2; GET /api/v1/devices lists them";
        return Err(Usage(hint.to_owned()).into());
    }
    let requirements = read_requirements(arguments, context)?;
    Ok(SyncOrder {
        devices: arguments.devices.clone(),
        requirements: requirements.iter().map(ToString::to_string).collect(),
        upstreams: arguments.upstreams.clone(),
        general: arguments.general.clone(),
        no_deps: arguments.no_deps,
        all: arguments.all,
        keep: arguments.keep.try_into().ok(),
        tries: arguments.tries.and_then(|tries| tries.try_into().ok()),
        max_size: arguments.max_size.map(|size| size.0),
        accept_losses: arguments.accept_losses,
        accept_changed: arguments.accept_changed.clone(),
        dry_run: arguments.dry_run,
        columns: u16::try_from(context.console.width).ok(),
    })
}

impl Arguments {
    /// The command line of an order.
    pub(in crate::cli) fn of(order: SyncOrder) -> Self {
        Self {
            requirements: order.requirements,
            devices: order.devices,
            files: Vec::new(),
            upstreams: order.upstreams,
            general: order.general,
            no_deps: order.no_deps,
            all: order.all,
            keep: order.keep.map_or(1, std::num::NonZeroU32::get),
            tries: order.tries.map(std::num::NonZeroU32::get),
            max_size: order.max_size.map(Size),
            jobs: JOBS,
            index: None,
            accept_losses: order.accept_losses,
            accept_changed: order.accept_changed,
            dry_run: order.dry_run,
            queue: false,
        }
    }
}
