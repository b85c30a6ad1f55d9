//! What was pasted: which device it tells of, and which known errors it shows.

use maud::{Markup, html};
use serde::Serialize;

use super::{Desk, Sheet, layout};
use crate::policy::{
    Detection, DeviceProfile, Evidence, Recognized, Version, Word, detect_jetson_release, recognize,
};
use crate::server::refusal::Refusal;
use crate::wheel::ProjectName;

/// How many devices are named that have what is missing.
const MOST_NAMED: usize = 6;

/// What to paste, shown in the empty field.
const EXAMPLE: &str = "Model: NVIDIA Jetson AGX Orin Developer Kit - Jetpack 6.2 [L4T 36.4.3]\n…\nor\nlibcudnn.so.8: cannot open shared object file";

#[derive(Serialize)]
struct Answer {
    /// What the text tells of the machine.
    detection: Option<Detection>,
    /// The device that the advice is for: the one that was chosen, else the one that was detected.
    device: Option<String>,
    errors: Vec<Advice>,
}

#[derive(Serialize)]
struct Advice {
    #[serde(flatten)]
    error: Recognized,
    /// What is known of it on the devices here.
    here: Option<String>,
    /// The project that it is about, where one is known.
    project: Option<ProjectName>,
}

/// `GET /detect`, with `?text=`, and `POST /detect`, with a form.
pub(super) fn detect(desk: &Desk<'_>) -> Result<Sheet, Refusal> {
    let posted = desk.asked.posted.as_deref().unwrap_or(desk.asked.query.as_bytes());
    let field = |name: &str| {
        let mut fields = url::form_urlencoded::parse(posted);
        fields.find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let (text, chosen) = (field("text"), field("device"));
    let policy = &desk.in_force.policy;
    let detection = (!text.trim().is_empty()).then(|| detect_jetson_release(&text, policy));
    let detected = detection.as_ref().and_then(|detection| detection.device.clone());
    let device = Some(chosen).filter(|id| !id.is_empty()).or(detected);
    let device = device.and_then(|id| policy.device(&id));
    let device = device.filter(|device| desk.state.may_read(desk.caller, &device.id));
    let mut errors = Vec::new();
    for error in recognize(&text) {
        let here = here(desk, &error, device);
        let project = match (error.error.word, &error.found) {
            (Some(Word::Project), Some(name)) => project(name),
            _ => None,
        };
        let known = match &project {
            Some(project) => desk.state.store.count(project)?.0 > 0,
            None => false,
        };
        errors.push(Advice { error, here, project: project.filter(|_| known) });
    }
    let answer = Answer { detection, device: device.map(|device| device.id.clone()), errors };
    desk.sheet("What is my device? What is this error?", &answer, || render(desk, &answer, &text))
}

/// The project of a requirement such as `torch>=2.9`, of which the word's letters are there.
fn project(word: &str) -> Option<ProjectName> {
    word.parse().ok()
}

/// What is known here of the word that a message names.
fn here(desk: &Desk<'_>, error: &Recognized, device: Option<&DeviceProfile>) -> Option<String> {
    let word = error.found.as_deref()?;
    let (having, lacks, has): (Vec<&DeviceProfile>, String, String) = match error.error.word? {
        Word::Soname => {
            let has = |device: &&DeviceProfile| device.sonames.contains(word);
            (
                desk.devices().filter(has).collect(),
                format!("a stock system of this profile does not bring {word}{}", other_major(word, device)),
                format!(
                    "a stock system of this profile brings {word}: is its package installed, and its folder in ld.so.conf?"
                ),
            )
        }
        Word::Glibc | Word::Glibcxx => {
            let wanted: Version = word.parse().ok()?;
            let glibc = error.error.word == Some(Word::Glibc);
            let own =
                |device: &DeviceProfile| if glibc { device.glibc.clone() } else { device.glibcxx.clone() };
            let brings = device.map(|device| own(device).to_string()).unwrap_or_default();
            (
                desk.devices().filter(|device| own(device) >= wanted).collect(),
                format!("it has {brings}, and {wanted} is needed"),
                format!(
                    "it has {brings}, which is enough for {wanted}: another library, as of conda, is found first"
                ),
            )
        }
        Word::Project => return None,
    };
    let on = device.map(|device| {
        let it_has = having.iter().any(|having| having.id == device.id);
        format!("{}: {}.", device.id, if it_has { has } else { lacks })
    });
    // Those of the same chip first, which an upgrade may lead to; then the newest.
    let mut nearest: Vec<&DeviceProfile> = having.iter().rev().copied().collect();
    nearest.sort_by_key(|having| device.is_none_or(|device| device.soc != having.soc));
    let names: Vec<&str> = nearest.iter().map(|having| having.id.as_str()).take(MOST_NAMED).collect();
    let more = having.len().saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let others = if names.is_empty() {
        "No profile known here has it.".to_owned()
    } else {
        format!("Profiles that have it: {}{more}.", names.join(", "))
    };
    Some(on.map_or(others.clone(), |on| format!("{on} {others}")))
}

/// What a device has of the same library.
fn other_major(soname: &str, device: Option<&DeviceProfile>) -> String {
    let stem = soname.split(".so").next().unwrap_or(soname);
    let same = |known: &&String| known.split(".so").next() == Some(stem) && !stem.is_empty();
    match device.and_then(|device| device.sonames.iter().find(same)) {
        Some(known) => format!(", but {known}"),
        None => String::new(),
    }
}

fn render(desk: &Desk<'_>, answer: &Answer, text: &str) -> Markup {
    let root = desk.root;
    html! {
        form method="post" action={ (root) "detect" } {
            label { span { "What " code { "jetson_release -v" } " says, or an error message" }
                textarea name="text" placeholder=(EXAMPLE) maxlength="60000" spellcheck="false" { "\n" (text) } }
            p {
                label { span { "Device, where the text does not tell it" } select name="device" {
                    option value="" { "as the text says" }
                    @for device in desk.devices() {
                        option value=(device.id) selected[Some(&device.id) == answer.device.as_ref()] { (device.id) }
                    }
                } }
            }
            button type="submit" { "Find out" }
        }
        @if let Some(detection) = &answer.detection { (found(desk, answer, detection)) }
    }
}

fn found(desk: &Desk<'_>, answer: &Answer, detection: &Detection) -> Markup {
    let root = desk.root;
    html! {
        h2 #answer { "Device" }
        @match &detection.device {
            Some(id) => { p { "This is " a href={ (root) "devices/" (layout::segment(id)) } { (id) } ". Its page has the lines to copy." } },
            None => { p { "The text does not name a Jetson and its release." } }
        }
        @if !detection.evidence.is_empty() {
            ul { @for Evidence { source, found } in &detection.evidence { li { (source) ": " (found) } } }
        }
        @for note in &detection.notes { p.note { (note.text) } }
        h2 { "Known errors" }
        @if answer.errors.is_empty() { p { "None is in the text." } }
        @for Advice { error, here, project } in &answer.errors {
            h3 { (error.error.title) }
            p { code { (error.line) } }
            p { (error.error.cause) }
            @if let Some(here) = here { p { (here) } }
            p { strong { "What to do: " } (error.error.remedy) }
            @if let Some(project) = project {
                p { a href={ (root) "projects/" (project) "/" @if let Some(device) = &answer.device { "?device=" (layout::segment(device)) } } { "Files of " (project) " and why they are refused" } }
            }
            p.dim { "After: " (error.error.sources.join("; ")) }
        }
    }
}
