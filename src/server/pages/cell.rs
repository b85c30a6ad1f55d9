//! A verdict as people see it: by a colour, a sign and a word, with reasons and remedies.

use maud::{Markup, html};
use serde::Serialize;

use crate::policy::{Code, Judgement, Note, Reason, Verdict, code_name};

/// The verdict on a file for one device.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cell {
    /// The device.
    pub(super) device: String,
    /// The verdict.
    pub(super) verdict: Verdict,
    /// Whether the device's index lists it.
    pub(super) listed: bool,
    /// Why not.
    pub(super) reasons: Vec<Reason>,
    /// What to know all the same.
    pub(super) notes: Vec<Note>,
    /// A file of the project that the device gets instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instead: Option<String>,
}

impl Cell {
    pub(super) fn new(device: &str, judgement: Judgement, listed: bool, instead: Option<&str>) -> Self {
        let Judgement { verdict, reasons, notes } = judgement;
        let instead = instead.filter(|_| !listed).map(str::to_owned);
        Self { device: device.to_owned(), verdict, listed, reasons, notes, instead }
    }

    /// Class, sign and word.
    fn looks(&self) -> (&'static str, &'static str, &'static str) {
        match self.verdict {
            Verdict::Admit if self.notes.is_empty() => ("good", "✓", "runs"),
            Verdict::Admit => ("fair", "✓", "runs, see the notes"),
            Verdict::AdmitJit => ("fair", "◐", "runs, compiles first"),
            Verdict::Partial if self.listed => ("fair", "◐", "runs in part"),
            Verdict::Partial => ("bad", "✗", "runs in part, not listed"),
            Verdict::Refuse => ("bad", "✗", "refused"),
        }
    }

    /// The code of the first reason.
    pub(super) fn code(&self) -> Option<String> {
        self.reasons.first().map(|reason| code_name(&reason.code))
    }

    /// In a few words.
    pub(super) fn short(&self) -> Markup {
        let (class, sign, word) = self.looks();
        html! {
            span class={ "cell " (class) } { span aria-hidden="true" { (sign) " " } (word) }
            @if let Some(code) = self.code() { span.code { (code) } }
        }
    }

    /// Whether there is more to say than that it runs.
    pub(super) fn has_more(&self) -> bool {
        !self.reasons.is_empty() || !self.notes.is_empty()
    }

    /// All reasons with their remedies, and all notes.
    pub(super) fn long(&self) -> Markup {
        html! {
            ul.reasons {
                @for Reason { code, member, text, remedy, .. } in &self.reasons {
                    li {
                        code { (code_name(code)) } ": "
                        @if let Some(member) = member.as_ref().filter(|member| names(*code) && !text.contains(member.as_str())) { (member) ": " }
                        (text)
                        @if !remedy.is_empty() { span.remedy { strong { "What to do: " } (remedy) } }
                    }
                }
                @for Note { code, text } in &self.notes { li { "Note, " code { (code_name(code)) } ": " (text) } }
                @if let Some(file) = &self.instead { li { strong { "Runs instead: " } (file) } }
            }
        }
    }
}

/// Whether a reason is of one member.
fn names(code: Code) -> bool {
    !matches!(code, Code::PythonTag | Code::PlatformTag | Code::RequiresPython)
}
