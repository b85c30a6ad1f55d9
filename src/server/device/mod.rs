//! What a device runs and sends back: the set-up script, the GPU check, and the reports that the check makes.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, header};

use super::in_force::InForce;
use super::refusal::Refusal;
use super::reply::Reply;
use super::request_body;
use super::state::State;
use super::view::View;
use crate::policy::{DeviceProfile, Policy, Version};
use crate::store::{DeviceReport, ReportBody};

/// The largest report that is taken, in bytes; one of `check.py` has some 2 kB.
const LARGEST_REPORT: usize = 256 << 10;

/// Sets a device up, in POSIX sh.
const SETUP: &str = include_str!("setup.sh");
/// Checks a device's GPU, in Python.
const CHECK: &str = include_str!("check.py");

/// `GET /{device}/setup.sh`. `base` is how the client reached the mirror, such as `https://mirror:8080/prefix`. What it writes
/// is the index below the address that it came from, that of a snapshot or a channel included.
pub(super) fn setup(in_force: &InForce, view: &View, base: &str) -> Result<Reply, Refusal> {
    let device = in_force.device(&view.device)?;
    let base = plain(base)?;
    let host = base.split_once("://").map_or(base, |(_, host)| host);
    let host = host.split('/').next().unwrap_or(host);
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let index = format!("{base}/{}/simple/", view.segment(plain(&device.id)?));
    let script = SETUP
        .replace("@DEVICE@", plain(&device.id)?)
        .replace("@INDEX@", &index)
        .replace("@HOST@", name)
        .replace("@SOC_CASES@\n", &soc_cases())
        .replace("@JETPACK_CASES@\n", &jetpack_cases(&in_force.policy));
    Ok(script_reply("text/x-shellscript; charset=utf-8", script))
}

/// `GET /{device}/check.py`. Its report goes to the device alone: it is of wheels, whatever snapshot they came from.
pub(super) fn check(in_force: &InForce, view: &View, base: &str) -> Result<Reply, Refusal> {
    let device = in_force.device(&view.device)?;
    let script = CHECK
        .replace("@DEVICE@", plain(&device.id)?)
        .replace("@REPORTS@", &format!("{}/{}/reports", plain(base)?, device.id));
    Ok(script_reply("text/x-python; charset=utf-8", script))
}

/// `POST /{device}/reports`: keeps what `check.py` found; the answer says what follows from it.
pub(super) async fn report(
    state: &Arc<State>,
    in_force: &InForce,
    device: &str,
    body: request_body::Received,
) -> Result<Reply, Refusal> {
    let id = in_force.device(device)?.id.clone();
    let body = request_body::read(body, LARGEST_REPORT).await?;
    let body: ReportBody = serde_json::from_slice(&body)
        .map_err(|error| Refusal::Malformed(format!("the report is not what check.py sends: {error}")))?;
    if body.device != id {
        return Err(Refusal::Malformed(format!("the report is of {:?}, the address of {id}", body.device)));
    }
    let answer = if body.passed {
        format!(
            "thank you: {id} passed on {}\n",
            if body.gpu.is_some() { "its GPU" } else { "its CPU alone" }
        )
    } else {
        suggestion(&body)
    };
    state.blocking(move |state| Ok(state.store.put_report(&DeviceReport::now(body))?)).await?;
    Ok(Reply::text(StatusCode::CREATED, Bytes::from(answer)))
}

/// What an admin may want after a report that failed.
fn suggestion(body: &ReportBody) -> String {
    match body.advisory() {
        Some((file, text)) => format!(
            "kept: checks failed. If others see the same, the policy folder's advisories/{file} may say so \
             (action = \"refuse\" hides the wheel):\n\n{text}"
        ),
        None => "kept: checks failed\n".to_owned(),
    }
}

/// A text that stands between single quotes in sh and between double quotes in Python: letters, digits, and what URLs
/// and device ids need beyond them.
fn plain(text: &str) -> Result<&str, Refusal> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]%,+".contains(&byte);
    if text.bytes().all(harmless) {
        return Ok(text);
    }
    Err(Refusal::Malformed(
        "the address of this mirror, as the request has it, cannot stand in a script".to_owned(),
    ))
}

fn script_reply(content_type: &'static str, script: String) -> Reply {
    let mut reply = Reply::bytes(content_type, Bytes::from(script));
    reply.set(header::CACHE_CONTROL, "no-cache");
    reply
}

/// Shell patterns of device-tree entries, each with the name of its chip in profile ids.
fn soc_cases() -> String {
    let mut cases = String::new();
    for (name, compatible) in Policy::device_tree_entries() {
        let patterns = compatible.iter().filter(|entry| plain(entry).is_ok());
        let patterns: Vec<String> = patterns.map(|entry| format!("'{entry}'")).collect();
        let _infallible = writeln!(cases, "                {}) echo {name} ;;", patterns.join(" | "));
    }
    cases
}

/// Shell patterns of L4T releases, each with its JetPack; an unknown release falls to the newest of its family.
fn jetpack_cases(policy: &Policy) -> String {
    let mut known: Vec<(Version, &str)> = policy.devices().filter_map(releases).flatten().collect();
    known.sort();
    known.dedup();
    let mut cases = String::new();
    for (l4t, jetpack) in &known {
        let _infallible = writeln!(cases, "        {l4t}) echo {jetpack} ;;");
    }
    for (index, (l4t, jetpack)) in known.iter().enumerate() {
        if known.get(index.saturating_add(1)).is_none_or(|(next, _)| next.major() != l4t.major()) {
            let _infallible = writeln!(cases, "        {}.*) echo {jetpack} ;;", l4t.major());
        }
    }
    cases
}

/// The L4T releases of a profile, with its JetPack.
fn releases(device: &DeviceProfile) -> Option<impl Iterator<Item = (Version, &str)>> {
    let jetpack = device.jetpack.as_deref().filter(|jetpack| plain(jetpack).is_ok())?;
    Some(device.l4t.iter().filter_map(move |l4t| Some((l4t.parse().ok()?, jetpack))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_texts_stand_in_scripts() {
        assert!(plain("https://mirror.example:8080/jetson").is_ok());
        for text in ["http://a'$(id)", "http://a\"", "http://a\n", "http://a b", "http://a\\", "http://a`id`"]
        {
            assert!(plain(text).is_err(), "{text}");
        }
    }

    /// Expected values from the table of JetPack releases in `policies/jetpack.toml`.
    #[test]
    fn releases_and_boards_become_shell_patterns() {
        let cases = jetpack_cases(&Policy::builtin());
        assert!(cases.contains("        36.4.3) echo 6.2 ;;\n"), "{cases}");
        assert!(cases.contains("        39.*) echo 7.2.1 ;;\n"), "{cases}");
        let cases = soc_cases();
        assert!(cases.contains("'nvidia,tegra234'"), "{cases}");
    }
}
