//! `jetwheel devices`: the device profiles.

use std::fmt::Write as _;

use super::{Answer, Context, Format, Usage};
use crate::policy::{DeviceProfile, Pattern, Policy};

/// Arguments of `jetwheel devices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel devices
  jetwheel devices 'orin-jp6*'
  jetwheel devices orin-jp6.2
  jetwheel --policies site/ devices robots --format json")]
pub struct Arguments {
    /// Profile to show in full; with a * in it, which stands for any letters, a pattern of those to list
    #[arg(value_name = "ID")]
    id: Option<String>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let policy = context.policy()?;
    match &arguments.id {
        Some(id) if !id.contains('*') => show(id, &policy, context),
        pattern => list(pattern.as_deref().unwrap_or("*"), &policy, context),
    }
}

/// The profile of that id; if there is none, an error that names the nearest.
pub(super) fn find<'p>(policy: &'p Policy, id: &str) -> Result<&'p DeviceProfile, Usage> {
    policy.device(id).ok_or_else(|| {
        let nearest = policy.nearest(id).join(", ");
        Usage(format!("there is no device {id:?}; the nearest known ones are {nearest}"))
    })
}

fn list(pattern: &str, policy: &Policy, context: &mut Context) -> anyhow::Result<Answer> {
    let wanted = Pattern::new(pattern);
    let devices: Vec<_> = policy.devices().filter(|device| wanted.matches(&device.id)).collect();
    let answer = if devices.is_empty() { Answer::No } else { Answer::Yes };
    if context.format == Format::Json {
        context.console.print_json(&devices)?;
        return Ok(answer);
    }
    if devices.is_empty() {
        context.console.say(format_args!("no device is called {pattern}; `jetwheel devices` lists all"))?;
        return Ok(answer);
    }
    let heads = ["DEVICE", "SOC", "SM", "CUDA", "PTX", "STACK", "GLIBC", "PYTHON", "L4T"].map(str::to_owned);
    let rows: Vec<[String; 9]> = std::iter::once(heads).chain(devices.into_iter().map(row)).collect();
    let widths: Vec<usize> =
        (0..9).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut table = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:width$}  ")?;
        }
        writeln!(table, "{}", line.trim_end())?;
    }
    context.console.print(table)?;
    Ok(answer)
}

fn row(device: &DeviceProfile) -> [String; 9] {
    let l4t = match device.l4t.as_slice() {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [first, .., last] => format!("{first} to {last}"),
    };
    let compat = device.cuda_compat.as_ref().map(|cuda| format!(" ({cuda})")).unwrap_or_default();
    [
        device.id.clone(),
        device.soc.clone(),
        device.compute_capability.to_string(),
        format!("{}{compat}", device.driver_cuda),
        device.ptx_isa.to_string(),
        stack(device),
        device.glibc.to_string(),
        device.python.to_string(),
        l4t,
    ]
}

/// The name of the stack, as files and JSON write it.
fn stack(device: &DeviceProfile) -> String {
    serde_json::to_value(device.stack)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn show(id: &str, policy: &Policy, context: &mut Context) -> anyhow::Result<Answer> {
    let device = find(policy, id)?;
    if context.format == Format::Json {
        context.console.print_json(device)?;
        return Ok(Answer::Yes);
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let compat = device.cuda_compat.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let l4t = if device.l4t.is_empty() { "-".to_owned() } else { device.l4t.join(", ") };
    let mut fields = vec![
        ("device", device.id.clone()),
        ("soc", device.soc.clone()),
        ("compute capability", device.compute_capability.to_string()),
        ("gpu", if device.integrated { "integrated" } else { "discrete" }.to_owned()),
        ("jetpack", text(&device.jetpack)),
        ("l4t", l4t),
        ("stack", stack(device)),
        ("driver cuda", device.driver_cuda.to_string()),
        ("cuda compat", compat),
        ("ptx isa", device.ptx_isa.to_string()),
        ("os", text(&device.os)),
        ("glibc", device.glibc.to_string()),
        ("glibcxx", device.glibcxx.to_string()),
        ("python", device.python.to_string()),
        ("kernel", text(&device.kernel_release)),
        ("cudnn", text(&device.cudnn)),
        ("tensorrt", text(&device.tensorrt)),
        ("ros", text(&device.ros)),
        ("platform tags", device.platform_tags.join(" ")),
        ("sonames", device.sonames.iter().cloned().collect::<Vec<_>>().join(" ")),
    ];
    if let Some(nearest) = &device.nearest {
        fields.push(("stands for l4t", nearest.clone()));
    }
    let mut shown = String::new();
    for (name, value) in fields {
        for (index, line) in wrapped(&value, context.console.width.clamp(40, 100) - 20).iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            writeln!(shown, "{name:18}  {line}")?;
        }
    }
    context.console.print(shown)?;
    Ok(Answer::Yes)
}

/// A text in lines of at most that many columns, broken at spaces.
pub(super) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
