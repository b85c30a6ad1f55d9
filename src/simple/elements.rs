//! The few elements of an HTML page that matter, with the few attributes that do: memory is what these take, not what a page has.

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};

const ELEMENTS: [&str; 4] = ["a", "base", "meta", "title"];

const ATTRIBUTES: [&str; 7] = [
    "href",
    "name",
    "content",
    "data-core-metadata",
    "data-dist-info-metadata",
    "data-requires-python",
    "data-yanked",
];

/// The longest value of an attribute that is kept, in bytes: four times the longest URL. A longer one is as if it were empty.
const LONGEST_VALUE: usize = 32 << 10;

/// The most bytes of a text that are kept, which is a caption or of no interest.
const LONGEST_TEXT: usize = 4 << 10;

/// A piece of a page.
#[derive(Debug)]
pub(super) enum Piece {
    Start(Element),
    End(&'static str),
    Text(String),
}

/// The start of an element.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: &'static str,
    attributes: Vec<(&'static str, String)>,
}

impl Element {
    /// The value of an attribute, which is empty where it has none.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    }
}

/// The pieces of a page, in order.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = Piece> {
    let mut open: Option<Element> = None;
    // Whether the last attribute is one whose value is to be kept.
    let mut kept = false;
    let emitter = CallbackEmitter::new(move |event: CallbackEvent<'_>, _: Span<()>| match event {
        CallbackEvent::OpenStartTag { name } => {
            open = known(&ELEMENTS, name).map(|name| Element { name, attributes: Vec::new() });
            None
        }
        CallbackEvent::AttributeName { name } => {
            let named = known(&ATTRIBUTES, name);
            kept = false;
            // Of two with one name the first counts.
            if let (Some(element), Some(name)) = (&mut open, named)
                && element.attribute(name).is_none()
            {
                element.attributes.push((name, String::new()));
                kept = true;
            }
            None
        }
        CallbackEvent::AttributeValue { value } => {
            if let Some((_, last)) = open.as_mut().and_then(|element| element.attributes.last_mut())
                && kept
                && value.len() <= LONGEST_VALUE
            {
                *last = String::from_utf8_lossy(value).into_owned();
            }
            None
        }
        CallbackEvent::CloseStartTag { .. } => open.take().map(Piece::Start),
        CallbackEvent::EndTag { name } => known(&ELEMENTS, name).map(Piece::End),
        CallbackEvent::String { value } => {
            let value = value.get(..LONGEST_TEXT).unwrap_or(value);
            Some(Piece::Text(String::from_utf8_lossy(value).into_owned()))
        }
        CallbackEvent::Comment { .. } | CallbackEvent::Doctype { .. } | CallbackEvent::Error(_) => None,
    });
    Tokenizer::new_with_emitter(text, emitter).flatten()
}

fn known(names: &[&'static str], name: &[u8]) -> Option<&'static str> {
    names.iter().copied().find(|known| known.as_bytes() == name)
}
