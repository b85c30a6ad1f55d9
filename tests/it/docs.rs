//! The book holds: its commands print what it says, every command line in it is one that jetwheel takes, every link leads
//! somewhere.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser as _;

use crate::support::clients::client_program;
use crate::support::network::Network;

/// How long a server of a session may take to listen.
const START: Duration = Duration::from_mins(2);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every document, by its path below the root.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in ["", "docs", "policies", "index"] {
        for entry in fs_err::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs_err::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 10, "{found:?}");
    found
}

/// The lines of a document outside its blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fenced && !fence && !line.starts_with("    ")
    })
}

/// What a heading is called in a link: lower case, dashes for spaces, no other signs.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut lost = String::new();
    let mut count = 0;
    for (file, text) in documents() {
        let folder = root().join(&file).parent().unwrap().to_owned();
        for line in prose(&text) {
            for piece in line.split("](").skip(1) {
                let target = piece.split(')').next().unwrap();
                if target.contains("://") {
                    continue;
                }
                count += 1;
                let (path, wanted) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() { root().join(&file) } else { folder.join(path) };
                let there = path.exists()
                    && (wanted.is_empty()
                        || anchors(&fs_err::read_to_string(&path).unwrap()).contains(wanted));
                if !there {
                    writeln!(lost, "{}: {target}", file.display()).unwrap();
                }
            }
            // Paths in prose are links in spirit.
            for path in line.split('`').skip(1).step_by(2) {
                let ours = ["docs/", "policies/", "index/", "packaging/", "tests/", "src/"];
                if file.ends_with("CHANGELOG.md")
                    || path.contains(['*', ' ', '{', '<'])
                    || path.contains("site")
                    || !ours.iter().any(|folder| path.starts_with(folder))
                {
                    continue;
                }
                count += 1;
                if !root().join(path).exists() {
                    writeln!(lost, "{}: `{path}`", file.display()).unwrap();
                }
            }
        }
    }
    assert!(lost.is_empty() && count > 30, "{count} links; these lead nowhere:\n{lost}");
}

/// Words of a shell's command line up to whatever ends the command.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '|' | '&' | '>' | ';') => break,
            (None, '#') if word.is_none() => break,
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The lines of a document in its blocks of code.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fence && (fenced || line.starts_with("    "))
    })
}

/// Why a command line is none that jetwheel takes.
fn refused(line: &str) -> Option<clap::Error> {
    let words = std::iter::once("jetwheel".to_owned()).chain(words(line));
    jetwheel::cli::Cli::try_parse_from(words).err().filter(clap::Error::use_stderr)
}

#[test]
fn every_command_line_is_one_that_jetwheel_takes() {
    let mut wrong = String::new();
    let mut count = 0;
    for (file, text) in documents() {
        let mut tell = |line: &str, error: Option<clap::Error>| {
            count += 1;
            if let Some(error) = error {
                let why = error.to_string();
                writeln!(wrong, "{}: {line}\n    {}", file.display(), why.lines().next().unwrap()).unwrap();
            }
        };
        for line in code(&text) {
            let line = line.trim_start();
            // The prompt of one site or another.
            let line =
                line.split_once("$ ").filter(|(host, _)| host.len() <= 1).map_or(line, |(_, line)| line);
            if let Some(line) = line.strip_prefix("jetwheel ") {
                tell(line, refused(line));
            }
        }
        for line in prose(&text).flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let Some(line) = line.strip_prefix("jetwheel ") else { continue };
            if line.contains(['…', '[']) || line.contains("...") {
                continue;
            }
            // Prose need not say all that a command needs.
            let unfinished = [
                clap::error::ErrorKind::MissingRequiredArgument,
                clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ];
            tell(line, refused(line).filter(|error| !unfinished.contains(&error.kind())));
        }
    }
    assert!(wrong.is_empty() && count > 60, "{count} command lines; these are refused:\n{wrong}");
}

/// A command of a session, and what it prints.
struct Step {
    command: String,
    printed: Vec<String>,
}

/// The commands in the blocks of code that are marked as `console`.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            steps.push(Step { command: command.to_owned(), printed: Vec::new() });
        } else if let Some(more) = line.strip_prefix("> ").filter(|_| inside) {
            let step = steps.last_mut().unwrap();
            step.command = format!("{}\n{more}", step.command);
        } else if inside {
            steps.last_mut().unwrap().printed.push(line.trim_end().to_owned());
        }
    }
    steps
}

/// A line without what differs from one run to the next: times, digests, sizes of what holds them, and folders.
fn plain(line: &str) -> String {
    let line = line.split("     #").next().unwrap().trim_end();
    let words = line.split(' ').map(|word| {
        let body = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let digits = body.chars().filter(char::is_ascii_digit).count();
        let is_snapshot =
            body.len() >= 18 && body.as_bytes()[8] == b'T' && body.contains("Z-") && digits >= 15;
        let is_digest =
            |length: usize| body.len() == length && body.chars().all(|letter| letter.is_ascii_hexdigit());
        if is_snapshot {
            word.replace(body, "SNAPSHOT")
        } else if is_digest(64) || is_digest(32) {
            word.replace(body, "DIGEST")
        } else if let Some((_, digest)) = body.split_once("sha256:").filter(|(_, digest)| digest.len() == 64)
        {
            word.replace(digest, "DIGEST")
        } else if word.starts_with('/') {
            format!("/…/{}", word.rsplit('/').next().unwrap())
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the lines are those that are written, where `...` stands for any number of lines.
fn agrees(printed: &[String], written: &[String]) -> bool {
    match written.split_first() {
        None => printed.is_empty(),
        Some((dots, rest)) if dots == "..." => (0..=printed.len()).any(|skip| agrees(&printed[skip..], rest)),
        Some((line, rest)) => printed.first() == Some(line) && agrees(&printed[1..], rest),
    }
}

/// A folder, a network and an environment in which a session is typed.
struct Session {
    network: Network,
    folder: tempfile::TempDir,
    path: String,
    exports: String,
    server: Option<Child>,
}

impl Session {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_jetwheel")).parent().unwrap();
        let pip = client_program("pip-newest", "pip");
        let path = format!(
            "{}:{}:/usr/sbin:/usr/bin:/sbin:/bin",
            program.display(),
            pip.parent().unwrap().display()
        );
        Self { network: Network::apart(), folder, path, exports: String::new(), server: None }
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = self.network.command("sh");
        shell
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", self.folder.path())
            .env("JETWHEEL_CONFIG", "/dev/null");
        shell.envs([
            ("PIP_CONFIG_FILE", "/dev/null"),
            ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
            ("PIP_NO_CACHE_DIR", "1"),
        ]);
        shell.env("PIP_PROGRESS_BAR", "off").env("RUST_LOG", "error").current_dir(self.folder.path());
        shell.arg("-c").arg(format!("exec 2>&1\n{}{command}", self.exports));
        shell
    }

    /// Types a command, and yields what it prints.
    fn run(&mut self, command: &str) -> String {
        if command.starts_with("export ") {
            writeln!(self.exports, "{command}").unwrap();
            String::new()
        } else if command == "kill %1" {
            let mut server = self.server.take().unwrap();
            assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
            let ended = server.wait().unwrap();
            assert!(ended.success(), "{ended}");
            String::new()
        } else if let Some(command) = command.strip_suffix(" &") {
            let said = self.folder.path().join("said");
            let file = fs_err::File::create(&said).unwrap();
            let mut shell = self.shell(&format!("exec {command}"));
            self.server = Some(shell.stdout(Stdio::from(file.into_parts().0)).spawn().unwrap());
            let deadline = Instant::now() + START;
            loop {
                let text = fs_err::read_to_string(&said).unwrap();
                if text.contains("listening on ") && text.ends_with('\n') {
                    fs_err::remove_file(&said).unwrap();
                    return text;
                }
                assert!(Instant::now() < deadline, "{command} does not listen: {text}");
                std::thread::yield_now();
            }
        } else {
            String::from_utf8(self.shell(command).output().unwrap().stdout).unwrap()
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _already_gone = server.kill();
            let _status = server.wait();
        }
    }
}

/// Types all that a document shows, and compares what is printed.
fn replay(document: &str, session: &mut Session, at_least: usize) {
    let text = fs_err::read_to_string(root().join(document)).unwrap();
    let steps = steps(&text);
    assert!(steps.len() >= at_least, "{document} has {} commands", steps.len());
    let mut wrong = String::new();
    for step in steps {
        let printed = session.run(&step.command);
        let got: Vec<String> = printed.lines().map(plain).collect();
        let wanted: Vec<String> = step.printed.iter().map(|line| plain(line)).collect();
        if !agrees(&got, &wanted) {
            writeln!(wrong, "$ {}\n{printed}", step.command).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{document} says something else than:\n{wrong}");
}

#[test]
fn the_tutorial_prints_what_it_says() {
    replay("docs/tutorial.md", &mut Session::new(), 15);
}
