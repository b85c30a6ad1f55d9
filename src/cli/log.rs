//! The log on its way to standard error.
//!
//! A command writes each line as it comes. In a server, a line that comes alone is written at once if that does not block;
//! lines that crowd are handed to a thread, which writes many of them together. So a request neither pays for a call of the
//! kernel where many come, nor waits for whoever reads the log.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The most bytes that wait to be written, some 20,000 lines. Where nobody reads them, further lines are counted and left out.
const MOST_WAITING: usize = 4 << 20;

/// Lines less than this apart crowd. Then they are gathered for as long: an operator does not notice, and a busy mirror writes
/// 500 times a second instead of once for each request.
const GATHER: Duration = Duration::from_millis(2);

/// The longest line that is sure to fit a pipe which has room at all, in bytes (`PIPE_BUF`).
const ALWAYS_FITS: usize = 4096;

/// How long the end of a process waits for its last lines to be taken.
const LAST_WAIT: Duration = Duration::from_secs(2);

static LINES: Lines = Lines { waiting: Mutex::new(Waiting::new()), changed: Condvar::new() };

/// Takes the lines of the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogWriter;

struct Lines {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    bytes: Vec<u8>,
    left_out: u64,
    thread: Thread,
    /// When a line was last written without the thread.
    alone: Option<Instant>,
}

/// What the thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// There is none: lines are written as they come.
    None,
    /// It waits to be told of a line.
    Idle,
    /// It will look for more lines by itself.
    Busy,
    /// It writes what there is, and ends.
    Ending,
}

impl Waiting {
    const fn new() -> Self {
        Self { bytes: Vec::new(), left_out: 0, thread: Thread::None, alone: None }
    }

    /// Whether a line comes alone, and writing it would not block.
    fn is_alone(&mut self, line: &[u8]) -> bool {
        if self.thread != Thread::Idle || line.len() > ALWAYS_FITS {
            return false;
        }
        let before = self.alone.replace(Instant::now());
        let error = io::stderr();
        let mut polled = [PollFd::new(&error, PollFlags::OUT)];
        before.is_none_or(|before| before.elapsed() > GATHER)
            && poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready == 1)
    }

    /// Takes a line in, unless too many wait.
    fn take_in(&mut self, line: &[u8]) {
        if self.bytes.len().saturating_add(line.len()) > MOST_WAITING {
            self.left_out = self.left_out.saturating_add(1);
        } else {
            self.bytes.extend_from_slice(line);
        }
    }

    /// Hands out what waits, and says what was left out.
    fn hand_out(&mut self, into: &mut Vec<u8>) {
        into.clear();
        std::mem::swap(&mut self.bytes, into);
        if self.left_out > 0 {
            into.extend_from_slice(
                format!("{} lines of the log were left out: nobody took them\n", self.left_out).as_bytes(),
            );
            self.left_out = 0;
        }
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until the thread is told to end. A line that cannot be written is lost, as without a thread.
    fn write_out(&self, mut to: impl io::Write) {
        let mut batch = Vec::new();
        loop {
            let mut waiting = self.lock();
            while waiting.bytes.is_empty() && waiting.thread != Thread::Ending {
                waiting.thread = Thread::Idle;
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            if waiting.bytes.is_empty() {
                waiting.thread = Thread::None;
                self.changed.notify_all();
                return;
            }
            if waiting.thread == Thread::Idle {
                waiting.thread = Thread::Busy;
            }
            waiting.hand_out(&mut batch);
            let ending = waiting.thread == Thread::Ending;
            drop(waiting);
            let _lost = to.write_all(&batch);
            if !ending {
                std::thread::sleep(GATHER);
            }
        }
    }
}

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = LINES.lock();
        if waiting.is_alone(line) {
            // The lock is kept, so that lines stay in order.
            return io::stderr().write(line);
        }
        match waiting.thread {
            Thread::None => {
                drop(waiting);
                return io::stderr().write(line);
            }
            Thread::Idle => {
                waiting.thread = Thread::Busy;
                LINES.changed.notify_all();
            }
            Thread::Busy | Thread::Ending => {}
        }
        waiting.take_in(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As long as this lives, lines are written by a thread of their own.
#[derive(Debug)]
pub(super) struct Aside(());

/// Starts the thread that writes the log. Without it, lines are written as they come.
pub(super) fn aside() -> io::Result<Aside> {
    LINES.lock().thread = Thread::Busy;
    let started = std::thread::Builder::new().name("log".to_owned()).spawn(|| LINES.write_out(io::stderr()));
    match started {
        Ok(_running) => Ok(Aside(())),
        Err(error) => {
            LINES.lock().thread = Thread::None;
            Err(error)
        }
    }
}

impl Drop for Aside {
    /// Waits, for a bounded time, until the last line is written.
    fn drop(&mut self) {
        let mut waiting = LINES.lock();
        if waiting.thread == Thread::None {
            return;
        }
        waiting.thread = Thread::Ending;
        LINES.changed.notify_all();
        let ended = |waiting: &mut Waiting| waiting.thread != Thread::None;
        let _either = LINES.changed.wait_timeout_while(waiting, LAST_WAIT, ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_nobody_takes_are_counted_and_do_not_pile_up() {
        let mut waiting = Waiting::new();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..7 {
            waiting.take_in(&line);
        }
        let mut out = Vec::new();
        waiting.hand_out(&mut out);
        let told = b"3 lines of the log were left out: nobody took them\n";
        assert!(out.ends_with(told) && out.len() == MOST_WAITING + told.len());
        waiting.take_in(b"next\n");
        waiting.hand_out(&mut out);
        assert_eq!(out, b"next\n");
    }

    #[test]
    fn what_waits_is_written_before_the_end() {
        let lines = Lines { waiting: Mutex::new(Waiting::new()), changed: Condvar::new() };
        lines.lock().take_in(b"one\n");
        lines.lock().take_in(b"two\n");
        lines.lock().thread = Thread::Ending;
        let mut out = Vec::new();
        lines.write_out(&mut out);
        assert_eq!(out, b"one\ntwo\n");
        assert!(lines.lock().thread == Thread::None);
    }
}
