//! The progress of a pass: bars on a terminal, lines elsewhere.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::cli::Console;
use crate::cli::console::one_line;
use crate::sync::Progress;
use crate::wheel::Size;

/// Shows what happens until all is done.
pub(super) fn show(events: &Receiver<Progress>, console: &mut Console) -> io::Result<()> {
    if console.interactive { bars(events) } else { lines(events, console) }
}

fn lines(events: &Receiver<Progress>, console: &mut Console) -> io::Result<()> {
    for event in events {
        match event {
            Progress::Begins { file, size: Some(bytes) } => {
                console.say(format_args!("fetching {file} ({})", Size(bytes)))?;
            }
            Progress::Begins { file, size: None } => console.say(format_args!("fetching {file}"))?,
            Progress::Ends { file, outcome } => console.say(one_line(&format!("{file}: {outcome}")))?,
            Progress::Project { .. } | Progress::Reached { .. } | Progress::Inspecting { .. } => {}
        }
        console.flush()?;
    }
    Ok(())
}

fn bars(events: &Receiver<Progress>) -> io::Result<()> {
    let all = MultiProgress::new();
    let style = |template| ProgressStyle::with_template(template).map_err(io::Error::other);
    let sized = style("{bytes:>10} of {total_bytes:10} {bar:20} {bytes_per_sec:>12} {eta:>4} {msg}")?;
    let unsized_bar = style("{bytes:>10} {spinner} {bytes_per_sec:>12} {msg}")?;
    let busy = style("{spinner} {msg}")?;
    let status = all.add(ProgressBar::new_spinner().with_style(busy.clone()));
    let mut open: HashMap<String, ProgressBar> = HashMap::new();
    for event in events {
        match event {
            Progress::Project { project } => status.set_message(format!("asking for {project}")),
            Progress::Begins { file, size } => {
                let bar = match size {
                    Some(size) => ProgressBar::new(size).with_style(sized.clone()),
                    None => ProgressBar::no_length().with_style(unsized_bar.clone()),
                };
                open.insert(file.clone(), all.add(bar.with_message(file)));
            }
            Progress::Reached { file, bytes } => {
                if let Some(bar) = open.get(&file) {
                    bar.set_position(bytes);
                }
            }
            Progress::Inspecting { file } => {
                if let Some(bar) = open.get(&file) {
                    bar.set_style(busy.clone());
                    bar.set_message(format!("inspecting {file}"));
                    bar.enable_steady_tick(Duration::from_millis(100));
                }
            }
            Progress::Ends { file, outcome } => {
                if let Some(bar) = open.remove(&file) {
                    bar.finish_and_clear();
                }
                all.println(one_line(&format!("{file}: {outcome}")))?;
            }
        }
    }
    status.finish_and_clear();
    all.clear()
}
