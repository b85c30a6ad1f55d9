//! Why a request is not answered with what it asked for: the one map to a status.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use hyper::ext::ReasonPhrase;

use super::id::RequestId;
use super::pull::{Failure, FailureKind};
use super::reply::Reply;
use crate::access::Denied;
use crate::policy::{Judgement, Reason, Verdict, code_name};
use crate::store;
use crate::wheel::{ProjectName, Size};
use crate::wording::{counted, with_causes};

/// The longest reason phrase, in bytes. pip prints it whole, in one line with the URL; some proxies cut a status line at 1 KiB.
const LONGEST_PHRASE: usize = 240;

/// The longest piece of a request that a message repeats, in characters.
const LONGEST_ECHO: usize = 80;

/// The two methods of every page.
const READ_ONLY: &str = "GET, HEAD";

/// How to present a token. pip, uv and twine answer to Basic alone.
const CHALLENGE: &str = "Basic realm=\"jetwheel\", charset=\"UTF-8\"";

/// Why a request is not answered with what it asked for. The message is for the client, the source for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// No client sends this.
    #[error("{0}")]
    Malformed(String),
    /// No route.
    #[error("there is no such page here; an index is at /DEVICE/simple/, and / lists the devices")]
    NoSuchPage,
    /// A device that no table knows.
    #[error("there is no device {device:?}{}", proposals(.nearest, "; the nearest known ones are "))]
    NoSuchDevice {
        /// What was asked for, cut.
        device: String,
        /// Known ids like it.
        nearest: Vec<String>,
    },
    /// A snapshot that is not there.
    #[error("there is no snapshot or channel {asked:?}{}", proposals(.nearest, "; the nearest known ones are "))]
    NoSuchSnapshot {
        /// What was asked for, cut.
        asked: String,
        /// Known ones like it.
        nearest: Vec<String>,
    },
    /// A channel that was never moved.
    #[error("the channel {0} names no snapshot yet; jetwheel snapshot promote ID --channel {0} does that")]
    NothingInChannel(String),
    /// A text that names no project.
    #[error("{:?} is no name of a project", cut(.0))]
    NotAProject(String),
    /// A project of which the store knows nothing.
    #[error("there is no project {project}{}", proposals(.nearest, "; the nearest known ones are "))]
    NoSuchProject {
        /// What was asked for.
        project: ProjectName,
        /// Known ones like it.
        nearest: Vec<String>,
    },
    /// No file of that digest and name.
    #[error("there is no such file here")]
    NoSuchFile,
    /// A known file whose bytes are not here.
    #[error("{file}: {why}")]
    NotHeld {
        /// Its name.
        file: String,
        /// How it comes.
        why: &'static str,
    },
    /// A wheel that does not run on the device.
    #[error("{}", .0.text)]
    NotForDevice(Box<NotForDevice>),
    /// A file that is still being fetched and inspected.
    #[error("{file} is being fetched and inspected{of}: ask again in {}", counted(*.seconds, "second"))]
    OnItsWay {
        /// Its name.
        file: String,
        /// How far it is.
        of: String,
        /// When to ask again.
        seconds: u64,
    },
    /// An upstream did not give what is not held here.
    #[error("{}", .0.text)]
    Upstream(Failure),
    /// A caller who may not.
    #[error("{0}")]
    Denied(#[from] Denied),
    /// None of the forms that there are.
    #[error(
        "this page comes as text/html, application/vnd.pypi.simple.v1+html or application/vnd.pypi.simple.v1+json"
    )]
    NotAcceptable,
    /// Another method than GET and HEAD.
    #[error("this page is read-only; uploads go to {}", .uploads.as_deref().unwrap_or("/legacy/ at the root of the mirror"))]
    ReadOnly {
        /// Where uploads go, as far as the request tells how it came.
        uploads: Option<String>,
    },
    /// Another method than POST.
    #[error("this page answers POST alone, with a body such as {{\"requirements\": [\"torch>=2.4\"]}}")]
    PostOnly,
    /// Another method than POST, where uploads go.
    #[error("uploads come here by POST, as twine upload and uv publish send them")]
    UploadsOnly,
    /// A method that a resource of the API does not take.
    #[error("this takes {0} alone")]
    Method(&'static str),
    /// A change that a page of another site asked a browser for.
    #[error("this request comes from a page of another site, which may change nothing here")]
    OtherSite,
    /// Something that is not taken: an upload, a change by the API.
    #[error("{why}")]
    NotTaken {
        /// How that is said in a status.
        status: StatusCode,
        /// Why.
        why: String,
    },
    /// An upload above the limit.
    #[error("the upload is larger than {}, the most that this mirror takes", Size(*.limit))]
    UploadTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// A body of another type.
    #[error("the body has to be application/json, and is {0:?}")]
    NotJson(String),
    /// A body above the limit.
    #[error("the body is larger than {}", Size(*.limit as u64))]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A body that did not come in time.
    #[error("the body did not come within {}", counted(*.limit_s, "second"))]
    SlowBody {
        /// The limit in seconds.
        limit_s: u64,
    },
    /// Too much is asked for at once.
    #[error("too many requests of this kind are being worked on: try again in a few seconds")]
    Busy,
    /// A client that asks more often than it may.
    #[error("too many requests from this address: try again in {}", counted(*.seconds, "second"))]
    TooMany {
        /// When to ask again.
        seconds: u64,
    },
    /// A range behind the end of the file.
    #[error("the file has {size} bytes, none of them in that range")]
    OutsideFile {
        /// Size of the file in bytes.
        size: u64,
    },
    /// The store failed.
    #[error("the store of the mirror could not be read")]
    Store(#[from] store::Error),
    /// The disk failed.
    #[error("a file of the mirror could not be read")]
    Io(#[from] std::io::Error),
    /// A defect of the mirror: a panic, or a page that could not be made.
    #[error("the mirror failed at this request")]
    Defect(String),
}

/// What is said of a wheel that does not run on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotForDevice {
    /// All reasons with their remedies, for people.
    pub(super) text: String,
    /// The first reason, in one line.
    pub(super) phrase: String,
    /// Its code; empty where there is none.
    pub(super) code: String,
}

impl NotForDevice {
    /// Says why a wheel is not served to a device.
    pub(super) fn new(file: &str, device: &str, judgement: &Judgement) -> Self {
        let Judgement { verdict, reasons, .. } = judgement;
        let how = if *verdict == Verdict::Refuse { "refused" } else { "not listed" };
        let phrase = match reasons.first() {
            Some(reason) => format!("{how} for {device}: {}: {}", code_name(&reason.code), reason.text),
            None => {
                format!("{how} for {device}: the policy does not list a wheel whose verdict is {verdict}")
            }
        };
        let mut text = format!("{file} is {how} for {device}.\n");
        for Reason { member, text: why, remedy, .. } in reasons {
            let member = member.as_ref().map(|member| format!("{member}: ")).unwrap_or_default();
            let _infallible = writeln!(text, "- {member}{why}");
            if !remedy.is_empty() {
                let _infallible = writeln!(text, "  {remedy}");
            }
        }
        if reasons.is_empty() {
            let _infallible = writeln!(text, "- the policy does not list a wheel whose verdict is {verdict}");
        }
        let code = reasons.first().map(|reason| code_name(&reason.code)).unwrap_or_default();
        Self { text, phrase, code }
    }
}

impl Refusal {
    /// The status that stands for it.
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::OtherSite
            | Self::NotForDevice(_)
            | Self::Denied(Denied::Scope { .. } | Denied::Device { .. }) => StatusCode::FORBIDDEN,
            Self::Denied(Denied::WhoAreYou(_)) => StatusCode::UNAUTHORIZED,
            Self::NoSuchPage
            | Self::NoSuchDevice { .. }
            | Self::NoSuchSnapshot { .. }
            | Self::NothingInChannel(_)
            | Self::NotAProject(_)
            | Self::NoSuchProject { .. }
            | Self::NoSuchFile
            | Self::NotHeld { .. }
            | Self::Upstream(Failure { kind: FailureKind::Gone, .. }) => StatusCode::NOT_FOUND,
            Self::ReadOnly { .. } | Self::PostOnly | Self::UploadsOnly | Self::Method(_) => {
                StatusCode::METHOD_NOT_ALLOWED
            }
            Self::NotJson(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NotTaken { status, .. } => *status,
            Self::TooLarge { .. } | Self::UploadTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::OutsideFile { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Upstream(Failure { kind: FailureKind::Lied | FailureKind::TooLarge, .. }) => {
                StatusCode::BAD_GATEWAY
            }
            Self::Store(store::Error::Full { .. }) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Store(_) | Self::Io(_) | Self::Busy | Self::OnItsWay { .. } | Self::Upstream(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Defect(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The answer: plain text, never cached, since a sync or a policy edit may change it at once.
    pub(super) fn into_reply(self) -> Reply {
        let mut text = self.to_string();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let mut reply = Reply::text(self.status(), Bytes::from(text));
        reply.set(header::CACHE_CONTROL, "no-store");
        match &self {
            Self::ReadOnly { .. } => {
                reply.set(header::ALLOW, READ_ONLY);
                reply.phrase = phrase(&self.to_string());
            }
            Self::Method(allow) => reply.set(header::ALLOW, allow),
            Self::PostOnly | Self::UploadsOnly => reply.set(header::ALLOW, "POST"),
            Self::NotTaken { why, .. } => reply.phrase = phrase(why),
            Self::UploadTooLarge { .. } => {
                reply.set(header::CONNECTION, "close");
                reply.phrase = phrase(&self.to_string());
            }
            Self::SlowBody { .. } | Self::TooLarge { .. } => reply.set(header::CONNECTION, "close"),
            Self::OutsideFile { size } => reply.set(header::CONTENT_RANGE, &format!("bytes */{size}")),
            Self::NotAcceptable => reply.set(header::VARY, "Accept"),
            Self::NotForDevice(why) => reply.phrase = phrase(&why.phrase),
            Self::OnItsWay { .. } | Self::Upstream(_) | Self::TooMany { .. } => {
                reply.phrase = phrase(self.to_string().as_str());
            }
            Self::Denied(denied) => {
                if let Denied::WhoAreYou(_) = denied {
                    reply.set(header::WWW_AUTHENTICATE, CHALLENGE);
                }
                reply.phrase = phrase(&denied.to_string());
            }
            _ => {}
        }
        if let Self::OnItsWay { seconds, .. } | Self::TooMany { seconds } = &self {
            reply.headers.insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
        } else if reply.status == StatusCode::SERVICE_UNAVAILABLE {
            reply.headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        reply
    }

    /// A word for it that programs can go by, in the API.
    pub(super) const fn kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoSuchDevice { .. } => "no-such-device",
            Self::NoSuchProject { .. } => "no-such-project",
            Self::NoSuchSnapshot { .. } | Self::NothingInChannel(_) => "no-such-snapshot",
            Self::NoSuchPage => "no-such-resource",
            Self::Denied(_) => "denied",
            _ => return None,
        })
    }

    /// Writes what the client is not told to the log.
    pub(super) fn log(&self, id: &RequestId) {
        match self {
            Self::Store(error) => {
                tracing::error!(error = with_causes(error), request_id = %id, "the store failed");
            }
            Self::Io(error) => {
                tracing::error!(error = with_causes(error), request_id = %id, "the disk failed");
            }
            Self::Defect(why) => {
                tracing::error!(error = why.as_str(), request_id = %id, "a request could not be answered");
            }
            _ => {}
        }
    }
}

/// A reason phrase of those bytes that RFC 9112 allows and every client can print: printable ASCII, in one line.
fn phrase(text: &str) -> Option<ReasonPhrase> {
    let mut phrase = String::with_capacity(LONGEST_PHRASE);
    for letter in text.chars() {
        if phrase.len() >= LONGEST_PHRASE {
            phrase.truncate(LONGEST_PHRASE.saturating_sub(3));
            phrase.push_str("...");
            break;
        }
        match letter {
            '\u{20}'..='\u{7e}' => phrase.push(letter),
            '×' => phrase.push('x'),
            letter if letter.is_whitespace() => phrase.push(' '),
            _ => phrase.push('?'),
        }
    }
    ReasonPhrase::try_from(phrase.trim().to_owned()).ok()
}

/// A text of a request, cut for a message.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(LONGEST_ECHO).collect()
}

fn proposals(names: &[String], introduction: &str) -> String {
    if names.is_empty() { String::new() } else { format!("{introduction}{}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_phrase_is_one_short_line_of_ascii() {
        let phrase = phrase("sm_80 ≠ sm_87\r\nX-Evil: 1\0\u{7f}").unwrap();
        assert_eq!(phrase.as_bytes(), b"sm_80 ? sm_87  X-Evil: 1??");
        assert_eq!(super::phrase(&"a".repeat(999)).unwrap().as_bytes().len(), LONGEST_PHRASE);
    }
}
