//! Commands given beside a running server run inside it: the embedded catalogue has one owner at a time.
//!
//! `serve` listens on the socket `run/serve.sock` in the data folder, which its owner alone may enter. A command that
//! finds the store in use sends one line of JSON, [`Request`], and receives lines of JSON, [`Frame`], until `exit`.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clap::Parser as _;
use serde::{Deserialize, Serialize};

use super::outcome::{exit_code, report};
use super::{Cli, Command, Console, Context, audit};
use crate::store::Store;

/// The longest request that is taken, in bytes: the kernel takes a command line of 2 MiB, each byte of which is up to four here.
const LONGEST_REQUEST: u64 = 16 << 20;
/// Folder of the socket, inside the data folder.
const FOLDER: &str = "run";
/// The socket.
const SOCKET: &str = "serve.sock";

/// A command, as the client's shell gave it: names of files need not be text.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    arguments: Vec<OsString>,
    cwd: OsString,
    width: usize,
}

/// A piece of what a command writes, or its end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Frame {
    Out(String),
    Err(String),
    Exit(u8),
}

/// The socket's path by way of an open folder: a path of its own may be longer than the 108 bytes a socket's name can have.
fn socket_in(folder: &fs_err::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Has the server of a data folder run a command; `None` where no server answers.
pub(super) fn forward(
    data: &Path,
    arguments: &[OsString],
    cwd: PathBuf,
    console: &mut Console,
) -> Option<u8> {
    let folder = fs_err::File::open(data.join(FOLDER)).ok()?;
    let stream = UnixStream::connect(socket_in(&folder)).ok()?;
    let request = Request { arguments: arguments.to_vec(), cwd: cwd.into(), width: console.width };
    relay(stream, &request, console).ok()
}

fn relay(mut stream: UnixStream, request: &Request, console: &mut Console) -> io::Result<u8> {
    serde_json::to_writer(&mut stream, request)?;
    stream.write_all(b"\n")?;
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line?)? {
            Frame::Out(text) => console.print(text)?,
            Frame::Err(text) => console.print_error(text)?,
            Frame::Exit(code) => return Ok(code),
        }
        console.flush()?;
    }
    console.say("error: the server that ran this command ended before it did")?;
    Ok(3)
}

/// Takes commands from other processes until the process ends.
pub(super) fn listen(data: &Path, store: &Arc<Store>) -> io::Result<()> {
    let folder = data.join(FOLDER);
    fs_err::create_dir_all(&folder)?;
    fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
    match fs_err::remove_file(folder.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let folder = fs_err::File::open(folder)?;
    let listener = UnixListener::bind(socket_in(&folder))?;
    let store = Arc::clone(store);
    std::thread::Builder::new().name("commands".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let store = Arc::clone(&store);
            let started = std::thread::Builder::new().name("command".into()).spawn(move || {
                if let Err(error) = answer(&stream, store) {
                    tracing::warn!(error = %error, "a forwarded command was cut off");
                }
            });
            if let Err(error) = started {
                tracing::warn!(error = %error, "no thread for a forwarded command");
            }
        }
    })?;
    Ok(())
}

fn answer(stream: &UnixStream, store: Arc<Store>) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream).take(LONGEST_REQUEST).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let sink = Arc::new(Mutex::new(stream.try_clone()?));
    let out = Box::new(Framed { sink: Arc::clone(&sink), frame: Frame::Out });
    let err = Box::new(Framed { sink: Arc::clone(&sink), frame: Frame::Err });
    // A moving bar would be drawn on the server's own terminal.
    let mut console = Console::new(out, err, false, request.width);
    let code = match Cli::try_parse_from(&request.arguments) {
        Ok(cli) if matches!(cli.command, Command::Serve(_)) => {
            console.say("error: this data folder is served already")?;
            2
        }
        Ok(cli) => match Context::new(&cli, request.cwd.into(), console, Some(store)) {
            Ok(mut context) => {
                if let Ok(client) = rustix::net::sockopt::socket_peercred(stream) {
                    context.who = audit::user(client.uid.as_raw());
                }
                let result = super::run(cli.command, &mut context);
                report(&result, &mut context.console);
                exit_code(&result)
            }
            Err((error, mut console)) => {
                let result = Err(error);
                report(&result, &mut console);
                exit_code(&result)
            }
        },
        Err(error) => {
            console.print_error(error)?;
            2
        }
    };
    send(&sink, &Frame::Exit(code))
}

/// Turns what is written into frames.
struct Framed {
    sink: Arc<Mutex<UnixStream>>,
    frame: fn(String) -> Frame,
}

impl Write for Framed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(&self.sink, &(self.frame)(String::from_utf8_lossy(bytes).into_owned()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn send(sink: &Mutex<UnixStream>, frame: &Frame) -> io::Result<()> {
    let mut line = serde_json::to_vec(frame)?;
    line.push(b'\n');
    let mut stream = sink.lock().map_err(|_| io::Error::other("a writer of this command panicked"))?;
    stream.write_all(&line)
}
