//! Lists and sentences of explanations.

/// Most versions that one sentence names.
const MOST_VERSIONS: usize = 4;

/// The first few of many, and how many more there are.
pub(super) fn short_list(texts: &[String]) -> Vec<String> {
    let mut short: Vec<String> = texts.iter().take(MOST_VERSIONS).cloned().collect();
    if texts.len() > MOST_VERSIONS {
        short.truncate(MOST_VERSIONS - 1);
        short.push(format!("{} more", texts.len() - short.len()));
    }
    short
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn listed(texts: &[String], word: &str) -> String {
    match texts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

/// With a capital letter where it begins with "every".
pub(super) fn capital(text: &str) -> String {
    match text.strip_prefix("every ") {
        Some(rest) => format!("Every {rest}"),
        None => text.to_owned(),
    }
}

/// A text as a sentence of its own; empty stays empty.
pub(super) fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut letters = text.chars();
    match letters.next() {
        None => String::new(),
        Some(first) => ended(&format!("{}{}", first.to_uppercase(), letters.as_str())),
    }
}

/// A text as it stands behind a colon.
pub(super) fn sentence_behind_colon(text: &str) -> String {
    ended(text.trim())
}

fn ended(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}
