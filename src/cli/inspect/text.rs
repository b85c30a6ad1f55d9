//! What a file contains, as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::console::one_line;
use super::answer::DeviceVerdict;
use crate::policy::Judgement;
use crate::wheel::{Facts, Member, MemberKind, Size};
use crate::wording::counted;

/// Names of images that are shown of one library; of more, the number is shown.
const SHOWN_IMAGES: usize = 16;

/// A file as text: a headline, then what it holds, what is wrong with it, and the verdicts.
pub(super) fn describe(facts: &Facts, verdicts: &[DeviceVerdict], width: usize) -> String {
    let mut text = format!("{}\n", facts.file);
    let mut line = Paragraph { text: &mut text, width };
    let mut summary = vec![format!("gpu: {}", facts.gpu), Size(facts.size).to_string()];
    if let (Some(project), Some(version)) = (&facts.project, &facts.version) {
        summary.insert(0, format!("{project} {version}"));
    }
    let newest = |version: fn(&Member) -> &Option<String>| {
        facts.members.iter().filter_map(|member| version(member).as_deref()).max_by_key(|text| numbers(text))
    };
    if let Some(glibc) = newest(|member| &member.glibc) {
        summary.push(format!("needs glibc {glibc}"));
    }
    if let Some(glibcxx) = newest(|member| &member.glibcxx) {
        summary.push(format!("GLIBCXX {glibcxx}"));
    }
    if let Some(python) = &facts.requires_python {
        summary.push(format!("python {python}"));
    }
    line.put("", &summary.join(", "));
    line.put("", &format!("sha256 {}", facts.sha256));
    for (title, members) in images_by_title(facts) {
        line.put(&title, &members);
    }
    for compiler in &facts.compilers {
        let release = compiler.cuda.as_ref().map_or_else(String::new, |cuda| format!(" of CUDA {cuda}"));
        let targets: Vec<String> =
            compiler.targets.iter().map(|target| format!("compute_{}", target.0)).collect();
        line.put(&compiler.path, &format!("compiler{release}: {}", targets.join(" ")));
    }
    for damage in &facts.damage {
        let place = damage.member.as_ref().map_or_else(String::new, |member| format!("{member}: "));
        line.put("damage", &format!("{place}{}", damage.text));
    }
    let longest = verdicts.iter().map(|verdict| verdict.device.len()).max().unwrap_or(0);
    for verdict in verdicts {
        let title = format!("{:longest$}  {:9}", verdict.device, verdict.judgement.verdict);
        line.put(&title, &reasons(&verdict.judgement));
    }
    text.push('\n');
    text
}

fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// A line for each member with images; loose cubins, of which there can be thousands, are one line.
fn images_by_title(facts: &Facts) -> Vec<(String, String)> {
    let (mut loose, mut loose_images) = (0_u64, BTreeMap::<&str, u64>::new());
    let mut lines = Vec::new();
    for member in facts.members.iter().filter(|member| !member.images.is_empty()) {
        let single = matches!(member.kind, MemberKind::Cubin | MemberKind::Ptx | MemberKind::Fatbin);
        if single && facts.members.len() > 1 {
            loose += 1;
            for (image, count) in &member.images {
                *loose_images.entry(image).or_default() += count;
            }
            continue;
        }
        let registered = match member.registered_fatbins {
            0 => String::new(),
            count => format!("{count} registered: "),
        };
        let images = member.images.iter().map(|(image, count)| (image.as_str(), *count));
        lines.push((member.path.clone(), registered + &images_text(images)));
    }
    if loose > 0 {
        lines.push((counted(loose, "loose file"), images_text(loose_images.into_iter())));
    }
    lines
}

/// Images with how often: machine code before PTX, each by compute capability.
fn images_text<'a>(images: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut images: Vec<(&str, u64)> = images.collect();
    images.sort_by_key(|(image, _)| {
        let (kind, target) = image.split_once('_').unwrap_or((image, ""));
        let digits = target.trim_end_matches(char::is_alphabetic);
        (kind != "sm", kind, digits.parse().unwrap_or(u32::MAX), target)
    });
    let shown = images.iter().take(SHOWN_IMAGES).map(|(image, count)| format!("{image}×{count}"));
    let mut text = shown.collect::<Vec<_>>().join(" ");
    if images.len() > SHOWN_IMAGES {
        let _infallible = write!(text, " and {} others", images.len() - SHOWN_IMAGES);
    }
    text
}

fn reasons(judgement: &Judgement) -> String {
    let mut texts: Vec<String> = judgement
        .reasons
        .iter()
        .map(|reason| match reason.remedy.as_str() {
            "" => reason.text.clone(),
            remedy => format!("{}. Instead: {remedy}.", reason.text),
        })
        .collect();
    texts.extend(judgement.notes.iter().map(|note| note.text.clone()));
    texts.join(" ")
}

/// Lines of a title and a text, wrapped at the width of the console.
struct Paragraph<'a> {
    text: &'a mut String,
    width: usize,
}

impl Paragraph<'_> {
    /// Indent of titles.
    const TITLE: &'static str = "  ";
    /// Indent of texts below a title.
    const BODY: &'static str = "      ";

    fn put(&mut self, title: &str, text: &str) {
        // A path inside a wheel may hold anything.
        let title = &*one_line(title);
        let mut line = Self::TITLE.to_owned();
        let mut begun = false;
        if !title.is_empty() {
            line.push_str(title);
            begun = true;
        }
        for word in text.split_whitespace() {
            let gap = match (begun, line.ends_with(title) && !title.is_empty()) {
                (false, _) => 0,
                (true, true) => 2,
                (true, false) => 1,
            };
            if begun && line.chars().count() + gap + word.chars().count() > self.width {
                self.text.push_str(line.trim_end());
                self.text.push('\n');
                Self::BODY.clone_into(&mut line);
                line.push_str(word);
            } else {
                line.extend(std::iter::repeat_n(' ', gap));
                line.push_str(word);
            }
            begun = true;
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_width() {
        let mut text = String::new();
        let mut line = Paragraph { text: &mut text, width: 30 };
        line.put("lib/libtorch_cuda.so", "444 registered: sm_80×444 sm_90×444");
        line.put("", "plain words that do not fit on one line");
        insta::assert_snapshot!(text, @r"
          lib/libtorch_cuda.so  444
              registered: sm_80×444
              sm_90×444
          plain words that do not fit
              on one line
        ");
        assert!(text.lines().all(|line| line.chars().count() <= 30));
    }
}
